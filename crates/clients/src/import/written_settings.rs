//! Settings of an imported server as they are written into our config.
//!
//! Owns their order, and the choice of what says nothing. Does not read or write files. Invariant:
//! a server means the same with and without what is left out.

use serde_json::{Map, Value};

/// Keys in the order in which people write them. All others follow.
const FIRST_KEYS: [&str; 8] = [
    "title", "type", "url", "command", "args", "cwd", "headers", "env",
];

/// Returns settings in the order in which people write them, without those that say nothing.
pub fn written_settings(settings: &Map<String, Value>) -> Map<String, Value> {
    let mut members: Vec<(&String, &Value)> = settings
        .iter()
        .filter(|(key, value)| says_more(key, value, settings))
        .collect();
    // The sort is stable: the others keep the order of their names.
    members.sort_by_key(|(key, _)| key_position(key));
    members
        .into_iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn key_position(key: &str) -> usize {
    FIRST_KEYS
        .iter()
        .position(|first| *first == key)
        .unwrap_or(FIRST_KEYS.len())
}

/// Returns false for what some clients write into each entry: a type that the command implies, and
/// empty lists and tables.
fn says_more(key: &str, value: &Value, settings: &Map<String, Value>) -> bool {
    match key {
        "type" => value != "stdio" || !settings.contains_key("command"),
        "args" => value.as_array().is_none_or(|args| !args.is_empty()),
        "headers" | "env" => value.as_object().is_none_or(|members| !members.is_empty()),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_says_nothing_is_left_out_and_the_rest_is_in_order() {
        for (found, written) in [
            (
                json!({ "args": [], "command": "x", "env": {}, "type": "stdio" }),
                json!({ "command": "x" }),
            ),
            (
                json!({ "env": { "A": "1" }, "args": ["a"], "command": "x" }),
                json!({ "command": "x", "args": ["a"], "env": { "A": "1" } }),
            ),
            // Without it, a server is asked for both transports of HTTP.
            (
                json!({ "url": "http://a.example", "type": "http", "headers": {} }),
                json!({ "type": "http", "url": "http://a.example" }),
            ),
            // The config says what is wrong with it.
            (
                json!({ "url": "http://a.example", "type": "stdio" }),
                json!({ "type": "stdio", "url": "http://a.example" }),
            ),
        ] {
            let ours = written_settings(found.as_object().unwrap());
            assert_eq!(Value::Object(ours).to_string(), written.to_string());
        }
    }
}
