//! Servers built from settings that no file has.
//!
//! Owns the way through the config's own reader, and how a text of an entry is read. Does not
//! convert the entries of other programs (`registry`, `remote_bridge`). Invariant: secrets are
//! masked as those of any file.

use std::path::Path;

use moongate_config::ParsedServer;
use serde_json::{Map, Value};

/// Returns the text under a key of an entry.
pub(super) fn text_of<'a>(settings: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    settings.get(key).and_then(Value::as_str)
}

/// Builds a server from settings as a client has them.
pub(super) fn entry(name: &str, settings: Map<String, Value>) -> ParsedServer {
    entry_below("mcpServers", name, settings)
}

/// Builds a server from settings that are converted already.
pub(super) fn converted_entry(name: &str, settings: Map<String, Value>) -> ParsedServer {
    // Below our own key, `$$` is one dollar sign.
    entry_below("servers", name, settings)
}

fn entry_below(wrapper: &str, name: &str, settings: Map<String, Value>) -> ParsedServer {
    // The config's own reader masks the secrets, as for any file.
    let file = serde_json::json!({ wrapper: { name: settings } }).to_string();
    let read = moongate_config::parse_servers(Path::new("own.json"), &file);
    let first = read.ok().and_then(|read| read.servers.into_iter().next());
    first.unwrap_or_else(|| ParsedServer {
        name: name.to_owned(),
        source_name: name.to_owned(),
        settings: Map::new(),
        masked: Map::new(),
        notes: vec!["it cannot be read".to_owned()],
        is_broken: true,
        needs_login: false,
    })
}
