//! Lines to copy into a shell.
//!
//! Owns their quoting, and the line that adds a found server. Does not run anything. Invariant: text of others is quoted,
//! so that a copied line runs no command of theirs.

use serde_json::Value;

use super::facts::{list, text};

/// Quotes a text for a shell.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a word for a shell, where it needs quotes.
fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { quote(word) }
}

/// Writes the command that adds a found program, with variables in the place of secrets. `None` if no command says all
/// of it.
pub(super) fn add_line(server: &Value) -> Option<String> {
    let settings = server["settings"].as_object()?;
    if settings.keys().any(|key| !matches!(key.as_str(), "command" | "args" | "env")) {
        return None;
    }
    // A secret is shown masked. Its variable stands for all of the value, or the line would say something else.
    let word = |path: &str, value: &Value| match list(server, "secrets").iter().find(|secret| secret["path"] == path) {
        None => value.as_str().map(str::to_owned),
        Some(secret) => (value == "***").then(|| format!("${{{}}}", text(secret, "suggest"))),
    };
    let mut line = format!("moongate add {}", quote_word(text(server, "name")));
    for (name, value) in settings.get("env").and_then(Value::as_object).into_iter().flatten() {
        let value = word(&format!("env.{name}"), value)?;
        line.push_str(&format!(" -e {}", quote_word(&format!("{name}={value}"))));
    }
    line.push_str(&format!(" -- {}", quote_word(settings["command"].as_str()?)));
    for (at, argument) in settings.get("args").and_then(Value::as_array).into_iter().flatten().enumerate() {
        line.push_str(&format!(" {}", quote_word(&word(&format!("args[{at}]"), argument)?)));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_line_quotes_what_a_shell_would_run() {
        let server = |settings: Value, secrets: Value| json!({ "name": "a", "settings": settings, "secrets": secrets });
        let hostile = json!({ "command": "npx", "args": ["-y", "pkg; touch x $(id)", "it's"] });
        let line = r"moongate add a -- npx -y 'pkg; touch x $(id)' 'it'\''s'";
        assert_eq!(add_line(&server(hostile, json!([]))).as_deref(), Some(line));
        let secret = json!({ "command": "npx", "args": ["--token", "***"], "env": { "LEVEL": "a b", "KEY": "***" } });
        let secrets = json!([{ "path": "args[1]", "suggest": "A_SECRET" }, { "path": "env.KEY", "suggest": "KEY" }]);
        let line = "moongate add a -e 'LEVEL=a b' -e 'KEY=${KEY}' -- npx --token '${A_SECRET}'";
        assert_eq!(add_line(&server(secret, secrets)).as_deref(), Some(line));
        let part = json!({ "command": "npx", "args": ["--token=***"] });
        assert_eq!(add_line(&server(part, json!([{ "path": "args[0]", "suggest": "X" }]))), None);
        assert_eq!(add_line(&server(json!({ "command": "npx", "cwd": "/x" }), json!([]))), None);
    }
}
