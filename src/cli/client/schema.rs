//! Reading a JSON Schema as far as people need it: which arguments there are, and of which type.
//!
//! Does not validate: that is the server's business. Invariant: reading ends, whatever the schema refers to.

use crate::json::{Object, Raw, Text};

/// References and alternatives are followed this deep.
const DEPTH: usize = 8;

/// An argument of a tool or prompt.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: Text,
    /// The types it may have; empty: any, or not said.
    pub(super) types: Vec<String>,
    pub(super) required: bool,
    pub(super) description: Option<Text>,
    pub(super) default: Option<Raw>,
    pub(super) choices: Vec<Raw>,
}

/// The arguments that an input schema lists, in its order.
pub(super) fn arguments(schema: &Object) -> Vec<Argument> {
    let required: Vec<Text> = texts(schema.get("required"));
    let properties = schema.object("properties").unwrap_or_default();
    let argument = |(name, raw): (&Text, &Raw)| {
        let property = resolve(schema, raw.as_object().unwrap_or_default());
        Argument {
            types: types(schema, &property, DEPTH),
            required: required.contains(name),
            description: property.text("description"),
            default: property.get("default").cloned(),
            choices: choices(&property),
            name: name.clone(),
        }
    };
    properties.iter().map(argument).collect()
}

/// The arguments that a prompt lists: strings, all of them.
pub(super) fn prompt_arguments(prompt: &Object) -> Vec<Argument> {
    let listed = prompt.get("arguments").and_then(Raw::as_array).unwrap_or_default();
    let argument = |raw: Raw| {
        let argument = raw.as_object()?;
        Some(Argument {
            name: argument.text("name")?,
            types: Vec::new(),
            required: argument.get("required").is_some_and(is_true),
            description: argument.text("description"),
            default: None,
            choices: Vec::new(),
        })
    };
    listed.into_iter().filter_map(argument).collect()
}

/// The types that a property may have, as far as the schema says.
pub(super) fn types_of(schema: &Object, property: &str) -> Vec<String> {
    let property = schema.object("properties").and_then(|properties| properties.object(property));
    property.map(|property| types(schema, &property, DEPTH)).unwrap_or_default()
}

/// The values that a schema allows, if it lists them.
pub(super) fn choices(schema: &Object) -> Vec<Raw> {
    let listed = schema.get("enum").and_then(Raw::as_array);
    listed.or_else(|| Some(vec![schema.get("const")?.clone()])).unwrap_or_default()
}

/// Whether a value is of a type, as schemas name them.
pub(super) fn is_a(value: &Raw, name: &str) -> bool {
    let number = || value.read::<serde_json::Number>().is_ok();
    match name {
        "number" => number(),
        // Too large for any number of ours is still an integer.
        "integer" => {
            let whole = |f: f64| f.fract() == 0.0;
            number() && (value.bytes().iter().all(|b| b"-0123456789".contains(b)) || value.read().is_ok_and(whole))
        }
        "boolean" => value.read::<bool>().is_ok(),
        "object" => value.is_object(),
        "array" => value.bytes().first() == Some(&b'['),
        "string" => value.bytes().first() == Some(&b'"'),
        "null" => value.is_null(),
        _ => false,
    }
}

/// Whether a member is `true`.
pub(super) fn is_true(raw: &Raw) -> bool {
    &raw.bytes()[..] == b"true"
}

/// The strings of an array.
pub(super) fn texts(array: Option<&Raw>) -> Vec<Text> {
    array.and_then(Raw::as_array).unwrap_or_default().iter().filter_map(Raw::as_text).collect()
}

fn types(root: &Object, schema: &Object, depth: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut add = |name: String| {
        if !out.contains(&name) {
            out.push(name);
        }
    };
    let Some(depth) = depth.checked_sub(1) else { return out };
    let schema = resolve(root, schema.clone());
    match schema.get("type") {
        Some(one) if one.as_text().is_some() => one.as_text().into_iter().for_each(|name| add(name.to_string())),
        several => texts(several).iter().for_each(|name| add(name.to_string())),
    }
    for branches in ["anyOf", "oneOf", "allOf"] {
        for branch in schema.get(branches).and_then(Raw::as_array).unwrap_or_default() {
            types(root, &branch.as_object().unwrap_or_default(), depth).into_iter().for_each(&mut add);
        }
    }
    if out.is_empty() {
        const NAMES: [&str; 5] = ["string", "integer", "number", "boolean", "null"];
        let name = |raw: &Raw| NAMES.iter().find(|name| is_a(raw, name)).map(|name| (*name).to_owned());
        for found in choices(&schema).iter().filter_map(name) {
            if !out.contains(&found) {
                out.push(found);
            }
        }
    }
    out
}

/// What `$ref` points to within the schema; what stands beside it counts more.
fn resolve(root: &Object, mut schema: Object) -> Object {
    for _ in 0..DEPTH {
        let Some(target) = schema.remove("$ref").and_then(|raw| raw.as_text()) else { break };
        let Some(found) = target.strip_prefix("#/").and_then(|path| at(root, path)) else { break };
        for (key, value) in found.iter() {
            if schema.get(key).is_none() {
                schema.set(key.clone(), value.clone());
            }
        }
    }
    schema
}

fn at(root: &Object, path: &str) -> Option<Object> {
    let step = |object: Object, name: &str| object.object(&name.replace("~1", "/").replace("~0", "~"));
    path.split('/').try_fold(root.clone(), step)
}
