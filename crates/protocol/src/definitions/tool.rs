//! Tools.
//!
//! Owns the mending of their members. Does not check calls. Invariant: each has an input schema for
//! objects.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson, ValueChange};

use super::common_member::common_member;
use super::flags::flag;
use super::mend_notes::MendNotes;
use super::values;
use super::{output_schema, schema_root};

/// Levels of an input schema that clients can be relied on to parse.
const DEPTH_MAX: usize = 127;

/// Mends a tool. Fails if nobody could call it.
pub(super) fn mend(item: &mut JsonObject, notes: &mut MendNotes) -> Result<(), String> {
    if let Some(schema) = input_schema(item)? {
        item.set(ByteString::literal("inputSchema"), schema.to_raw());
        notes.add("inputSchema", "has no type: read as \"object\"");
    }
    item.change_values(|key, value| match key.as_str() {
        "annotations" => values::object_with("annotations", value, notes, hint),
        "execution" => {
            values::object_with("execution", value, notes, |key, value, notes| match key {
                "taskSupport" => values::word(
                    "execution.taskSupport",
                    value,
                    &["required", "optional", "forbidden"],
                    notes,
                ),
                _ => ValueChange::Keep,
            })
        }
        "inputSchema" => schema_root::dialect("inputSchema", value, notes),
        "outputSchema" => schema_root::dialect("outputSchema", value, notes),
        key => common_member(key, value, notes).unwrap_or(ValueChange::Keep),
    });
    Ok(())
}

/// Checks what only legacy clients refuse, and returns the change of the output schema. Fails if
/// nothing clear can be made of the input schema.
pub(super) fn check_for_legacy(
    item: &JsonObject,
    notes: &mut MendNotes,
) -> Result<ValueChange, String> {
    if let Some(schema) = item.get("inputSchema") {
        schema_root::for_legacy("inputSchema", schema, notes)?;
    }
    Ok(item
        .get("outputSchema")
        .map_or(ValueChange::Keep, |schema| {
            output_schema::for_legacy(schema, notes)
        }))
}

/// Mends what only legacy clients refuse. `output`: the change of the output schema.
pub(super) fn mend_for_legacy(item: &mut JsonObject, output: &ValueChange) -> Result<(), String> {
    let mut problem = None;
    item.change_values(|key, value| match key.as_str() {
        // Read again: lists may have another one that accepts the same.
        "inputSchema" => schema_root::for_legacy("inputSchema", value, &mut MendNotes::default())
            .unwrap_or_else(|reason| {
                problem = Some(reason);
                ValueChange::Keep
            }),
        "outputSchema" => output.clone(),
        _ => ValueChange::Keep,
    });
    problem.map_or(Ok(()), Err)
}

/// Returns the input schema with its type set, if it has none.
fn input_schema(item: &JsonObject) -> Result<Option<JsonObject>, String> {
    let object = RawJson::literal("\"object\"");
    match item.get("inputSchema") {
        // A tool without a schema takes no arguments, so an empty object schema changes nothing.
        // 2025-11-25/server/tools.mdx, Data Types: `inputSchema` "MUST be a valid JSON Schema
        // object (not `null`)".
        None => Ok(Some(JsonObject::new().with("type", object))),
        Some(raw) if raw.is_null() => Ok(Some(JsonObject::new().with("type", object))),
        Some(raw) => {
            let mut schema = schema_root::without_duplicates(raw)
                .ok_or("its inputSchema is not an object, or has duplicate keys")?;
            // Beyond this depth parsers of clients give up on the whole list.
            if raw.depth() > DEPTH_MAX {
                return Err(format!(
                    "its inputSchema cannot be read: it has more than {DEPTH_MAX} levels"
                ));
            }
            match schema.get("type") {
                // Arguments are always an object, so this loses nothing.
                None => {
                    schema.set(ByteString::literal("type"), object);
                    Ok(Some(schema))
                }
                Some(kind) if kind.as_text().is_some_and(|t| t.as_str() == "object") => Ok(None),
                Some(_) => Err("the type of its inputSchema is not \"object\"".to_owned()),
            }
        }
    }
}

fn hint(key: &str, value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    match key {
        "title" => values::text("annotations.title", value, notes),
        "readOnlyHint" | "destructiveHint" | "idempotentHint" | "openWorldHint" => {
            flag(&format!("annotations.{key}"), value, notes)
        }
        _ => ValueChange::Keep,
    }
}
