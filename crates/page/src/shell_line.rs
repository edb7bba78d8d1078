//! Lines to copy into a shell.
//!
//! Owns their quoting, and the line that adds a found server. Does not run anything. Invariant:
//! text of others is quoted, so that a copied line runs no command of theirs.

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
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        quote(word)
    }
}

/// Writes the command that adds a found program, with variables in the place of secrets. `None` if
/// no command says all of it.
pub(super) fn add_line(server: &FoundServer) -> Option<String> {
    let ProgramSettings { command, args, env } =
        ProgramSettings::deserialize(&server.settings).ok()?;
    // A secret is shown masked. Its variable stands for all of the value, or the line would say
    // something else.
    let word = |path: &str, value: String| match server
        .secrets
        .iter()
        .find(|secret| secret.path == path)
    {
        None => Some(value),
        Some(secret) => (value == "***").then(|| format!("${{{}}}", secret.suggest)),
    };
    let mut line = format!("moongate add {}", quote_word(&server.name));
    for (name, value) in env.0 {
        let value = word(&format!("env.{name}"), value)?;
        line.push_str(&format!(" -e {}", quote_word(&format!("{name}={value}"))));
    }
    line.push_str(&format!(" -- {}", quote_word(&command)));
    for (at, argument) in args.into_iter().enumerate() {
        line.push_str(&format!(
            " {}",
            quote_word(&word(&format!("args[{at}]"), argument)?)
        ));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use moongate_api::FoundSecret;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_line_quotes_what_a_shell_would_run() {
        let server = |settings: serde_json::Value, secrets: &[(&str, &str)]| FoundServer {
            name: "a".to_owned(),
            settings: settings.as_object().cloned().unwrap_or_default(),
            secrets: secrets
                .iter()
                .map(|(path, suggest)| FoundSecret {
                    path: (*path).to_owned(),
                    suggest: (*suggest).to_owned(),
                })
                .collect(),
            ..FoundServer::default()
        };
        let hostile = json!({ "command": "npx", "args": ["-y", "pkg; touch x $(id)", "it's"] });
        let line = r"moongate add a -- npx -y 'pkg; touch x $(id)' 'it'\''s'";
        assert_eq!(add_line(&server(hostile, &[])).as_deref(), Some(line));
        let secret = json!({ "command": "npx", "args": ["--token", "***"],
            "env": { "LEVEL": "a b", "KEY": "***" } });
        let secrets = [("args[1]", "A_SECRET"), ("env.KEY", "KEY")];
        let line = "moongate add a -e 'LEVEL=a b' -e 'KEY=${KEY}' -- npx --token '${A_SECRET}'";
        assert_eq!(add_line(&server(secret, &secrets)).as_deref(), Some(line));
        let part = json!({ "command": "npx", "args": ["--token=***"] });
        assert_eq!(add_line(&server(part, &[("args[0]", "X")])), None);
        assert_eq!(
            add_line(&server(json!({ "command": "npx", "cwd": "/x" }), &[])),
            None
        );
    }
}
