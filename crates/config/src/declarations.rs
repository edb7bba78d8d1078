//! Declarations of keys: facts about a key that aren't part of its value.
//!
//! Owns their meaning. Does not hold them: each is at its key, as an attribute that the schema
//! repeats (`limits`). Invariant: a key without one applies at once.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::schema::{ConfigSchema, SchemaRule};

/// Returns the keys whose change a running gateway cannot apply, such as `gateway.listen`.
pub fn restart_keys() -> BTreeSet<String> {
    let schema = ConfigSchema::read();
    let mut keys = BTreeSet::new();
    collect(schema.root(), "", &mut keys);
    keys
}

fn collect(rule: SchemaRule, path: &str, keys: &mut BTreeSet<String>) {
    for name in rule.keys().into_iter().flatten() {
        let path = if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        };
        let Some(rule) = rule.key(name) else { continue };
        if rule.needs_restart() {
            keys.insert(path.clone());
        }
        collect(rule, &path, keys);
    }
}

/// Names of the settings that differ between two tables.
pub fn differing_keys<T: Serialize>(one: &T, other: &T) -> Vec<String> {
    let one = values(one);
    let other = values(other);
    one.into_iter()
        .filter(|(name, value)| other.get(name) != Some(value))
        .map(|(name, _)| name)
        .collect()
}

/// Returns the settings of `new`, with the named ones as in `old`.
pub fn with_keys_of<'a, T: Clone + Serialize + DeserializeOwned>(
    new: &T,
    old: &T,
    names: impl Iterator<Item = &'a str>,
) -> T {
    let mut new_values = values(new);
    let mut old_values = values(old);
    for name in names {
        // The table may have keys that are not plain settings.
        if let Some(value) = old_values.remove(name) {
            new_values.insert(name.to_owned(), value);
        }
    }
    serde_json::from_value(Value::Object(new_values)).unwrap_or_else(|_| new.clone())
}

/// Settings by name. Each value is written in one way only, whatever the config has.
fn values<T: Serialize>(settings: &T) -> Map<String, Value> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    }
}
