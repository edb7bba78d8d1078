//! Servers of one file, in our words.
//!
//! Owns what an import needs: each server's settings as values that a config file may have. Does
//! not replace references and does not merge files. Invariant: each setting is one that the config
//! accepts, or is named in a note.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::collector::ProblemCollector;
use super::load::before;
use super::problem::{ConfigProblem, ConfigProblems, ProblemKind};
use super::schema::ConfigSchema;
use super::source::{ConfigSources, FileFormat};
use super::tree::{ConfigNode, ConfigPath, ConfigValue, SourceSpan};
use super::{check, client_formats, parse, redact};

/// Keys without which an entry would be another server.
const IDENTIFYING: [&str; 6] = ["url", "command", "args", "unix", "tcp", "type"];

/// Levels of a file down to the names of its servers: `mcp.servers.NAME` is the deepest form.
const NAMES_DEPTH: usize = 3;

/// Server of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedServer {
    /// Name, legal in our config.
    pub name: String,
    /// Name in the file, as its client spells it.
    pub source_name: String,
    /// Settings in our words, with references as they are written.
    pub settings: Map<String, Value>,
    /// Settings with secrets as `***`.
    pub masked: Map<String, Value>,
    /// Facts about what was left out, and problems that keep the server from being used.
    pub notes: Vec<String>,
    /// True if the server cannot be used.
    pub is_broken: bool,
    /// True if the client logged in on its own for this entry, which is the gateway's job from now
    /// on.
    pub needs_login: bool,
}

impl ParsedServer {
    /// Returns its URL, its command or its socket, without secrets.
    pub fn target(&self) -> String {
        let args = self
            .masked
            .get("args")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        match (self.masked_text("url"), self.masked_text("command")) {
            (Some(url), _) => url.to_owned(),
            (None, Some(command)) => std::iter::once(command)
                .chain(args)
                .collect::<Vec<_>>()
                .join(" "),
            (None, None) => self
                .masked_text("unix")
                .or_else(|| self.masked_text("tcp"))
                .unwrap_or_default()
                .to_owned(),
        }
    }

    fn masked_text(&self, key: &str) -> Option<&str> {
        self.masked.get(key).and_then(Value::as_str)
    }

    /// Returns the secret texts of the settings.
    pub fn secrets(&self) -> Vec<&str> {
        let mut found = Vec::new();
        self.settings
            .iter()
            .for_each(|(key, value)| secrets(value, self.masked.get(key), &mut found));
        found
    }
}

fn secrets<'a>(value: &'a Value, masked: Option<&Value>, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if masked.and_then(Value::as_str) != Some(text) => found.push(text),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(i, item)| secrets(item, masked.and_then(|list| list.get(i)), found));
        }
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            secrets(value, masked.and_then(|table| table.get(key)), found)
        }),
        _ => {}
    }
}

/// Servers of a file, and warnings about the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedServers {
    /// Servers, by name.
    pub servers: Vec<ParsedServer>,
    /// Warnings about the file as a whole.
    pub warnings: Vec<ConfigProblem>,
    /// Key of the file that holds the servers, if it has one.
    pub wrapper: Option<&'static str>,
}

