//! Clients whose config files Moongate reads, and the marks of their formats.
//!
//! Owns the table of clients: units of numbers, and styles of references. Does not rewrite
//! anything. Invariant: an unknown client's file is not guessed at: numbers have no unit, and only
//! `${...}` is a reference.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::tree::{ConfigNode, ConfigValue};

/// Unit of a number in a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
}

/// Style of references, besides `${...}`, that a client replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReferenceStyle {
    /// `$NAME`
    Dollar,
    /// `$(echo $NAME)` and `$(cat FILE)`. Other commands are not run.
    Shell,
    /// `%NAME%`
    Percent,
    /// `{env:NAME}` and `{file:PATH}`
    Braces,
    /// `${{ secrets.NAME }}`
    Secrets,
    /// `{{NAME}}`, which differs for each user.
    PerUser,
    /// `$$` for a dollar sign. Only our own format has it.
    Escaped,
}

/// Format of a client's config file.
#[derive(Debug, PartialEq)]
pub(super) struct ClientFormat {
    /// Name of the client in messages.
    pub(super) title: &'static str,
    /// Unit of a number as `timeout`. `None` if the config must name one.
    pub(super) unit: Option<TimeUnit>,
    /// References that the client replaces.
    pub(super) references: &'static [ReferenceStyle],
}

const fn format(
    title: &'static str,
    unit: Option<TimeUnit>,
    references: &'static [ReferenceStyle],
) -> ClientFormat {
    ClientFormat {
        title,
        unit,
        references,
    }
}

use ReferenceStyle::{Braces, Dollar, Escaped, PerUser, Percent, Secrets, Shell};
use TimeUnit::{Milliseconds, Seconds};

/// Moongate's own format.
pub(super) const OWN: ClientFormat = format("Moongate", None, &[]);
/// Format that most clients share.
pub(super) const SHARED: ClientFormat = format("the client", None, &[]);
pub(super) const CLAUDE_CODE: ClientFormat = format("Claude Code", Some(Milliseconds), &[]);
pub(super) const VS_CODE: ClientFormat = format("VS Code", None, &[]);
/// Format of a JSON file with nothing but `servers`, which may be ours or an editor's.
pub(super) const SERVERS: ClientFormat = format("VS Code", None, &[Escaped]);
pub(super) const CODEX: ClientFormat = format("Codex", Some(Seconds), &[]);
pub(super) const VIBE: ClientFormat = format("Vibe", Some(Seconds), &[]);
pub(super) const ZED: ClientFormat = format("Zed", None, &[]);
pub(super) const GOOSE: ClientFormat = format("Goose", Some(Seconds), &[Dollar]);
pub(super) const LIST: ClientFormat = format("Continue", None, &[Secrets]);
pub(super) const GEMINI: ClientFormat =
    format("Gemini CLI", Some(Milliseconds), &[Dollar, Percent]);
pub(super) const OPENCODE: ClientFormat = format("OpenCode", Some(Milliseconds), &[Braces]);
pub(super) const CRUSH: ClientFormat = format("Crush", Some(Seconds), &[Shell, Dollar]);
pub(super) const AMP: ClientFormat = format("Amp", None, &[]);
pub(super) const CLINE: ClientFormat = format("Cline", Some(Seconds), &[]);
pub(super) const ROO: ClientFormat = format("Roo", Some(Seconds), &[]);
pub(super) const AMAZON_Q: ClientFormat = format("Amazon Q", Some(Milliseconds), &[]);
pub(super) const LIBRECHAT: ClientFormat = format("LibreChat", Some(Milliseconds), &[PerUser]);
pub(super) const FIVE_IRE: ClientFormat = format("5ire", None, &[]);
pub(super) const WITSY: ClientFormat = format("Witsy", None, &[]);

