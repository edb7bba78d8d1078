//! Keys of servers that an operator may write from elsewhere, and those that need
//! `admin.allow_commands`.
//!
//! Owns what each right allows. Does not list the keys: each has its right at its declaration, as
//! `x-operator`. Does not know whether commands are allowed. Invariant: a key without a right is
//! never written, so that no spelling of a client's format gets around the permission.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::edit_error::ConfigEditError;
use crate::expand::refers_to_file;
use crate::schema::ConfigSchema;
use moongate_search::nearest;

/// Right of an operator to one key of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyRight {
    /// Any operator may set it (`set`): it says how a server looks, or its times and limits.
    Set,
    /// A new server may have it (`add`). Other operations change it later.
    Add,
    /// A new server may have it, and a change needs the permission (`target`): it decides where a
    /// server leads and what it is sent. A change would send what the server was trusted with
    /// somewhere else.
    Target,
    /// It needs the permission (`power`): it decides what runs, which file is read, which of the
    /// clients' headers a server gets, or whether it may be where clouds keep credentials.
    Power,
}

/// Rights to the keys of a server, in the order of their declarations.
static RIGHTS: LazyLock<Vec<(String, KeyRight)>> = LazyLock::new(|| {
    let schema = ConfigSchema::read();
    let servers = schema.root().key("servers");
    let server = servers.and_then(|servers| servers.key("any"));
    let keys = server.and_then(|server| server.keys()).unwrap_or_default();
    keys.into_iter()
        .filter_map(|key| {
            let right = server?.key(key)?.operator()?;
            Some((key.to_owned(), KeyRight::parse(right)?))
        })
        .collect()
});

impl KeyRight {
    fn parse(word: &str) -> Option<KeyRight> {
        match word {
            "set" => Some(KeyRight::Set),
            "add" => Some(KeyRight::Add),
            "target" => Some(KeyRight::Target),
            "power" => Some(KeyRight::Power),
            _ => None,
        }
    }

    fn of(key: &str) -> Option<KeyRight> {
        let known = RIGHTS.iter().find(|(name, _)| name == key);
        known.map(|(_, right)| *right)
    }
}

/// Returns true for a key whose change needs the permission.
pub(super) fn is_guarded_key(key: &str) -> bool {
    matches!(KeyRight::of(key), Some(KeyRight::Power | KeyRight::Target))
}

/// Refuses to set a key that is set in another way, or that no server has.
pub(super) fn check_set_key(key: &str) -> Result<(), ConfigEditError> {
    match KeyRight::of(key) {
        Some(KeyRight::Set | KeyRight::Target | KeyRight::Power) => Ok(()),
        Some(KeyRight::Add) | None => {
            let settable = RIGHTS
                .iter()
                .filter(|(_, right)| *right == KeyRight::Set)
                .map(|(key, _)| key.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            let message = format!("`{key}` cannot be set here; the keys that can are {settable}");
            Err(ConfigEditError::new("bad_value", message))
        }
    }
}

/// Lists the settings of a new server that need `admin.allow_commands`, whatever they refer to.
pub(super) fn power_settings(settings: &Map<String, Value>) -> Vec<String> {
    let powers = RIGHTS.iter().filter(|(_, right)| *right == KeyRight::Power);
    let mut found: Vec<String> = powers
        .map(|(key, _)| key.clone())
        .filter(|key| settings.contains_key(key))
        .collect();
    // A file of the gateway's machine would be sent to the server.
    for (key, value) in settings {
        if !found.contains(key) {
            find_file_references(key, value, &mut found);
        }
    }
    found
}

/// Refuses keys of a new server that no server has. A client's spelling of `command` would be one.
pub(super) fn check_new_keys(settings: &Map<String, Value>) -> Result<(), ConfigEditError> {
    let Some(key) = settings.keys().find(|key| KeyRight::of(key).is_none()) else {
        return Ok(());
    };
    let known: Vec<&str> = RIGHTS.iter().map(|(key, _)| key.as_str()).collect();
    let near = nearest(key, &known).map(|near| format!("; did you mean `{near}`?"));
    let message = format!(
        "`{key}` is not a server setting{}",
        near.unwrap_or_default()
    );
    Err(ConfigEditError::new("bad_value", message))
}

fn find_file_references(path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if refers_to_file(text) => found.push(path.to_owned()),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                find_file_references(&format!("{path}[{at}]"), item, found);
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                find_file_references(&format!("{path}.{key}"), value, found);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the first guarded setting.
    fn guarded(settings: Value) -> Option<String> {
        let settings = settings.as_object().unwrap();
        power_settings(settings).into_iter().next()
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
            (
                "auth",
                json!({ "type": "command", "command": "gh", "args": ["auth", "token"] }),
            ),
            (
                "auth",
                json!({ "client_id": "x", "client_secret": "${SECRET}" }),
            ),
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
    fn all_guarded_settings_are_listed() {
        let settings = json!({
            "url": "https://a.example",
            "env": { "A": "${file:/a}" },
            "headers": { "X": "${file:/x}", "Y": "plain" },
            "command": "sh",
            "tools": { "deny": ["x", "${file:/d}"] },
        });
        let mut found = power_settings(settings.as_object().unwrap());
        found.sort_unstable();
        assert_eq!(found, ["command", "env", "headers.X", "tools.deny[1]"]);
    }

    /// Returns the keys with a right, sorted.
    fn keys_with(right: KeyRight) -> Vec<&'static str> {
        let named = RIGHTS.iter().filter(|(_, other)| *other == right);
        let mut keys: Vec<&str> = named.map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn keys_that_decide_what_runs_and_where_need_the_permission() {
        assert_eq!(
            keys_with(KeyRight::Power),
            [
                "allow_metadata",
                "args",
                "auth",
                "ca",
                "command",
                "cwd",
                "env",
                "forward_headers",
                "unix"
            ]
        );
        assert_eq!(
            keys_with(KeyRight::Target),
            ["headers", "proxy", "tcp", "transport", "type", "url"]
        );
    }

    #[test]
    fn each_key_of_a_server_declares_its_right() {
        let schema = ConfigSchema::read();
        let servers = schema.root().key("servers");
        let server = servers.and_then(|servers| servers.key("a")).unwrap();
        let mut keys = server.keys().unwrap();
        keys.retain(|key| KeyRight::of(key).is_none());
        assert!(
            keys.is_empty(),
            "these keys have no right: {keys:?}. Write `x-operator` (set, add, target or power) at \
             each declaration, in crates/config/src/server_keys.rs or \
             crates/upstream/src/options.rs; then UPDATE_EXPECTED=1 cargo test -p \
             moongate-config derived"
        );
    }
}