/// Reads the servers of a file's text: of our own format, or of any client's. Fails if the text
/// does not parse.
///
/// `path` shows the format by its extension, and often the client.
pub fn parse_servers(path: &Path, text: &str) -> Result<ParsedServers, ConfigProblems> {
    // Editors on Windows start files with a byte order mark, which no parser here accepts.
    let text = text.trim_start_matches('\u{feff}').to_owned();
    // Each key of each server is checked by the schema.
    let _schema = ConfigSchema::keep();
    let mut faults = ProblemCollector::default();
    let mut sources = ConfigSources::default();
    let index = sources.file(path, text.clone());
    // Most clients' files are JSON, whatever they are called.
    let format = FileFormat::of(path).unwrap_or(FileFormat::Json);
    // A file that was created and not written yet has no servers, and JSON has no empty text.
    let mut tree = match text.trim().is_empty() {
        true => ConfigNode::table(SourceSpan {
            source: index,
            start: 0,
            end: 0,
        }),
        false => parse::parse(format, &text, index, &mut faults),
    };
    // The secrets are taken from the tree as it was written: the next steps move and rename keys.
    // Even a syntax error shows a line, and that line may have a key in it.
    sources.set_secrets(index, &tree);
    if faults
        .errors
        .iter()
        .any(|fault| fault.kind == ProblemKind::Syntax)
    {
        return Err(faults.finish(&sources));
    }
    let wrappers = ["servers", "mcp"]
        .into_iter()
        .chain(client_formats::SERVER_MAPS);
    // Looked up before the tree is normalised, which moves the servers away from that key.
    let wrapper = wrappers.into_iter().find(|key| tree.child(key).is_some());
    // Read before the names become legal: an entry keeps the span of its key.
    let mut source_names = BTreeMap::new();
    collect_names(&tree, NAMES_DEPTH, &mut source_names);
    client_formats::normalise(&mut tree, Some(path), &mut faults);
    let problems = faults.finish(&sources);
    let (of_servers, warnings): (Vec<_>, Vec<_>) = problems
        .warnings
        .into_iter()
        .partition(|warning| warning.server.is_some());
    let mut messages = by_server(&problems.errors);
    let mut remarks = by_server(&of_servers);
    let mut servers = Vec::new();
    for (name, node) in tree
        .child("servers")
        .and_then(ConfigNode::as_table)
        .into_iter()
        .flatten()
    {
        let mut notes = messages.remove(name.as_str()).unwrap_or_default();
        let was_broken = !notes.is_empty();
        notes.extend(remarks.remove(name.as_str()).unwrap_or_default());
        // One bad setting is left out and noted, so that it does not cost the user the whole
        // server.
        let (kept, is_usable) = accepted(name, node, &mut notes);
        let path = ConfigPath::of(&["servers", name]);
        let masked = kept.to_json(&|below, node| {
            let full = ConfigPath([&path.0[..], &below.0[..]].concat());
            redact::masked_node(&full, node, before(&kept, below), "***")
        });
        servers.push(ParsedServer {
            name: name.clone(),
            source_name: source_names.get(&node.key.start).unwrap_or(name).clone(),
            settings: members(kept.to_json(&|_, _| None)),
            masked: members(masked),
            notes,
            is_broken: was_broken || !is_usable,
            needs_login: logs_in(&kept),
        });
    }
    Ok(ParsedServers {
        servers,
        warnings,
        wrapper,
    })
}

/// True if an entry has the settings of a login that a person makes.
fn logs_in(server: &ConfigNode) -> bool {
    let auth = server.child("auth");
    let kind = auth.map(|auth| auth.child("type").and_then(ConfigNode::as_text));
    kind.is_some_and(|kind| matches!(kind, None | Some("oauth")))
}

/// Sorts messages by the servers that they are about.
fn by_server(problems: &[ConfigProblem]) -> BTreeMap<&str, Vec<String>> {
    let mut messages: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for problem in problems {
        messages
            .entry(problem.server.as_deref().unwrap_or_default())
            .or_default()
            .push(problem.message.clone());
    }
    messages
}

/// Reads the servers of a file's text in our words, with all that their entries have, right or
/// wrong. References stay. A text that does not parse has no servers.
pub(crate) fn written_servers(path: &Path, text: &str) -> BTreeMap<String, Map<String, Value>> {
    let mut faults = ProblemCollector::default();
    let format = FileFormat::of(path).unwrap_or(FileFormat::Json);
    let mut tree = parse::parse(format, text.trim_start_matches('\u{feff}'), 0, &mut faults);
    client_formats::normalise(&mut tree, Some(path), &mut faults);
    let servers = tree
        .child("servers")
        .and_then(ConfigNode::as_table)
        .into_iter()
        .flatten();
    servers
        .map(|(name, node)| (name.clone(), members(node.to_json(&|_, _| None))))
        .collect()
}

