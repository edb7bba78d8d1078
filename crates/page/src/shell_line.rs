//! Command lines to copy into a shell.
//!
//! Owns their quoting, and the line that adds a found server. Does not run anything. Invariant:
//! foreign text is quoted, so a copied line cannot run a command hidden in it.

use std::fmt;

use moongate_api::FoundServer;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// Settings of a program, as far as a command line says them. It says no others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramSettings {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: ProgramVariables,
}

/// Variables of a program, in the order of its entry.
#[derive(Default)]
struct ProgramVariables(Vec<(String, String)>);

impl<'de> Deserialize<'de> for ProgramVariables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(VariablesVisitor)
    }
}

struct VariablesVisitor;

impl<'de> Visitor<'de> for VariablesVisitor {
    type Value = ProgramVariables;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("variables with their texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ProgramVariables, A::Error> {
        let mut variables = Vec::new();
        while let Some(variable) = map.next_entry()? {
            variables.push(variable);
        }
        Ok(ProgramVariables(variables))
    }
}

/// Quotes a text for a shell.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a word for a shell, where it needs quotes.
fn quote_word(word: &str) -> String {
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        quote(word)
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c)
}

/// Writes the command that adds a found program, with variables instead of secrets. `None` if
/// no command says all of it.
pub(super) fn add_line(server: &FoundServer) -> Option<String> {
    let ProgramSettings { command, args, env } =
        ProgramSettings::deserialize(&server.settings).ok()?;
    let mut line = format!("moongate add {}", quote_word(&server.name));
    for (name, value) in env.0 {
        let value = shown_value(server, &format!("env.{name}"), value)?;
        line.push_str(&format!(" -e {}", quote_word(&format!("{name}={value}"))));
    }
    line.push_str(&format!(" -- {}", quote_word(&command)));
    for (at, argument) in args.into_iter().enumerate() {
        line.push_str(&format!(
            " {}",
            quote_word(&shown_value(server, &format!("args[{at}]"), argument)?)
        ));
    }
    Some(line)
}

/// Returns a setting's value, or the variable of a secret. `None` if only a part is secret.
fn shown_value(server: &FoundServer, path: &str, value: String) -> Option<String> {
    let Some(secret) = server.secrets.iter().find(|secret| secret.path == path) else {
        return Some(value);
    };
    // A secret is shown masked. Its variable replaces the whole value, or the line would say
    // something else.
    (value == "***").then(|| format!("${{{}}}", secret.suggest))
}

#[cfg(test)]
mod tests {
    use moongate_api::FoundSecret;
    use serde_json::json;

    use super::*;

    fn found_server(settings: serde_json::Value, secrets: &[(&str, &str)]) -> FoundServer {
        let secrets = secrets.iter().map(|(path, suggest)| FoundSecret {
            path: (*path).to_owned(),
            suggest: (*suggest).to_owned(),
        });
        FoundServer {
            name: "a".to_owned(),
            settings: settings.as_object().cloned().unwrap_or_default(),
            secrets: secrets.collect(),
            ..FoundServer::default()
        }
    }

    #[test]
    fn the_line_quotes_what_a_shell_would_run() {
        let hostile = json!({ "command": "npx", "args": ["-y", "pkg; touch x $(id)", "it's"] });
        let line = r"moongate add a -- npx -y 'pkg; touch x $(id)' 'it'\''s'";
        assert_eq!(add_line(&found_server(hostile, &[])).as_deref(), Some(line));
        let secret = json!({ "command": "npx", "args": ["--token", "***"],
            "env": { "LEVEL": "a b", "KEY": "***" } });
        let secrets = [("args[1]", "A_SECRET"), ("env.KEY", "KEY")];
        let line = "moongate add a -e 'LEVEL=a b' -e 'KEY=${KEY}' -- npx --token '${A_SECRET}'";
        assert_eq!(
            add_line(&found_server(secret, &secrets)).as_deref(),
            Some(line)
        );
        let part = json!({ "command": "npx", "args": ["--token=***"] });
        assert_eq!(add_line(&found_server(part, &[("args[0]", "X")])), None);
        assert_eq!(
            add_line(&found_server(json!({ "command": "npx", "cwd": "/x" }), &[])),
            None
        );
    }
}
