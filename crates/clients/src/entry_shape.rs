//! Judgement of our entry in a client's file, by the client's own form.
//!
//! Owns which differences matter: those that the client would ignore. Does not write. Invariant: an
//! entry that `connect` wrote has no problem.

use serde_json::Value;

use crate::profile::ClientProfile;

/// Returns what this client would not understand in an entry with a URL. `None`: nothing.
pub fn shape_problem(profile: &ClientProfile, entry: &Value) -> Option<String> {
    let template: Value = serde_json::from_str(profile.http?).ok()?;
    let template = template.as_object()?;
    let entry = entry.as_object()?;
    let (found, _) = entry.iter().find(|(_, value)| is_url(value))?;
    let (wanted, _) = template
        .iter()
        .find(|(_, value)| value.as_str().is_some_and(|text| text.contains("{url}")))?;
    if found != wanted {
        return Some(format!(
            "the URL is in `{found}`, but this client reads `{wanted}`"
        ));
    }
    if let Some((key, value)) = template
        .iter()
        .find(|(key, value)| is_fixed(value) && !entry.contains_key(*key))
    {
        return Some(format!(
            "`{key}` is missing, but this client needs {value} there"
        ));
    }
    let ignored = entry
        .keys()
        .find(|key| key.as_str() == "headers" && !template.contains_key(*key))?;
    Some(format!("this client ignores `{ignored}`"))
}

fn is_url(value: &Value) -> bool {
    // Types are called `http`, too.
    value
        .as_str()
        .is_some_and(|text| text.starts_with("http") && text.contains("://"))
}

/// True for a text of a template without a placeholder.
fn is_fixed(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.contains('{'))
}
