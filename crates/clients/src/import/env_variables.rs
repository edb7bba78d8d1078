//! Secrets of servers that move out into variables.
//!
//! Owns the choice of secrets, and the names of their variables. Does not write a file
//! (`moongate-config`). Invariant: no variable that is set somewhere gets another value.

use std::collections::BTreeMap;

use moongate_config::{ParsedServer, env_file, looks_secret, sounds_secret};
use serde_json::{Map, Value};

/// Schemes of the header `Authorization`, which stay before the reference.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// Variables that stand for secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedSecrets {
    /// Variables to write, each with its value.
    pub variables: Vec<(String, String)>,
    /// Number of secrets that became references.
    pub replaced: usize,
    /// Sentences about secrets that stay where they are.
    pub notes: Vec<String>,
}

/// Replaces the literal secrets in `headers` and `env` of servers by references.
///
/// `file` has the variables that are written already. `env` has those that win over them.
pub fn move_secrets(
    servers: &mut [ParsedServer],
    file: &BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
) -> MovedSecrets {
    let mut moved = MovedSecrets::default();
    let mut there = file.clone();
    for server in servers {
        for table in ["headers", "env"] {
            for (key, text) in literal_secrets(server, table) {
                let (scheme, secret) = split_scheme(&text);
                // Dollar signs are doubled in a config, and not in an env file.
                let secret = secret.replace("$$", "$");
                if env_file::line("A", &secret).is_none() {
                    let why = "an env file cannot hold a value with line breaks";
                    moved.notes.push(format!(
                        "{}: `{table}.{key}` stays as it is: {why}",
                        server.name
                    ));
                    continue;
                }
                let name = free_name(
                    &wanted_name(&server.name, table, &key),
                    &secret,
                    &there,
                    env,
                );
                let reference = Value::from(format!("{scheme}${{{name}}}"));
                for settings in [&mut server.settings, &mut server.masked] {
                    if let Some(members) = settings.get_mut(table).and_then(Value::as_object_mut) {
                        members.insert(key.clone(), reference.clone());
                    }
                }
                moved.replaced += 1;
                if there.insert(name.clone(), secret.clone()).is_none() {
                    moved.variables.push((name, secret));
                }
            }
        }
        let left = server.settings.keys().find(|key| has_secret(server, key));
        moved
            .notes
            .extend(left.map(|key| format!("{}: a secret stays in `{key}`", server.name)));
    }
    moved
}

/// Returns the members of a table that are secret and have no reference.
fn literal_secrets(server: &ParsedServer, table: &str) -> Vec<(String, String)> {
    let members =
        |settings: &Map<String, Value>| settings.get(table).and_then(Value::as_object).cloned();
    let masked = members(&server.masked).unwrap_or_default();
    let found = members(&server.settings)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let text = value.as_str()?.to_owned();
            // A variable in doubt is masked. Most are settings, which people want to see in the
            // config.
            let is_meant = table == "headers"
                || sounds_secret(&key)
                || has_credentials(&text)
                || looks_secret(&text);
            let is_literal =
                masked.get(&key) != Some(&value) && !text.replace("$$", "").contains("${");
            (is_meant && is_literal).then_some((key, text))
        });
    found.collect()
}

/// True for a URL with a user before its host.
fn has_credentials(text: &str) -> bool {
    let host = text
        .split_once("://")
        .and_then(|(_, rest)| rest.split('/').next());
    host.is_some_and(|host| host.contains('@'))
}

fn has_secret(server: &ParsedServer, key: &str) -> bool {
    !matches!(key, "env" | "headers") && server.settings.get(key) != server.masked.get(key)
}

fn split_scheme(text: &str) -> (&str, &str) {
    let scheme = SCHEMES.into_iter().find(|scheme| {
        text.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            && text.len() > scheme.len()
    });
    scheme.map_or(("", text), |scheme| text.split_at(scheme.len()))
}