/// Collects the names of tables and named items, by the spans of their keys.
fn collect_names(node: &ConfigNode, depth: usize, names: &mut BTreeMap<usize, String>) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    match &node.value {
        ConfigValue::Table(table) => {
            for (name, child) in table {
                names.insert(child.key.start, name.clone());
                collect_names(child, depth, names);
            }
        }
        ConfigValue::List(items) => {
            names.extend(items.iter().filter_map(|item| {
                Some((item.key.start, item.child("name")?.as_text()?.to_owned()))
            }))
        }
        _ => {}
    }
}

/// Keeps the settings of an entry that the config accepts. Returns whether those that identify the
/// server are among them.
fn accepted(name: &str, node: &ConfigNode, notes: &mut Vec<String>) -> (ConfigNode, bool) {
    let mut kept = node.clone();
    let mut is_usable = true;
    let schema = ConfigSchema::read();
    let keys = schema
        .root()
        .key("servers")
        .and_then(|rule| rule.key(name))
        .and_then(|rule| rule.keys());
    let keys = keys.unwrap_or_default();
    let Some(table) = kept.as_table_mut() else {
        return (kept, false);
    };
    table.retain(|key, value| {
        if !keys.contains(&key.as_str()) {
            notes.push(format!("`{key}` is not supported and is ignored"));
            return false;
        }
        let is_fine = check::accepts_setting(name, key, value);
        if !is_fine && IDENTIFYING.contains(&key.as_str()) {
            is_usable = false;
            notes.push(format!("`{key}` has an invalid value"));
        } else if !is_fine {
            notes.push(format!("the value of `{key}` is invalid, so it is ignored"));
        }
        is_fine
    });
    (kept, is_usable)
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn entries(path: &str, text: &str) -> Vec<ParsedServer> {
        parse_servers(Path::new(path), text).unwrap().servers
    }

    #[test]
    fn a_client_s_servers_come_in_our_words_with_their_references() {
        let text = r#"{"mcpServers": {"My Server": {"command": "npx -y x", "env": {"A": "$TOKEN"}, "trust": true,
            "timeout": 600000, "excludeTools": ["rm"], "oauth": {"x": 1}}}}"#;
        let found = entries("/home/ada/.gemini/settings.json", text);
        assert_eq!(found[0].name, "My-Server");
        assert_eq!(found[0].source_name, "My Server");
        let settings = json!({"args": ["-y", "x"], "command": "npx", "env": {"A": "${TOKEN}"},
            "timeout": "600s", "tools": {"deny": ["rm"]}});
        assert_eq!(Value::Object(found[0].settings.clone()), settings);
        assert!(
            !found[0].is_broken && found[0].notes[0].contains("oauth`"),
            "{:?}",
            found[0].notes
        );
    }

    #[test]
    fn a_login_of_a_client_becomes_ours_with_its_secret_masked() {
        let text = r#"{"mcpServers": {"a": {"url": "https://a.example/mcp", "auth":
            {"CLIENT_ID": "x", "CLIENT_SECRET": "hush", "redirectUri": "cursor://x"}}}}"#;
        let found = entries("/home/ada/.cursor/mcp.json", text);
        let auth = json!({"client_id": "x", "client_secret": "hush"});
        assert_eq!(found[0].settings["auth"], auth);
        let masked = json!({"client_id": "x", "client_secret": "***"});
        assert_eq!(found[0].masked["auth"], masked);
        assert!(found[0].needs_login);
        let note = &found[0].notes[0];
        assert!(
            note.contains("`redirectUri`") && !note.contains("hush"),
            "{note}"
        );
    }

    #[test]
    fn of_two_logins_one_is_used_and_said_to_be() {
        let text = r#"{"mcpServers": {"a": {"url": "https://a.example/mcp",
            "oauth": {"clientId": "x"}, "auth": {"clientId": "y", "clientSecret": "hush"}}}}"#;
        let found = entries("/home/ada/.cursor/mcp.json", text);
        assert_eq!(found[0].settings["auth"], json!({"client_id": "x"}));
        let notes = &found[0].notes;
        let used: Vec<&String> = notes.iter().filter(|n| n.contains("own login")).collect();
        assert!(used.len() == 1 && used[0].contains("oauth`"), "{notes:?}");
    }

    #[test]
    fn a_client_s_credential_or_program_has_no_login() {
        for entry in [
            r#""url": "https://a.example/", "headers": {"authorization": "Bearer ${T}"}"#,
            r#""command": "a""#,
        ] {
            let login = r#""oauth": {"clientId": "x"}"#;
            let text = format!(r#"{{"mcpServers": {{"a": {{{entry}, {login}}}}}}}"#);
            let found = entries("/home/ada/.cursor/mcp.json", &text);
            assert!(!found[0].settings.contains_key("auth"), "{entry}");
            assert!(!found[0].needs_login && !found[0].is_broken, "{entry}");
        }
    }

    #[test]
    fn only_a_time_lacks_the_unit_of_a_time() {
        let text = r#"{"mcpServers": {"a": {"command": "a", "timeout": 30, "retry": 3, "queue": -1, "icon": 5,
            "max_message": 1}}}"#;
        let found = entries("mcp.json", text);
        assert!(note_of(&found[0], "timeout").contains("without a unit"));
        for key in ["retry", "queue", "icon"] {
            let note = note_of(&found[0], key);
            assert!(note.contains("does not support"), "{note}");
        }
        assert!(!note_of(&found[0], "max_message").contains("60s"));
    }

    fn note_of<'a>(server: &'a ParsedServer, key: &str) -> &'a str {
        let mut notes = server.notes.iter();
        notes
            .find(|note| note.contains(&format!("{key}`")))
            .unwrap()
    }

    #[test]
    fn secrets_are_masked_and_unusable_entries_say_so() {
        let text = r#"{"mcpServers": {"a": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer s3"},
            "timeout": 30}, "b": {"url": 5}}}"#;
        let found = entries("mcp.json", text);
        assert_eq!(found[0].masked["headers"], json!({"Authorization": "***"}));
        assert_eq!(
            found[0].settings["headers"],
            json!({"Authorization": "Bearer s3"})
        );
        assert_eq!(found[0].secrets(), ["Bearer s3"]);
        assert!(found[0].notes[0].contains("timeout`") && !found[0].is_broken);
        let timed = entries(
            "/home/ada/.claude.json",
            r#"{"mcpServers": {"a": {"command": "a", "timeout": 60000}}}"#,
        );
        assert_eq!(timed[0].settings["timeout"], "60s");
        assert!(found[1].is_broken, "{:?}", found[1]);
        assert!(entries("x.json", "").is_empty() && entries("x.toml", "# nothing\n").is_empty());
        assert!(parse_servers(Path::new("x.json"), "{").is_err());
        for (path, text) in [
            (
                "x.json",
                r#"{"mcp": {"servers": {"a.b": {"command": "x"}}}}"#,
            ),
            ("x.json", r#"{"\u0061.b": {"command": "x"}}"#),
            ("x.toml", "[mcp_servers.'a.b']\ncommand = 'x'\n"),
            ("x.toml", "mcp_servers.'a.b'.command = 'x'\n"),
            ("x.toml", "[[mcp_servers]]\nname = 'a.b'\ncommand = 'x'\n"),
            ("x.yaml", "mcpServers:\n  - name: a.b\n    command: x\n"),
            ("x.yaml", "extensions:\n  a.b: {type: stdio, cmd: x}\n"),
        ] {
            let found = entries(path, text);
            assert_eq!(found[0].name, "a-b", "{text}");
            assert_eq!(found[0].source_name, "a.b", "{text}");
        }
        for (path, text, wrapper) in [
            ("x.json", r#"{"mcpServers":{}}"#, "mcpServers"),
            ("x.toml", "[servers.a]\nurl = 'http://a'\n", "servers"),
        ] {
            let parsed = parse_servers(Path::new(path), text).unwrap();
            assert_eq!(parsed.wrapper, Some(wrapper), "{path}");
        }
    }
}
