//! Order of an imported server's settings in our config.
//!
//! Owns the order. Does not read or write files. Invariant: no setting is lost or changed.

use serde_json::{Map, Value};

/// Keys in the order in which people write them. All others follow.
const FIRST_KEYS: [&str; 8] = ["title", "type", "url", "command", "args", "cwd", "headers", "env"];

/// Returns settings in the order in which people write them.
pub fn ordered_settings(settings: &Map<String, Value>) -> Map<String, Value> {
    let rank = |key: &str| FIRST_KEYS.iter().position(|first| *first == key).unwrap_or(FIRST_KEYS.len());
    let mut members: Vec<(&String, &Value)> = settings.iter().collect();
    // The sort is stable: the others keep the order of their names.
    members.sort_by_key(|(key, _)| rank(key));
    members.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}
