//! JSON Schemas of tools, as far as a signature and the index need them.
//!
//! Owns parsing and local references. Does not validate. Invariant: no reference is followed more
//! than `MAX_REFERENCES` times in a row.

use serde_json::Value;

/// Largest schema that is read, in bytes.
const MAX_SCHEMA: usize = 256 * 1024;
/// References in a row.
const MAX_REFERENCES: usize = 8;

/// Parses a schema, with its properties in their order. `None` if it is too large or no JSON.
pub(crate) fn parse_schema(text: &str) -> Option<Value> {
    if text.len() > MAX_SCHEMA {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Follows local references, such as `#/$defs/Issue`. Those that lead nowhere stay as they are.
pub(crate) fn resolve<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..MAX_REFERENCES {
        let target = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|path| path.strip_prefix('#'));
        match target.and_then(|path| root.pointer(path)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Properties of an object schema, in their order.
pub(crate) fn object_properties<'a>(
    root: &'a Value,
    schema: &'a Value,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    resolve(root, schema)
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}
