//! Definitions that are valid, and definitions that were valid before something was changed in
//! them. The same seed gives the same ones.

use serde_json::{Map, Value, json};

use crate::sim::rng::Rng;

/// Kinds of items: the member of their list, and the member that is their key.
pub(crate) const KINDS: [(&str, &str); 4] = [
    ("tools", "name"),
    ("prompts", "name"),
    ("resources", "uri"),
    ("resourceTemplates", "uriTemplate"),
];

/// Definition, as its server writes it.
pub(crate) struct Definition {
    pub(crate) kind: &'static str,
    /// Key that it has unless the key was changed.
    pub(crate) id: String,
    pub(crate) text: String,
}

impl Definition {
    /// Makes so many definitions from a seed.
    pub(crate) fn generate(seed: u64, count: usize) -> Vec<Definition> {
        let mut rng = Rng::new(seed);
        (0..count)
            .map(|number| Definition::mutated(&mut rng, number))
            .collect()
    }

    fn mutated(rng: &mut Rng, number: usize) -> Definition {
        // Two thirds are tools, which have most members.
        let kind = [0, 0, 0, 0, 1, 2, 3][rng.pick(7)];
        let (kind, id) = (
            KINDS[kind].0,
            if kind < 2 {
                format!("d{number}")
            } else {
                format!("x://d{number}")
            },
        );
        loop {
            let mut value = whole(kind, &id, rng);
            for _ in 0..[0, 1, 1, 1, 1, 2, 2, 3][rng.pick(8)] {
                mutate(&mut value, rng);
            }
            if !needs_wrapping(&value) {
                return Definition {
                    kind,
                    id,
                    text: value.to_string(),
                };
            }
        }
    }

    /// Returns true if its key is the one that it was made with.
    pub(crate) fn has_key(&self) -> bool {
        let key = KINDS.iter().find(|(kind, _)| *kind == self.kind).unwrap().1;
        serde_json::from_str::<Value>(&self.text).unwrap()[key] == self.id.as_str()
    }
}

/// Returns true if legacy clients need an envelope around the output schema. That is another matter
/// than what is broken in it.
fn needs_wrapping(item: &Value) -> bool {
    item["outputSchema"]
        .as_object()
        .is_some_and(|schema| schema.get("type") != Some(&json!("object")))
}

/// Makes a valid definition with many members.
fn whole(kind: &str, id: &str, rng: &mut Rng) -> Value {
    let icons = json!([{"src": "https://example.com/a.png", "mimeType": "image/png",
        "sizes": ["48x48"], "theme": "dark"}]);
    let meta = json!({"example.com/a": {"b": 1}, "c": [1.5, "x"]});
    let about =
        json!({"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"});
    let mut item = match kind {
        "tools" => json!({
            "name": id, "title": "A tool", "description": "does \"things\"",
            "inputSchema": input_schema(),
            "outputSchema": output_schema(rng), "icons": icons, "_meta": meta,
            "execution": {"taskSupport": "optional"},
            "annotations": {"title": "T", "readOnlyHint": true, "destructiveHint": false,
                "idempotentHint": true, "openWorldHint": false},
        }),
        "prompts" => json!({
            "name": id, "title": "A prompt", "description": "asks", "icons": icons, "_meta": meta,
            "arguments": [{"name": "a", "title": "A", "description": "first", "required": true},
                {"name": "b"}],
        }),
        "resources" => json!({
            "uri": id, "name": "r", "title": "A resource", "description": "is",
            "mimeType": "text/plain", "size": 17,
            "annotations": about, "icons": icons, "_meta": meta,
        }),
        _ => json!({
            "uriTemplate": id, "name": "t", "title": "A template", "description": "is",
            "mimeType": "text/plain",
            "annotations": about, "icons": icons, "_meta": meta,
        }),
    };
    // Some members of each, in any combination.
    let key = KINDS.iter().find(|(known, _)| *known == kind).unwrap().1;
    let required = [key, "name", "inputSchema"];
    item.as_object_mut()
        .unwrap()
        .retain(|key, _| required.contains(&key.as_str()) || !rng.one_in(3));
    item
}

fn input_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^a+$"}, "b": {"$ref": "#/$defs/b"}},
        "required": ["a"],
        "$defs": {"b": {"type": "array", "items": {"type": "integer"}}},
        "additionalProperties": false,
    })
}

