//! Settings of servers that an operator may write from elsewhere, and those that need
//! `admin.allow_commands`.
//!
//! Owns both lists. Does not know whether commands are allowed. Invariant: a setting of neither
//! list is never written, so that no spelling of a client's format gets around the second one.

use serde_json::{Map, Value};

use super::edit_error::ConfigEditError;
use crate::expand::refers_to_file;
use moongate_search::nearest;

/// Keys that say how a server looks, and its times and limits. None of them decides what runs or
/// where it leads.
pub(super) const SETTABLE: [&str; 28] = [
    "title",
    "icon",
    "description",
    "prefix",
    "share",
    "start",
    "idle_stop",
    "timeout",
    "connect_timeout",
    "start_timeout",
    "list_timeout",
    "relist",
    "protocol",
    "max_connections",
    "max_concurrency",
    "queue",
    "max_message",
    "max_backlog",
    "max_notifications",
    "max_items",
    "max_pages",
    "max_list",
    "max_depth",
    "max_subscriptions",
    "backoff",
    "retry",
    "breaker",
    "ping",
];
/// Keys that decide what runs, which file is read, which of the clients' headers a server gets, or
/// whether it may be where clouds keep credentials. A new server with one of them needs the
/// permission.
const POWER_KEYS: [&str; 8] = [
    "command",
    "args",
    "env",
    "cwd",
    "unix",
    "ca",
    "forward_headers",
    "allow_metadata",
];
/// Keys that decide where a server leads, and what it is sent. A new server may have them. A change
/// would send what the server was trusted with to another place.
const TARGET_KEYS: [&str; 6] = ["url", "headers", "tcp", "proxy", "transport", "type"];
/// Keys of a new server beside those above.
const NEW_KEYS: [&str; 5] = ["enabled", "tools", "resources", "prompts", "websocket_ping"];

/// Returns true for a key whose change needs the permission.
pub(super) fn is_guarded_key(key: &str) -> bool {
    POWER_KEYS.contains(&key) || TARGET_KEYS.contains(&key)
}

/// Finds the setting of a new server that needs `admin.allow_commands`, whatever it refers to.
pub(super) fn power_setting(settings: &Map<String, Value>) -> Option<String> {
    let power = POWER_KEYS
        .iter()
        .find(|key| settings.contains_key(**key))
        .map(|key| (*key).to_owned());
    // A file of the gateway's machine would be sent to the server.
    power.or_else(|| {
        settings
            .iter()
            .find_map(|(key, value)| file_reference(key, value))
    })
}

/// Refuses keys of a new server that no server has. A client's spelling of `command` would be one.
pub(super) fn check_new_keys(settings: &Map<String, Value>) -> Result<(), ConfigEditError> {
    let known = [&SETTABLE[..], &POWER_KEYS, &TARGET_KEYS, &NEW_KEYS].concat();
    match settings.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let near = nearest(key, &known)
                .map(|near| format!("; did you mean `{near}`?"))
                .unwrap_or_default();
            Err(ConfigEditError::new(
                "bad_value",
                format!("`{key}` is no setting of a server{near}"),
            ))
        }
    }
}

fn file_reference(path: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) => refers_to_file(text).then(|| path.to_owned()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| file_reference(&format!("{path}[{at}]"), item)),
        Value::Object(members) => members
            .iter()
            .find_map(|(key, value)| file_reference(&format!("{path}.{key}"), value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guarded(settings: Value) -> Option<String> {
        power_setting(settings.as_object().unwrap())
    }

    #[test]
    fn programs_and_files_are_guarded_wherever_they_stand() {
        assert_eq!(
            guarded(json!({ "command": "sh" })).as_deref(),
            Some("command")
        );
        assert_eq!(
            guarded(json!({ "url": "https://a.example", "env": {} })).as_deref(),
            Some("env")
        );
        assert_eq!(
            guarded(json!({ "url": "https://a.example", "headers": { "X": "${TOKEN}" } })),
            None
        );
        for (key, value) in [
            ("forward_headers", json!({})),
            ("allow_metadata", json!(false)),
        ] {
            assert_eq!(
                guarded(json!({ "url": "https://a.example", key: value })).as_deref(),
                Some(key)
            );
        }
        for text in [
            "${file:/etc/shadow}",
            "a${X:-${file:/etc/shadow}}",
            "Bearer ${ file:/x}",
        ] {
            let headers = json!({ "url": "https://a.example", "headers": { "X": text } });
            assert_eq!(guarded(headers).as_deref(), Some("headers.X"), "{text}");
        }
        assert_eq!(
            guarded(json!({ "url": "https://a.example", "title": "$${file:/x}" })).as_deref(),
            Some("title")
        );
        assert!(check_new_keys(json!({ "cmd": "sh" }).as_object().unwrap()).is_err());
        assert!(check_new_keys(json!({ "url": "x", "tools": {} }).as_object().unwrap()).is_ok());
    }

    #[test]
    fn each_key_of_a_server_is_in_one_list() {
        let schema = crate::schema::ConfigSchema::read();
        let rule = schema
            .root()
            .key("servers")
            .and_then(|rule| rule.key("a"))
            .unwrap();
        let mut keys = rule.keys().unwrap();
        let mut listed = [&SETTABLE[..], &POWER_KEYS, &TARGET_KEYS, &NEW_KEYS].concat();
        keys.sort_unstable();
        listed.sort_unstable();
        assert_eq!(keys, listed);
    }
}
