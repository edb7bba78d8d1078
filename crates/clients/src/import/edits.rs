//! Edits of our config that add servers.
//!
//! Owns the place and the order of an imported server's settings. Does not read or write files. Invariant: each edit
//! adds a server, and none replaces one.

use moongate_config::ServerEntry;
use moongate_edit::{Edit, EditAction, PathStep};
use serde_json::{Map, Value};

/// Keys in the order in which people write them. All others follow.
const FIRST_KEYS: [&str; 8] = ["title", "type", "url", "command", "args", "cwd", "headers", "env"];

/// Returns the edits that add servers below a key: `servers`, or the wrapper of a client's format.
pub fn import_edits<'a>(wrapper: &str, servers: impl IntoIterator<Item = &'a ServerEntry>) -> Vec<Edit> {
    let edit = |server: &ServerEntry| {
        let path = [PathStep::from(wrapper), PathStep::from(server.name.as_str())];
        Edit::new(path, EditAction::Set(Value::Object(ordered_settings(&server.settings))))
    };
    servers.into_iter().map(edit).collect()
}

/// Returns settings in the order in which people write them.
pub fn ordered_settings(settings: &Map<String, Value>) -> Map<String, Value> {
    let rank = |key: &str| FIRST_KEYS.iter().position(|first| *first == key).unwrap_or(FIRST_KEYS.len());
    let mut members: Vec<(&String, &Value)> = settings.iter().collect();
    // The sort is stable: the others keep the order of their names.
    members.sort_by_key(|(key, _)| rank(key));
    members.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}
