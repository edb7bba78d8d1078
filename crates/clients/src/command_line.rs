//! Command lines of clients that add a server.
//!
//! Owns the words, and their quotes for a POSIX shell. Does not run anything. Invariant: each word
//! reaches the command as it is, apart from the variable of a key, which the shell replaces.

use serde_json::{Map, Value};

use crate::entry::{ConnectKey, ConnectRequest, client_entry};
use crate::profile::ClientProfile;
use crate::template::TemplateValues;

/// Returns the command that adds the gateway to a client. `None` if the client has none for HTTP.
pub fn add_command(profile: &ClientProfile, request: &ConnectRequest) -> Option<String> {
    let template = profile.command?;
    // These commands add HTTP servers. A bridge is a program, which each client spells in its own
    // way.
    if request.is_bridged(profile) {
        return None;
    }
    let key = match &request.key {
        // The client reads the variable itself.
        Some(_) if request.variable(profile).is_some() => request.key_text(profile).ok()?,
        Some(ConnectKey::Value(key)) => Some(key.clone()),
        // The shell replaces it: the key does not show in the history.
        Some(ConnectKey::Variable { name, .. }) => Some(format!("{SHELL_MARK}{name}{SHELL_MARK}")),
        None => None,
    };
    let header = key
        .as_ref()
        .map(|key| format!("Authorization: Bearer {key}"));
    let pair = key
        .as_ref()
        .map(|key| format!("Authorization=Bearer {key}"));
    let named = match template.contains("{named}") {
        true => Some(named_entry(profile, request)?),
        false => None,
    };
    let values = [
        ("name", Some(request.name.as_str())),
        ("url", Some(request.url.as_str())),
        ("header", header.as_deref()),
        ("header_pair", pair.as_deref()),
        ("variable", request.variable(profile)),
        ("named", named.as_deref()),
    ];
    let values = TemplateValues(&values);
    let mut line: Vec<String> = Vec::new();
    let mut rest = template;
    while let Some((before, (group, after))) = rest
        .split_once('[')
        .and_then(|(before, rest)| Some((before, rest.split_once(']')?)))
    {
        line.extend(values.fill_words(before)?);
        match (values.fill_words(group), &request.key) {
            (Some(group), _) => line.extend(group),
            (None, None) => {}
            // The command has no word for such a key.
            (None, Some(_)) => return None,
        }
        rest = after;
    }
    line.extend(values.fill_words(rest)?);
    Some(
        line.iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(" "),
    )
}

/// Returns the entry as one JSON object with its name.
fn named_entry(profile: &ClientProfile, request: &ConnectRequest) -> Option<String> {
    // An input is defined only in the file.
    let keyless = ConnectRequest {
        key: request
            .key
            .clone()
            .filter(|_| request.input(profile).is_none()),
        ..request.clone()
    };
    let mut members = Map::from_iter([("name".to_owned(), Value::from(request.name.as_str()))]);
    members.extend(
        client_entry(profile, &keyless)
            .ok()?
            .as_object()
            .cloned()
            .unwrap_or_default(),
    );
    Some(Value::Object(members).to_string())
}

/// Mark around the name of a variable that the shell replaces. No word has it.
const SHELL_MARK: char = '\u{0}';

/// Quotes a word for a POSIX shell.
pub(crate) fn quoted(word: &str) -> String {
    if let [before, name, after] = word.split(SHELL_MARK).collect::<Vec<_>>()[..] {
        // The shell reads inside double quotes. Only our own header text is there, so nothing is
        // lost.
        let [before, after] = [before, after].map(|text| text.replace(['\\', '"', '$', '`'], ""));
        return format!("\"{before}${{{name}}}{after}\"");
    }
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    // Single quotes keep every other byte as it is, a dollar sign in a key included.
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// True for a character that means nothing to a shell.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::entry::ConnectRoute;
    use crate::start_command::StartCommand;
    use crate::table::client;

    fn line(id: &str, name: &str, key: Option<ConnectKey>) -> String {
        let url = "http://127.0.0.1:8080/mcp".to_owned();
        let start = StartCommand::program("/bin/moongate");
        let request = ConnectRequest {
            name: name.to_owned(),
            url,
            key,
            route: ConnectRoute::Best,
            start,
        };
        add_command(client(id).unwrap(), &request).unwrap_or_default()
    }

    fn key_value() -> Option<ConnectKey> {
        Some(ConnectKey::Value("mg_k'y".to_owned()))
    }

    fn key_variable() -> Option<ConnectKey> {
        Some(ConnectKey::Variable {
            name: "MOONGATE_KEY".to_owned(),
            value: None,
        })
    }

    #[test]
    fn lines_are_what_each_client_reads() {
        let url = "http://127.0.0.1:8080/mcp";
        for (id, name, key, expected) in [
            (
                "claude-code",
                "moongate",
                None,
                format!("claude mcp add --transport http --scope user moongate {url}"),
            ),
            (
                "claude-code",
                "my gate",
                key_value(),
                format!(
                    "claude mcp add --transport http --scope user 'my gate' {url} \
                     --header 'Authorization: Bearer mg_k'\\''y'"
                ),
            ),
            (
                "claude-code",
                "moongate",
                key_variable(),
                format!(
                    "claude mcp add --transport http --scope user moongate {url} \
                     --header 'Authorization: Bearer ${{MOONGATE_KEY}}'"
                ),
            ),
            (
                "factory",
                "moongate",
                key_variable(),
                format!(
                    "droid mcp add moongate {url} --type http --header \"Authorization: Bearer \
                     ${{MOONGATE_KEY}}\""
                ),
            ),
            ("codex", "moongate", key_value(), String::new()),
            (
                "codex",
                "moongate",
                None,
                format!("codex mcp add moongate --url {url}"),
            ),
            (
                "codex",
                "moongate",
                key_variable(),
                format!("codex mcp add moongate --url {url} --bearer-token-env-var MOONGATE_KEY"),
            ),
            (
                "vscode",
                "moongate",
                key_variable(),
                format!(r#"code --add-mcp '{{"name":"moongate","type":"http","url":"{url}"}}'"#),
            ),
            ("cursor", "moongate", None, String::new()),
            ("claude-desktop", "moongate", None, String::new()),
        ] {
            assert_eq!(line(id, name, key), expected, "{id}");
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("a-b", "a-b"),
            ("", "''"),
            ("a b", "'a b'"),
            ("a'b", r"'a'\''b'"),
            ("$x", "'$x'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
