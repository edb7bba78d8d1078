//! First level of a tool's schemas, which the SDKs check by themselves: `$schema`, `properties`,
//! `required`.
//!
//! Owns its mending. Does not compile schemas (`output_schema.rs`). Invariant: a mended schema
//! accepts what the server's accepts, as far as that has a meaning.

use moongate_jsonrpc::json::{JsonObject, RawJson, ValueChange};

use super::mend_notes::{MendNotes, short};
use super::values::{self, JsonType, drop_member, type_of};

/// Types of JSON Schema.
pub(super) const TYPES: [&str; 7] = [
    "string", "number", "integer", "boolean", "null", "object", "array",
];

/// Parses an object of any size. `None` if it is not an object, or has a key twice.
pub(super) fn without_duplicates(value: &RawJson) -> Option<JsonObject> {
    // Of duplicates, the parsed form has one.
    value.as_object().or_else(|| {
        value
            .as_lenient_object()
            .filter(|object| object.bytes() == value.bytes())
    })
}

/// Checks what clients of both eras refuse: a schema that isn't an object, and a dialect that isn't
/// a text.
pub(super) fn dialect(at: &str, value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    values::object_with(at, value, notes, |key, value, notes| match key {
        "$schema" if type_of(value) != JsonType::Text => {
            drop_member(&format!("{at}.$schema"), value, "a string", notes)
        }
        _ => ValueChange::Keep,
    })
}

/// Checks what legacy clients refuse. Fails if the properties have no clear meaning.
pub(super) fn for_legacy(
    at: &str,
    value: &RawJson,
    notes: &mut MendNotes,
) -> Result<ValueChange, String> {
    let mut problem = None;
    let change = values::object_with(at, value, notes, |key, value, notes| match key {
        "properties" => {
            properties(&format!("{at}.properties"), value, notes).unwrap_or_else(|reason| {
                problem = Some(reason);
                ValueChange::Keep
            })
        }
        "required" => required(&format!("{at}.required"), value, notes),
        _ => ValueChange::Keep,
    });
    problem.map_or(Ok(change), Err)
}

fn properties(at: &str, value: &RawJson, notes: &mut MendNotes) -> Result<ValueChange, String> {
    match type_of(value) {
        JsonType::Object => {}
        JsonType::Null => return Ok(drop_member(at, value, "an object", notes)),
        // PHP writes an empty array for an object without members.
        JsonType::Array if is_empty_list(value) => {
            notes.add(at, "is an empty list: read as an empty object");
            return Ok(ValueChange::Set(RawJson::literal("{}")));
        }
        _ => return Err(format!("its {at} is not an object")),
    }
    let mut problem = None;
    let change = values::object_with(at, value, notes, |name, schema, notes| {
        match property(schema) {
            Ok(None) => ValueChange::Keep,
            Ok(Some((meaning, schema))) => {
                notes.add(&format!("{at} {}", short(name)), meaning);
                ValueChange::Set(schema)
            }
            Err(()) => {
                problem = Some(format!("its {at} {} is not a schema", short(name)));
                ValueChange::Keep
            }
        }
    });
    problem.map_or(Ok(change), Err)
}

/// Returns a property's schema as an object, if it isn't one but has the meaning of one.
fn property(schema: &RawJson) -> Result<Option<(&'static str, RawJson)>, ()> {
    let read = match (type_of(schema), &schema.bytes()[..]) {
        (JsonType::Object, _) => return Ok(None),
        // JSON Schema 2020-12, core, 4.3.2: `true` "is intended to be equivalent to" `{}`, and
        // `false` to `{"not": {}}`.
        (JsonType::Bool, b"true") => ("is true: read as {}", RawJson::literal("{}")),
        (JsonType::Bool, _) => (
            "is false: read as {\"not\":{}}",
            RawJson::literal(r#"{"not":{}}"#),
        ),
        (JsonType::Null, _) => ("is null: read as {}", RawJson::literal("{}")),
        (JsonType::Array, _) if is_empty_list(schema) => {
            ("is an empty list: read as {}", RawJson::literal("{}"))
        }
        (JsonType::Text, _) => match schema
            .as_text()
            .filter(|name| TYPES.contains(&name.as_str()))
        {
            Some(_) => (
                "is a type: read as its schema",
                JsonObject::new().with("type", schema.clone()).to_raw(),
            ),
            None => return Err(()),
        },
        _ => return Err(()),
    };
    Ok(Some(read))
}

fn is_empty_list(value: &RawJson) -> bool {
    value.as_array().is_some_and(|entries| entries.is_empty())
}

fn required(at: &str, value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    match type_of(value) {
        JsonType::Array => match values::retained(value, |name| type_of(name) == JsonType::Text) {
            None => ValueChange::Keep,
            Some(kept) => {
                notes.add(at, "has entries that are not names: dropped");
                ValueChange::Set(RawJson::array(kept.iter()))
            }
        },
        JsonType::Text => {
            notes.add(at, "is not a list: read as its only entry");
            ValueChange::Set(RawJson::array(std::iter::once(value)))
        }
        _ => drop_member(at, value, "a list", notes),
    }
}