/// Parts of a file's path that identify its client.
const PATHS: [(&str, &ClientFormat); 14] = [
    ("/.claude.json", &CLAUDE_CODE),
    // Copilot CLI reads it, too, with the same unit.
    ("/.mcp.json", &CLAUDE_CODE),
    ("cline_mcp_settings.json", &CLINE),
    ("/.cline/", &CLINE),
    ("mcp_settings.json", &ROO),
    ("/.roo/", &ROO),
    ("/.kilocode/", &ROO),
    ("/.gemini/settings.json", &GEMINI),
    ("/.qwen/settings.json", &GEMINI),
    ("/amazonq/", &AMAZON_Q),
    ("/.amazonq/", &AMAZON_Q),
    ("librechat.yaml", &LIBRECHAT),
    ("librechat.yml", &LIBRECHAT),
    ("crush.json", &CRUSH),
];

/// Keys of an entry that only one client has.
const ENTRY_KEYS: [(&str, &ClientFormat); 10] = [
    ("httpUrl", &GEMINI),
    ("trust", &GEMINI),
    ("includeTools", &GEMINI),
    ("excludeTools", &GEMINI),
    ("alwaysAllow", &ROO),
    ("watchPaths", &ROO),
    ("chatMenu", &LIBRECHAT),
    ("serverInstructions", &LIBRECHAT),
    ("customUserVars", &LIBRECHAT),
    ("startup", &LIBRECHAT),
];

/// Identifies the client by the path of its file.
pub(super) fn by_path(path: Option<&Path>) -> Option<&'static ClientFormat> {
    // The slash in front lets a part such as `/.roo/` match a relative path, too.
    let path = format!("/{}", path?.to_string_lossy().replace('\\', "/"));
    PATHS
        .iter()
        .find(|(part, _)| path.contains(part))
        .map(|(_, format)| *format)
}

/// Identifies the client by the keys of its entries.
pub(super) fn by_entries(map: &BTreeMap<String, ConfigNode>) -> Option<&'static ClientFormat> {
    // Only Cline writes `streamableHttp`. Its numbers are seconds.
    let cline = map.values().any(|entry| {
        entry.child("type").and_then(ConfigNode::as_text) == Some("streamableHttp")
            && entry.child("autoApprove").is_some()
    });
    // The order of the table decides where an entry has keys of two clients.
    let known = ENTRY_KEYS
        .iter()
        .find(|(key, _)| has_entry_with(map, key))
        .map(|(_, format)| *format);
    known.or(cline.then_some(&CLINE))
}

fn has_entry_with(map: &BTreeMap<String, ConfigNode>, key: &str) -> bool {
    map.values()
        .filter_map(ConfigNode::as_table)
        .any(|entry| entry.contains_key(key))
}

/// Identifies the client of an `mcp` table with a server for each key.
pub(super) fn of_mcp_table(
    map: &BTreeMap<String, ConfigNode>,
    path: Option<&Path>,
) -> &'static ClientFormat {
    let types = ["stdio", "http", "sse"];
    // Crush and OpenCode share the key. Only Crush has these types and `disabled_tools`.
    let crush = map.values().any(|entry| {
        let kind = entry.child("type").and_then(ConfigNode::as_text);
        kind.is_some_and(|kind| types.contains(&kind)) || entry.child("disabled_tools").is_some()
    });
    by_path(path).unwrap_or(if crush { &CRUSH } else { &OPENCODE })
}

/// True if a table says how to reach a server.
pub(super) fn is_server(node: &ConfigNode) -> bool {
    const WAYS: [&str; 10] = [
        "url",
        "command",
        "cmd",
        "uri",
        "serverUrl",
        "httpUrl",
        "server_url",
        "http_url",
        "baseUrl",
        "tcp",
    ];
    let Some(table) = node.as_table() else {
        return false;
    };
    WAYS.iter()
        .any(|way| table.get(*way).is_some_and(may_be_address))
        || table
            .get("unix")
            .is_some_and(|node| node.as_text().is_some())
}

fn may_be_address(node: &ConfigNode) -> bool {
    matches!(
        node.value,
        ConfigValue::Text(_) | ConfigValue::List(_) | ConfigValue::Table(_)
    )
}
