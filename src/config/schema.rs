//! The JSON Schema of the config file, and questions to it.
//!
//! Owns deriving the schema from `file`, for editors and for the checks. Does not walk a config (`check`). Invariant:
//! the schema that editors get accepts whatever `load` accepts without a warning.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::dialect;
use super::file::File;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<File>();
    let mut schema = schema.to_value();
    tidy(&mut schema);
    schema
});

/// The JSON Schema (2020-12) of the config file, for editors.
pub fn json_schema() -> String {
    let mut schema = SCHEMA.clone();
    let servers = schema["properties"]["servers"].clone();
    let root = &mut schema["properties"];
    root["$schema"] = json!({ "type": "string", "description": "This schema, for editors." });
    for name in dialect::SERVER_MAPS {
        root[name] = json!({ "$ref": "#/properties/servers" });
    }
    root["mcp"] =
        json!({ "type": "object", "properties": { "servers": servers }, "description": "VS Code's spelling." });
    let server = &mut schema["$defs"]["Server"]["properties"];
    for name in dialect::URL_NAMES {
        server[name] = json!({ "type": "string", "description": "The same as `url`." });
    }
    server["disabled"] = json!({ "type": "boolean", "description": "The opposite of `enabled`." });
    server["isActive"] = json!({ "type": "boolean", "description": "The same as `enabled`." });
    server["type"] = json!({ "enum": dialect::type_names(), "description": "What the server is." });
    server["protocol"]["description"] = json!(
        "The protocol revision to speak (a date), `auto` for the newest, or `client` for the era of each client."
    );
    schema["patternProperties"] = json!({ "^x-": {} });
    let mut text = serde_json::to_string_pretty(&schema).expect("a JSON value can be written");
    text.push('\n');
    text
}

/// Takes out what comes of optional fields (`null` is never written), and closes tables to unknown keys.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(object) => {
            object.values_mut().for_each(tidy);
            tidy_object(object);
        }
        _ => {}
    }
}

fn tidy_object(object: &mut Map<String, Value>) {
    if object.get("default").is_some_and(|default| default.is_null()) {
        object.shift_remove("default");
    }
    object.get_mut("default").into_iter().for_each(drop_nulls);
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            object.shift_remove("anyOf");
            object.extend(only);
        }
    }
    if object.get("properties").is_some_and(Value::is_object) && !object.contains_key("additionalProperties") {
        object.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(object) = value {
        object.retain(|_, value| !value.is_null());
        object.values_mut().for_each(drop_nulls);
    }
}

/// A part of the schema: what one value must look like.
#[derive(Clone, Copy)]
pub(super) struct Rule(&'static Value);

impl Rule {
    /// The rule for the whole file.
    pub(super) fn root() -> Self {
        Rule(&SCHEMA)
    }

    fn of(value: &'static Value) -> Self {
        match value.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#')) {
            Some(pointer) => Rule::of(SCHEMA.pointer(pointer).unwrap_or(&Value::Null)),
            None => Rule(value),
        }
    }

    /// The rules of which one must hold; usually only one.
    pub(super) fn choices(self) -> Vec<Rule> {
        match self.0.get("anyOf").and_then(Value::as_array) {
            Some(choices) => choices.iter().map(Rule::of).collect(),
            None => vec![self],
        }
    }

    /// The names of the accepted types, as JSON Schema calls them.
    pub(super) fn types(self) -> Vec<&'static str> {
        match self.0.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ if self.words().is_some() => vec!["string"],
            _ => Vec::new(),
        }
    }

    /// The keys of a table; `None` if it has no fixed ones.
    pub(super) fn keys(self) -> Option<Vec<&'static str>> {
        Some(self.0.get("properties")?.as_object()?.keys().map(String::as_str).collect())
    }

    /// The rule for the value of a key.
    pub(super) fn key(self, name: &str) -> Option<Rule> {
        match self.0.get("properties") {
            Some(properties) => properties.get(name).map(Rule::of),
            None => self.0.get("additionalProperties").filter(|rule| rule.is_object()).map(Rule::of),
        }
    }

    /// The rule for the items of a list.
    pub(super) fn items(self) -> Option<Rule> {
        self.0.get("items").map(Rule::of)
    }

    /// The keys that must be there.
    pub(super) fn required(self) -> Vec<&'static str> {
        self.0.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// The only texts that are accepted.
    pub(super) fn words(self) -> Option<Vec<&'static str>> {
        if let Some(words) = self.0.get("enum").and_then(Value::as_array) {
            return Some(words.iter().filter_map(Value::as_str).collect());
        }
        let choices = self.0.get("oneOf")?.as_array()?;
        let words = choices.iter().flat_map(|choice| match choice.get("enum").and_then(Value::as_array) {
            Some(words) => words.iter().filter_map(Value::as_str).collect(),
            None => choice.get("const").and_then(Value::as_str).into_iter().collect::<Vec<_>>(),
        });
        Some(words.collect())
    }

    /// A number that stands in the schema, such as `minimum`.
    pub(super) fn number(self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_i64()
    }

    /// How such a value is written, as advice.
    pub(super) fn advice(self) -> Option<&'static str> {
        self.0.get("x-write")?.as_str()
    }
}
