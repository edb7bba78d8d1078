//! Flags in the arguments of a client's entry.
//!
//! Owns how they are found. Does not know what they mean (`entry_key`, `import`). Invariant:
//! `--flag VALUE` and `--flag=VALUE` are read alike.

use serde_json::{Map, Value};

/// Returns the arguments of an entry, as far as they are texts.
pub(crate) fn args_of(settings: &Map<String, Value>) -> Vec<&str> {
    settings
        .get("args")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Returns the values of a flag, such as `--url`.
pub(crate) fn values_of<'a>(args: &[&'a str], flag: &str) -> Vec<&'a str> {
    let apart = args
        .windows(2)
        .filter(|pair| pair[0] == flag)
        .map(|pair| pair[1]);
    let joined = args
        .iter()
        .filter_map(|arg| arg.strip_prefix(flag)?.strip_prefix('='));
    apart.chain(joined).collect()
}

/// Returns where an entry leads, for a message: its URL, the URL of its bridge, or its command.
pub fn entry_target(entry: &Value) -> Option<&str> {
    let settings = entry.as_object()?;
    let text = |key: &'static str| settings.get(key).and_then(Value::as_str);
    text("url")
        .or_else(|| values_of(&args_of(settings), "--url").first().copied())
        .or_else(|| text("command"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_of_a_flag_have_its_value() {
        let args = ["stdio", "--url", "a", "--url=b", "--urls", "c", "--url"];
        assert_eq!(values_of(&args, "--url"), ["a", "b"]);
        assert_eq!(values_of(&args, "--key"), [""; 0]);
    }

    #[test]
    fn a_bridge_leads_to_its_url() {
        for (entry, target) in [
            (json!({"url": "u"}), Some("u")),
            (
                json!({"command": "c", "args": ["stdio", "--url=u"]}),
                Some("u"),
            ),
            (json!({"command": "c", "args": ["x"]}), Some("c")),
            (json!({}), None),
        ] {
            assert_eq!(entry_target(&entry), target, "{entry}");
        }
    }
}