/// Output schemas that compile, of every keyword.
fn output_schema(rng: &mut Rng) -> Value {
    let parts = [
        json!({"properties": {"x": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": "object",
                "properties": {"next": {"$ref": "#/$defs/node"}}}}}),
        json!({"properties": {"x": {"type": "string", "pattern": "^(?=a)\\p{L}+$", "minLength": 1,
            "format": "date"}}}),
        json!({"properties": {"x": {"anyOf": [{"type": "null"}, {"$ref": "#/definitions/y"}]}},
            "definitions": {"y": {"enum": [1, "a", null]}}}),
        json!({"properties": {"x": {"type": "array",
            "items": [{"type": "number", "maximum": 5}, true],
            "additionalItems": {"not": {"const": 3}}, "uniqueItems": true}}}),
        json!({"patternProperties": {"^x-": {"type": ["string", "null"]}},
            "additionalProperties": {"type": "boolean", "nullable": true},
            "propertyNames": {"maxLength": 9}}),
        json!({"properties": {"x": {"$ref": "#node"}},
            "definitions": {"n": {"$anchor": "node", "type": "object"}},
            "dependencies": {"x": ["y"], "z": {"required": ["x"]}}}),
        json!({"$id": "https://example.com/s",
            "properties": {"x": {"$ref": "https://example.com/s#/definitions/y"}},
            "definitions": {"y": {"if": {"type": "string"}, "then": {"minLength": 2},
                "else": false}}}),
        json!({"properties": {"x": {"$ref": "inner"}},
            "definitions": {"i": {"$id": "inner", "properties": {"z": {"$ref": "#/definitions/w"}},
                "definitions": {"w": {"multipleOf": 2}}}}}),
        json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "allOf": [{}, {"minProperties": 1}], "$comment": "c"}),
    ];
    let mut schema = json!({"type": "object"});
    for _ in 0..1 + rng.pick(2) {
        for (key, value) in parts[rng.pick(parts.len())].as_object().unwrap() {
            schema[key] = value.clone();
        }
    }
    schema
}

/// Changes one value somewhere in the definition.
fn mutate(item: &mut Value, rng: &mut Rng) {
    let mut pointers = Vec::new();
    collect(item, String::new(), &mut pointers);
    let pointer = &pointers[rng.pick(pointers.len())];
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = item.pointer_mut(parent).unwrap();
    match (rng.pick(8), parent) {
        (0, Value::Object(members)) => {
            members.shift_remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        (1, Value::Object(members)) => {
            let (key, value) = odd_member(rng);
            members.insert(key.to_owned(), value);
        }
        (2, _) => {
            let value = item.pointer_mut(pointer).unwrap();
            *value = json!([value.clone()]);
        }
        (3, _) => {
            let value = item.pointer_mut(pointer).unwrap();
            *value = Value::String(
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned),
            );
        }
        _ => *item.pointer_mut(pointer).unwrap() = odd_value(rng),
    }
}

/// Lists the pointers to all values below this one.
fn collect(value: &Value, at: String, pointers: &mut Vec<String>) {
    let mut below = |key: String, value: &Value| {
        let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        collect(value, at.clone(), pointers);
        pointers.push(at);
    };
    match value {
        Value::Object(members) => members
            .iter()
            .for_each(|(key, value)| below(key.clone(), value)),
        Value::Array(entries) => entries
            .iter()
            .enumerate()
            .for_each(|(n, value)| below(n.to_string(), value)),
        _ => {}
    }
}

fn odd_value(rng: &mut Rng) -> Value {
    let values = [
        Value::Null,
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-7),
        json!(1.5),
        json!(1e30),
        json!("x"),
        json!("true"),
        json!("object"),
        json!("10"),
        json!("(unclosed"),
        json!("#/$defs/none"),
        json!("2025-01-12"),
        json!([]),
        json!({}),
        json!([null]),
        json!(["x"]),
        json!([1, "user"]),
        json!({"a": 1}),
        json!({"$ref": "#/$defs/none"}),
        json!({"type": "text"}),
        json!({"type": "string", "pattern": "a**"}),
        json!({"src": null}),
    ];
    values[rng.pick(values.len())].clone()
}

fn odd_member(rng: &mut Rng) -> (&'static str, Value) {
    let keys = [
        "title",
        "description",
        "_meta",
        "annotations",
        "icons",
        "execution",
        "mimeType",
        "size",
        "arguments",
        "name",
        "properties",
        "required",
        "outputSchema",
        "$schema",
        "$id",
        "$anchor",
        "$ref",
        "id",
        "type",
        "nullable",
        "enum",
        "pattern",
        "items",
        "anyOf",
        "if",
        "then",
        "not",
        "exclusiveMaximum",
        "dependencies",
        "format",
        "unknown",
    ];
    (keys[rng.pick(keys.len())], odd_value(rng))
}

/// Returns the definition of a good item of each kind, by kind.
pub(crate) fn good() -> Map<String, Value> {
    let texts = [
        json!({"name": "good", "inputSchema": {"type": "object"}}),
        json!({"name": "good"}),
        json!({"uri": "good://x", "name": "good"}),
        json!({"uriTemplate": "good://{x}", "name": "good"}),
    ];
    KINDS
        .iter()
        .zip(texts)
        .map(|((kind, _), item)| ((*kind).to_owned(), json!(item.to_string())))
        .collect()
}
