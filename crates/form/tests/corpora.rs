//! Gate of the forms: tools of LiveMCPBench and functions of BFCL, which aren't part of the tree.
//!
//! `tests/search/setup.sh` fetches them, pinned. Of LiveMCPBench the corpus has names and types in
//! words. BFCL has whole schemas, with types as Python names them.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::Path;

use moongate_form::{FieldKind, FormField, read_form};
use moongate_jsonrpc::json::RawJson;
use serde_json::{Map, Value, json};

/// Members of a form: those with a field of their type, and those that are written as JSON.
#[derive(Default)]
struct MemberCount {
    typed: usize,
    json: Vec<String>,
}

impl MemberCount {
    fn add(&mut self, tool: &str, field: &FormField) {
        match &field.kind {
            FieldKind::Json => self.json.push(format!("{tool}: {}", field.name)),
            _ => self.typed += 1,
        }
        self.add_parts(tool, field);
    }

    fn add_parts(&mut self, tool: &str, field: &FormField) {
        match &field.kind {
            FieldKind::Object { fields, .. } => {
                fields.iter().for_each(|member| self.add(tool, member))
            }
            FieldKind::Variants(variants) => variants
                .iter()
                .for_each(|variant| self.add_parts(tool, variant)),
            FieldKind::List(item) | FieldKind::Map(item) => self.add_parts(tool, item),
            _ => {}
        }
    }
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/search")
        .join(file);
    std::fs::read_to_string(path)
        .unwrap_or_else(|e| panic!("{file}: {e}. This line fetches it: tests/search/setup.sh"))
}

fn form(schema: &Value) -> FormField {
    let form = read_form(
        &RawJson::parse(schema.to_string().into())
            .unwrap()
            .as_object()
            .unwrap(),
    );
    assert!(
        matches!(form.kind, FieldKind::Object { .. } | FieldKind::Map(_)),
        "{schema}: {:?}",
        form.kind
    );
    form
}

#[test]
fn each_tool_of_real_servers_has_a_form() {
    let servers: Vec<Value> = serde_json::from_str(&read("livemcpbench/tools.json")).unwrap();
    let mut tools = 0;
    for tool in servers
        .iter()
        .flat_map(|server| server["tools"].as_array().unwrap())
    {
        tools += 1;
        let parameters = tool["parameter"].as_object().unwrap();
        let properties: Map<String, Value> = parameters
            .iter()
            .map(|(name, words)| (name.clone(), property_schema(words)))
            .collect();
        let members = properties.len();
        let form = form(&json!({ "type": "object", "properties": properties }));
        let FieldKind::Object { fields, .. } = &form.kind else {
            continue;
        };
        assert_eq!(fields.len(), members, "{tool}");
    }
    assert!(tools >= 526, "{tools} tools were read");
}

/// Returns the schema of a parameter whose description starts with its type in brackets.
fn property_schema(words: &Value) -> Value {
    let kind = words
        .as_str()
        .unwrap_or_default()
        .trim_start_matches("(Optional, ")
        .trim_start_matches('(');
    let kind = kind.split(')').next().unwrap_or_default();
    if kind == "any" {
        json!({})
    } else {
        json!({ "type": kind, "description": words })
    }
}

/// Names the types of a schema as JSON Schema does.
fn with_json_types(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let kind = match schema["type"].as_str() {
        Some("dict") => "object",
        Some("float") => "number",
        Some("tuple") => "array",
        Some(other) => other,
        None => return schema,
    };
    schema["type"] = kind.into();
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties
            .values_mut()
            .for_each(|property| *property = with_json_types(property));
    }
    if schema["items"].is_object() {
        schema["items"] = with_json_types(&schema["items"]);
    }
    schema
}

#[test]
fn real_schemas_become_typed_fields() {
    let mut functions = 0;
    let mut count = MemberCount::default();
    for file in ["live_multiple", "live_simple", "multiple", "simple_python"] {
        for line in read(&format!("bfcl/{file}.json")).lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            for function in row["function"].as_array().unwrap() {
                functions += 1;
                let form = form(&with_json_types(&function["parameters"]));
                count.add_parts(function["name"].as_str().unwrap(), &form);
            }
        }
    }
    let all = count.typed + count.json.len();

    assert!(
        functions > 1700 && all > 10_000,
        "{functions} functions with {all} members were read"
    );
    assert!(
        count.json.len() * 100 <= all,
        "{} of {all} members have no field: {:?}",
        count.json.len(),
        count.json
    );
}
