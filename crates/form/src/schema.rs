//! JSON Schema of arguments, as far as people need it: names, types and choices. Owns the walk
//! through references.
//!
//! Does not validate: the server does. Invariant: the walk ends, whatever the schema refers to.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Maximum depth of references and alternatives that are followed.
const DEPTH: usize = 8;

/// Argument of a tool or prompt.
#[derive(Debug)]
pub struct SchemaArgument {
    /// Name.
    pub name: ByteString,
    /// Allowed types. Empty if any type is, or none is named.
    pub types: Vec<String>,
    /// True if it must be given.
    pub required: bool,
    /// Text about it.
    pub description: Option<ByteString>,
    /// Default.
    pub default: Option<RawJson>,
    /// Values that it may have. Empty if any value of its type may be given.
    pub choices: Vec<RawJson>,
}

/// Returns the arguments of an input schema, in its order.
pub fn arguments(schema: &JsonObject) -> Vec<SchemaArgument> {
    let required: Vec<ByteString> = texts(schema.get("required"));
    let properties = schema.get_object("properties").unwrap_or_default();
    properties
        .iter()
        .map(|(name, raw)| {
            let property = resolve(schema, raw.as_object().unwrap_or_default());
            SchemaArgument {
                types: types(schema, &property, DEPTH),
                required: required.contains(name),
                description: property.get_string("description"),
                default: property.get("default").cloned(),
                choices: choices(&property),
                name: name.clone(),
            }
        })
        .collect()
}

/// Returns the arguments of a prompt, which are all strings.
pub fn prompt_arguments(prompt: &JsonObject) -> Vec<SchemaArgument> {
    let listed = prompt
        .get("arguments")
        .and_then(RawJson::as_array)
        .unwrap_or_default();
    listed.iter().filter_map(prompt_argument).collect()
}

fn prompt_argument(raw: &RawJson) -> Option<SchemaArgument> {
    let argument = raw.as_object()?;
    Some(SchemaArgument {
        name: argument.get_string("name")?,
        types: Vec::new(),
        required: argument.is_true("required"),
        description: argument.get_string("description"),
        default: None,
        choices: Vec::new(),
    })
}

/// Returns the types that a property may have, as far as the schema says.
pub fn types_of(schema: &JsonObject, property: &str) -> Vec<String> {
    let property = schema
        .get_object("properties")
        .and_then(|properties| properties.get_object(property));
    property
        .map(|property| types(schema, &property, DEPTH))
        .unwrap_or_default()
}

/// Returns the values that a schema allows, if it lists them.
pub fn choices(schema: &JsonObject) -> Vec<RawJson> {
    let listed = schema.get("enum").and_then(RawJson::as_array);
    listed
        .or_else(|| Some(vec![schema.get("const")?.clone()]))
        .unwrap_or_default()
}

/// True if a value has a type, as schemas name them.
pub fn is_a(value: &RawJson, name: &str) -> bool {
    match name {
        "number" => is_number(value),
        // An integer may be too large for any Rust type.
        "integer" => {
            is_number(value)
                && (value.bytes().iter().all(|b| b"-0123456789".contains(b))
                    || value.parse_as().is_ok_and(|f: f64| f.fract() == 0.0))
        }
        "boolean" => value.parse_as::<bool>().is_ok(),
        "object" => value.is_object(),
        "array" => value.bytes().first() == Some(&b'['),
        "string" => value.bytes().first() == Some(&b'"'),
        "null" => value.is_null(),
        _ => false,
    }
}

fn is_number(value: &RawJson) -> bool {
    value.parse_as::<serde_json::Number>().is_ok()
}

/// Returns the strings of an array.
pub fn texts(array: Option<&RawJson>) -> Vec<ByteString> {
    array
        .and_then(RawJson::as_array)
        .unwrap_or_default()
        .iter()
        .filter_map(RawJson::as_text)
        .collect()
}

fn types(root: &JsonObject, schema: &JsonObject, depth: usize) -> Vec<String> {
    let mut out = Vec::new();
    // A branch may refer to the schema that it is in. Without the count this recursion would not
    // end.
    let Some(depth) = depth.checked_sub(1) else {
        return out;
    };
    let schema = resolve(root, schema.clone());
    match schema.get("type") {
        Some(one) if one.as_text().is_some() => one
            .as_text()
            .into_iter()
            .for_each(|name| add_type(&mut out, name.to_string())),
        several => texts(several)
            .iter()
            .for_each(|name| add_type(&mut out, name.to_string())),
    }
    for branches in ["anyOf", "oneOf", "allOf"] {
        for branch in schema
            .get(branches)
            .and_then(RawJson::as_array)
            .unwrap_or_default()
        {
            types(root, &branch.as_object().unwrap_or_default(), depth)
                .into_iter()
                .for_each(|name| add_type(&mut out, name));
        }
    }
    // Without a type, the listed values show it.
    if out.is_empty() {
        const NAMES: [&str; 5] = ["string", "integer", "number", "boolean", "null"];
        for value in choices(&schema) {
            if let Some(name) = NAMES.iter().find(|name| is_a(&value, name)) {
                add_type(&mut out, (*name).to_owned());
            }
        }
    }
    out
}

fn add_type(types: &mut Vec<String>, name: String) {
    if !types.contains(&name) {
        types.push(name);
    }
}

/// Follows `$ref` within the schema. Members next to it take precedence.
pub(crate) fn resolve(root: &JsonObject, mut schema: JsonObject) -> JsonObject {
    // Bounded: references may form a cycle.
    for _ in 0..DEPTH {
        let Some(target) = schema.remove("$ref").and_then(|raw| raw.as_text()) else {
            break;
        };
        // References to other documents are not followed: a server must not make this machine fetch
        // them.
        let Some(found) = target
            .strip_prefix("#/")
            .and_then(|path| resolve_pointer(root, path))
        else {
            break;
        };
        for (key, value) in found.iter() {
            if schema.get(key).is_none() {
                schema.set(key.clone(), value.clone());
            }
        }
    }
    schema
}

fn resolve_pointer(root: &JsonObject, path: &str) -> Option<JsonObject> {
    // Escapes of a JSON pointer (RFC 6901, section 4). `~1` goes first, or `~01` would become a
    // slash.
    path.split('/').try_fold(root.clone(), |object, name| {
        object.get_object(&name.replace("~1", "/").replace("~0", "~"))
    })
}