/// Name that a variable gets if it is free: its own, or that of the server and the header.
fn wanted_name(server: &str, table: &str, key: &str) -> String {
    let words = match (table, key) {
        ("headers", key) if key.eq_ignore_ascii_case("authorization") => format!("{server}_TOKEN"),
        ("headers", key) => format!("{server}_{key}"),
        (_, key) => key.to_owned(),
    };
    let name: String = words.chars().map(variable_char).collect();
    // A variable name does not start with a digit.
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("_{name}")
    } else {
        name
    }
}

/// Replaces a character that variable names do not have.
fn variable_char(c: char) -> char {
    if c.is_ascii_alphanumeric() {
        c.to_ascii_uppercase()
    } else {
        '_'
    }
}

/// Returns the wanted name with the first number under which no other value is set.
fn free_name(
    wanted: &str,
    secret: &str,
    there: &BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
) -> String {
    let numbered = (2_u32..).map(|number| format!("{wanted}_{number}"));
    std::iter::once(wanted.to_owned())
        .chain(numbered)
        .find(|name| {
            [there, env]
                .iter()
                .all(|set| set.get(name).is_none_or(|value| value == secret))
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn variables_of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn secrets_become_references_and_no_variable_changes() {
        let text = json!({"mcpServers": {
            "a": {"url": "https://a.example/mcp", "headers": {
                "Authorization": "bearer s1", "X-Org": "${ORG}", "X-Api-Key": "s2"}},
            "b": {"command": "b", "args": ["--token", "s9"], "env": {
                "API_KEY": "s3", "LOG_LEVEL": "debug", "DB": "postgres://u:p@h/d",
                "PEM_KEY": "one\ntwo"}},
            "c": {"command": "c", "env": {"API_KEY": "s4", "B_TOKEN": "s5$", "USED_KEY": "s6"}},
            "d": {"command": "d", "env": {"API_KEY": "s3", "own_key": "s7"}},
        }});
        let read =
            moongate_config::parse_servers(Path::new("mcp.json"), &text.to_string()).unwrap();
        let mut servers = read.servers;
        let moved = move_secrets(
            &mut servers,
            &variables_of(&[("B_TOKEN", "old")]),
            &variables_of(&[("USED_KEY", "other")]),
        );
        let tables: Vec<&Value> = servers
            .iter()
            .map(|it| {
                it.settings
                    .get("env")
                    .unwrap_or_else(|| &it.settings["headers"])
            })
            .collect();
        let expected = [
            json!({"Authorization": "bearer ${A_TOKEN}", "X-Org": "${ORG}",
                "X-Api-Key": "${A_X_API_KEY}"}),
            json!({"API_KEY": "${API_KEY}", "LOG_LEVEL": "debug", "DB": "${DB}",
                "PEM_KEY": "one\ntwo"}),
            json!({"API_KEY": "${API_KEY_2}", "B_TOKEN": "${B_TOKEN_2}",
                "USED_KEY": "${USED_KEY_2}"}),
            json!({"API_KEY": "${API_KEY}", "own_key": "${OWN_KEY}"}),
        ];
        assert_eq!(tables, expected.iter().collect::<Vec<_>>());
        let written: Value = moved
            .variables
            .into_iter()
            .map(|(name, value)| (name, Value::from(value)))
            .collect();
        assert_eq!(
            written,
            json!({"A_TOKEN": "s1", "A_X_API_KEY": "s2", "API_KEY": "s3",
                "DB": "postgres://u:p@h/d",
            "API_KEY_2": "s4", "B_TOKEN_2": "s5$", "USED_KEY_2": "s6", "OWN_KEY": "s7"})
        );
        assert_eq!(moved.replaced, 9);
        assert_eq!(moved.notes.len(), 2, "{:?}", moved.notes);
        assert!(
            moved.notes[0].contains("env.PEM_KEY") && moved.notes[1].contains("`args`"),
            "{:?}",
            moved.notes
        );
        // The second time, nothing is literal any more.
        let before = servers.clone();
        assert_eq!(
            move_secrets(&mut servers, &variables_of(&[]), &variables_of(&[])).variables,
            []
        );
        assert_eq!(servers, before);
    }
}
