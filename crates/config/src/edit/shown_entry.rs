//! Entry of a server as people may see it.
//!
//! Owns what is shown of its values, and the advice for secrets in clear. Does not judge secrets
//! (`redact`). Invariant: no secret leaves this file.

use std::path::Path;

use moongate_api::{ShownEntry, ShownValue};
use moongate_edit::{Edit, EditAction, Format, PathStep};

use super::file_entry::find_entries;
use crate::load::before;
use crate::options::LoadOptions;
use crate::redact::{is_surely_secret, masked_node};
use crate::secret_variable::{VariableNames, secret_reference};
use crate::tree::{ConfigNode, ConfigPath, ConfigValue};

/// Stands for a secret.
const HIDDEN: &str = "••••";
/// Tables whose values may refer to variables that are easy to name.
const NAMED_TABLES: [&str; 2] = ["headers", "env"];

/// Reads the entry of a server in a file.
pub fn shown_entry(path: &Path, name: &str) -> Option<ShownEntry> {
    let options = LoadOptions::of_files(vec![path.to_owned()], Default::default());
    let entry = find_entries(&options, name).ok()?.pop()?;
    let root = ConfigPath::of(&["servers", name]);
    let mut values = Vec::new();
    let mut variables = VariableNames::default();
    for (key, node) in entry.node.as_table()? {
        match node
            .as_table()
            .filter(|_| !matches!(node.value, ConfigValue::List(_)))
        {
            Some(table) => values.extend(table.iter().map(|(inner, node)| {
                let path = root.key(key).key(inner);
                let keys = vec![key.clone(), inner.clone()];
                let shown = show(keys, node, &path);
                ShownValue {
                    advice: advice(&shown, node, &path, name, &mut variables),
                    ..shown
                }
            })),
            None => values.push(show(vec![key.clone()], node, &root.key(key))),
        }
    }
    Some(ShownEntry {
        values,
        toml: server_toml(name, masked(&entry.node, &root)).unwrap_or_default(),
    })
}

/// Returns the entry of a server as TOML.
pub fn server_toml(name: &str, settings: serde_json::Value) -> Option<String> {
    let steps = ["servers", name].map(PathStep::from);
    moongate_edit::edit(
        Format::Toml,
        "",
        &[Edit::new(steps, EditAction::Set(settings))],
    )
    .ok()
}

fn show(keys: Vec<String>, node: &ConfigNode, path: &ConfigPath) -> ShownValue {
    let masked = masked(node, path);
    let text = match &masked {
        serde_json::Value::String(text) if text == HIDDEN => None,
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    ShownValue {
        keys,
        text,
        advice: None,
    }
}

/// Copies a node, with dots for its secrets.
fn masked(node: &ConfigNode, path: &ConfigPath) -> serde_json::Value {
    node.to_json(&|below, inner| {
        let full = ConfigPath([&path.0[..], &below.0[..]].concat());
        masked_node(&full, inner, before(node, below), HIDDEN)
    })
}

/// Returns the line that takes a header or a variable of the program from the gateway's
/// environment.
fn advice(
    shown: &ShownValue,
    node: &ConfigNode,
    path: &ConfigPath,
    server: &str,
    variables: &mut VariableNames,
) -> Option<String> {
    let [table, key] = &shown.keys[..] else {
        return None;
    };
    let text = match &node.value {
        ConfigValue::Text(text) => text.clone(),
        ConfigValue::Int(number) => number.to_string(),
        _ => return None,
    };
    let is_meant = NAMED_TABLES.contains(&table.as_str()) && shown.text.is_none();
    if !is_meant || !is_surely_secret(path, &text, None) {
        return None;
    }
    let value = secret_reference(&text, &variables.suggest(server, &format!("{table}.{key}")));
    toml_line(key, value)
}

/// Returns the line of a key with a text.
fn toml_line(key: &str, value: String) -> Option<String> {
    let set = EditAction::Set(serde_json::Value::String(value));
    let text = moongate_edit::edit(Format::Toml, "", &[Edit::new([key], set)]).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const CONFIG: &str = r#"
[servers.git-hub]
url = "https://api.example.com/mcp?key=hush-in-url"
title = "costs 5$$"
timeout = "9s"
args = ["--api-key", "hush-arg", "plain"]
tools = { deny = ["delete_*"] }

[servers.git-hub.headers]
Authorization = "Bearer hush-header"
X-Plain = "${PLAIN}"
X-Token = "hush-token"
X-Org = "hush-org"

[servers.git-hub.env]
"API KEY" = 12345678
FROM_FILE = "${file:/run/secret}"
PUB = "hush-pub"
"#;

    #[test]
    fn secrets_are_dots_and_references_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("moongate.toml");
        std::fs::write(&path, CONFIG).unwrap();
        let entry = shown_entry(&path, "git-hub").unwrap();
        let all = format!("{entry:?}");
        assert!(!all.contains("hush") && !all.contains("12345678"), "{all}");
        assert_eq!(find(&entry, &["headers", "Authorization"]).text, None);
        assert_eq!(
            find(&entry, &["headers", "Authorization"])
                .advice
                .as_deref(),
            Some("Authorization = \"Bearer ${GIT_HUB_TOKEN}\"")
        );
        assert_eq!(
            find(&entry, &["env", "API KEY"]).advice.as_deref(),
            Some("\"API KEY\" = \"${API_KEY}\"")
        );
        let token = find(&entry, &["headers", "X-Token"]).advice.as_deref();
        assert_eq!(
            token,
            Some("X-Token = \"${GIT_HUB_TOKEN_2}\""),
            "each has a variable of its own"
        );
        for in_doubt in [["headers", "X-Org"], ["env", "PUB"]] {
            let value = find(&entry, &in_doubt);
            assert_eq!(value.text, None, "dots");
            assert_eq!(value.advice, None, "no advice");
        }
        let reference = find(&entry, &["env", "FROM_FILE"]);
        assert!(
            reference.is_reference() && reference.text.as_deref() == Some("${file:/run/secret}")
        );
        assert!(
            find(&entry, &["headers", "X-Plain"]).is_reference()
                && !find(&entry, &["title"]).is_reference()
        );
        assert_eq!(
            find(&entry, &["args"]).text.as_deref(),
            Some(r#"["--api-key","••••","plain"]"#)
        );
        assert_eq!(
            find(&entry, &["url"]).text.as_deref(),
            Some("https://api.example.com/mcp?key=••••")
        );
        assert!(
            entry.toml.starts_with("[servers.git-hub]") && entry.toml.contains("timeout = \"9s\""),
            "{}",
            entry.toml
        );
        assert_eq!(shown_entry(&path, "other"), None);
    }

    #[test]
    fn a_line_is_toml_whatever_its_key_has() {
        for key in [
            "PLAIN",
            "API KEY",
            "zero\u{200b}width",
            "quote\"\\",
            "tab\t\u{1}",
        ] {
            let line = toml_line(key, "${A}".to_owned()).unwrap();
            let read: BTreeMap<String, String> = toml::from_str(&line).unwrap();
            let expected = BTreeMap::from([(key.to_owned(), "${A}".to_owned())]);
            assert_eq!(read, expected, "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    fn find<'a>(entry: &'a ShownEntry, keys: &[&str]) -> &'a ShownValue {
        entry
            .values
            .iter()
            .find(|value| value.keys == keys)
            .unwrap()
    }
}
