//! Keywords of draft-07, with the types of their values.
//!
//! Owns the list. Does not compile. Invariant: a keyword that is not listed is passed over,
//! whatever it holds.

use serde_json::Value;

/// Reason why a schema does not compile.
pub(super) type CompileProblem = String;

/// Types of value that a keyword takes.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Any,
    Number,
    Text,
    Bool,
    Array,
    Object,
    /// Schema.
    Schema,
    SchemaOrArray,
    TextOrArray,
    /// Nothing: it is refused, whatever it holds.
    Refused,
}

/// Keywords that the compiler has rules for.
pub(super) const KEYWORDS: &[(&str, Shape)] = &[
    ("id", Shape::Refused),
    ("$ref", Shape::Text),
    ("$comment", Shape::Any),
    ("type", Shape::TextOrArray),
    ("nullable", Shape::Bool),
    ("const", Shape::Any),
    ("enum", Shape::Array),
    ("maximum", Shape::Number),
    ("minimum", Shape::Number),
    ("exclusiveMaximum", Shape::Number),
    ("exclusiveMinimum", Shape::Number),
    ("multipleOf", Shape::Number),
    ("maxLength", Shape::Number),
    ("minLength", Shape::Number),
    ("pattern", Shape::Text),
    ("format", Shape::Text),
    ("maxProperties", Shape::Number),
    ("minProperties", Shape::Number),
    ("required", Shape::Array),
    ("maxItems", Shape::Number),
    ("minItems", Shape::Number),
    ("uniqueItems", Shape::Bool),
    ("not", Shape::Schema),
    ("anyOf", Shape::Array),
    ("oneOf", Shape::Array),
    ("allOf", Shape::Array),
    ("if", Shape::Schema),
    ("then", Shape::Schema),
    ("else", Shape::Schema),
    ("propertyNames", Shape::Schema),
    ("additionalProperties", Shape::Schema),
    ("dependencies", Shape::Object),
    ("properties", Shape::Object),
    ("patternProperties", Shape::Object),
    ("additionalItems", Shape::Schema),
    ("items", Shape::SchemaOrArray),
    ("contains", Shape::Schema),
];

impl Shape {
    /// Returns the shape of a keyword. `None`: the compiler has no rule for it.
    pub(super) fn of(keyword: &str) -> Option<Shape> {
        KEYWORDS
            .iter()
            .find(|(known, _)| *known == keyword)
            .map(|(_, shape)| *shape)
    }

    /// Checks the type of a keyword's value.
    pub(super) fn check(self, keyword: &str, value: &Value) -> Result<(), CompileProblem> {
        let is_schema = value.is_object() || value.is_boolean();
        let is_right = match self {
            Shape::Any => true,
            Shape::Number => value.is_number(),
            Shape::Text => value.is_string(),
            Shape::Bool => value.is_boolean(),
            Shape::Array => value.is_array(),
            Shape::Object => value.is_object(),
            Shape::Schema => is_schema,
            Shape::SchemaOrArray => is_schema || value.is_array(),
            Shape::TextOrArray => value.is_string() || value.is_array(),
            Shape::Refused => {
                return Err(format!(
                    "has the keyword {keyword}, which draft-07 calls $id"
                ));
            }
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("has {keyword} with a value of the wrong type"))
        }
    }
}

/// Returns true if JavaScript takes a value for true.
pub(super) fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}
