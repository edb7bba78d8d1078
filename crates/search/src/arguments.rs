//! Arguments: names and descriptions from a tool's JSON Schema, for the index.
//!
//! Owns reading them. Does not describe types (`signature.rs`). Invariant: a schema that is too
//! large or not JSON has no arguments, and isn't an error.

use serde_json::Value;

use crate::document::ArgumentText;
use crate::schema::{object_properties, parse_schema, resolve};

/// Depth of objects whose properties are arguments, too.
const MAX_DEPTH: usize = 2;
/// Arguments of one schema.
const MAX_ARGUMENTS: usize = 100;

/// Reads the arguments of a tool from its input schema: those of nested objects, too.
pub fn argument_texts(input_schema: &str) -> Vec<ArgumentText> {
    let mut texts = Vec::new();
    if let Some(schema) = parse_schema(input_schema) {
        collect(&schema, &schema, MAX_DEPTH, &mut texts);
    }
    texts
}

fn collect(root: &Value, schema: &Value, depth: usize, texts: &mut Vec<ArgumentText>) {
    for (name, property) in object_properties(root, schema) {
        if texts.len() == MAX_ARGUMENTS {
            return;
        }
        // References may form a circle. `depth` ends it, since each round goes one level down.
        let property = resolve(root, property);
        let description = property
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        texts.push(ArgumentText {
            name: name.to_owned(),
            description,
        });
        if depth > 0 {
            collect(root, property, depth - 1, texts);
            if let Some(items) = property.get("items") {
                collect(root, items, depth - 1, texts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_arguments_are_read_and_bad_schemas_are_not() {
        let schema = r##"{"properties":{"a":{"description":"first"},"b":{"items":{"$ref":"#/$defs/B"}}},
            "$defs":{"B":{"properties":{"c":{"description":"inner"},"again":{"$ref":"#/$defs/B"}}}}}"##;
        let texts = argument_texts(schema);
        let names: Vec<&str> = texts.iter().map(|text| &*text.name).collect();
        assert_eq!(names, ["a", "b", "c", "again", "c", "again"]);
        assert_eq!(texts[2].description, "inner");
        assert!(argument_texts("{").is_empty() && argument_texts("true").is_empty());
    }
}
