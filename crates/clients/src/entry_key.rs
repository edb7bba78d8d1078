//! Key that an entry of ours has already.
//!
//! Owns where an entry keeps it. Does not write entries (`entry`). Invariant: a key that is kept is
//! in the new entry exactly as it was in the old one.

use std::path::Path;

use serde_json::{Map, Value};

use crate::connect_file::entry_of;
use crate::entry::ConnectKey;
use crate::entry_flags::{args_of, values_of};
use crate::profile::{ClientProfile, VariableForm};

/// Variable with the key of a client, which a bridge reads.
pub const KEY_VARIABLE: &str = "MOONGATE_KEY";

/// Returns the key of the entry of a name in a client's file. `None` if it has none.
///
/// Fails if the entry has its key in a form that no entry of ours would have.
pub fn kept_key(
    profile: &ClientProfile,
    path: &Path,
    text: &str,
    name: &str,
) -> Result<Option<ConnectKey>, UnkeptKey> {
    let Some(key) = entry_of(path, text, name).and_then(|entry| key_text(&entry.settings)) else {
        return Ok(None);
    };
    if let Some(name) = variable_of(profile, &key) {
        return Ok(Some(ConnectKey::Variable { name, value: None }));
    }
    // The reader spells references in our way, which the client may not read.
    match text.contains(&key) {
        true => Ok(Some(ConnectKey::Value(key))),
        false => Err(UnkeptKey),
    }
}

/// Error for a key in a form that cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnkeptKey;

impl std::fmt::Display for UnkeptKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("its entry has the key in a form that cannot be kept")
    }
}

/// Returns true if the entry of a name leads to a running gateway and sends no key.
///
/// `is_inherited` means that a program gets the key from its environment.
pub fn lacks_key(path: &Path, text: &str, name: &str, is_inherited: bool) -> bool {
    let Some(entry) = entry_of(path, text, name) else {
        return false;
    };
    let is_bridge = entry.settings.contains_key("command");
    // Without a URL, the program is a separate gateway, which asks nobody for a key.
    let has_url = !values_of(&args_of(&entry.settings), "--url").is_empty();
    let leads_there = !is_bridge || has_url && !is_inherited;
    leads_there && key_text(&entry.settings).is_none()
}

/// Returns the key of an entry in our words: itself, or a reference.
fn key_text(settings: &Map<String, Value>) -> Option<String> {
    let bearer = table_text(settings, "headers", "authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let key = bearer
        .or_else(|| table_text(settings, "headers", "x-api-key"))
        .or_else(|| table_text(settings, "env", KEY_VARIABLE))
        .or_else(|| values_of(&args_of(settings), "--key").first().copied())?;
    (!key.is_empty()).then(|| key.to_owned())
}

/// Returns the text under a name in a table of an entry. Names are compared without case.
fn table_text<'a>(settings: &'a Map<String, Value>, table: &str, name: &str) -> Option<&'a str> {
    let members = settings.get(table)?.as_object()?;
    members
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))?
        .1
        .as_str()
}

/// Returns the variable that a text names, if the client replaces it.
fn variable_of(profile: &ClientProfile, text: &str) -> Option<String> {
    let name = text.strip_prefix("${")?.strip_suffix('}')?;
    let name = name.strip_prefix("env:").unwrap_or(name);
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_read = match profile.variable {
        VariableForm::None => false,
        VariableForm::Reference(_) | VariableForm::Entry(_) => true,
        // The reader makes a variable of the input's id.
        VariableForm::Input(id) => name == id.to_ascii_uppercase().replace('-', "_"),
    };
    (is_plain && is_read).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::connect_file::{connect_text, format_of};
    use crate::entry::ConnectRoute;
    use crate::entry::tests::request;
    use crate::profile::ConnectMethod;
    use crate::table::clients;

    #[test]
    fn an_entry_that_is_written_again_keeps_its_key() {
        let variable = ConnectKey::Variable {
            name: "GATE".to_owned(),
            value: Some("mg_k".to_owned()),
        };
        for profile in clients().filter(|profile| profile.method == ConnectMethod::File) {
            let file = profile.user_files.of(moongate_platform::Platform::CURRENT)[0];
            let path = Path::new(file);
            for route in [ConnectRoute::Best, ConnectRoute::Bridge] {
                let write =
                    |key| connect_text(profile, &request(key, route), format_of(path), "").unwrap();
                for key in [ConnectKey::Value("mg_k$1".to_owned()), variable.clone()] {
                    let text = write(Some(key));
                    let kept = kept_key(profile, path, &text, "moongate").unwrap();
                    assert!(kept.is_some(), "{}: {text}", profile.id);
                    assert_eq!(write(kept), text, "{}", profile.id);
                    assert!(
                        !lacks_key(path, &text, "moongate", false),
                        "{}: {text}",
                        profile.id
                    );
                }
                let without = write(None);
                assert_eq!(
                    kept_key(profile, path, &without, "moongate"),
                    Ok(None),
                    "{without}"
                );
                assert!(
                    lacks_key(path, &without, "moongate", false),
                    "{}: {without}",
                    profile.id
                );
            }
        }
    }

    fn file_of(entry: &str) -> String {
        format!("{{\"mcpServers\":{{\"moongate\":{entry}}}}}")
    }

    #[test]
    fn a_key_in_another_form_is_found_and_a_gateway_of_its_own_needs_none() {
        let path = Path::new("mcp.json");
        let cursor = crate::table::client("cursor").unwrap();
        let url = "\"url\":\"http://127.0.0.1:8080/mcp\"";
        for (settings, key) in [
            (format!("{{{url},\"headers\":{{\"authorization\":\"bearer mg_k\"}}}}"), "mg_k"),
            (format!("{{{url},\"headers\":{{\"X-API-Key\":\"mg_k\"}}}}"), "mg_k"),
            ("{\"command\":\"moongate\",\"args\":[\"stdio\",\"--url\",\"u\",\"--key\",\"mg_k\"]}".to_owned(), "mg_k"),
            ("{\"command\":\"moongate\",\"args\":[\"stdio\",\"--url=u\",\"--key=mg_k\"]}".to_owned(), "mg_k"),
        ] {
            let kept = kept_key(cursor, path, &file_of(&settings), "moongate");
            assert_eq!(kept, Ok(Some(ConnectKey::Value(key.to_owned()))), "{settings}");
        }
        let own = file_of("{\"command\":\"moongate\",\"args\":[\"stdio\"]}");
        assert!(!lacks_key(path, &own, "moongate", false));
        for url in ["\"--url\",\"u\"", "\"--url=u\""] {
            let bridge = file_of(&format!(
                "{{\"command\":\"moongate\",\"args\":[\"stdio\",{url}]}}"
            ));
            assert!(lacks_key(path, &bridge, "moongate", false), "{bridge}");
            assert!(!lacks_key(path, &bridge, "moongate", true), "{bridge}");
        }
    }
}
