//! Prompts and their arguments.
//!
//! Owns the mending of their members. Does not get prompts. Invariant: each argument has a name.

use moongate_jsonrpc::json::{JsonObject, RawJson, ValueChange};

use super::common_member::common_member;
use super::flags::flag;
use super::mend_notes::MendNotes;
use super::values::{self, JsonType, drop_member, type_of};

/// Mends a prompt. Fails if its arguments have no clear meaning.
pub(super) fn mend(item: &mut JsonObject, notes: &mut MendNotes) -> Result<(), String> {
    let mut problem = None;
    item.change_values(|key, value| match key.as_str() {
        "arguments" => arguments(value, notes).unwrap_or_else(|reason| {
            problem = Some(reason);
            ValueChange::Keep
        }),
        key => common_member(key, value, notes).unwrap_or(ValueChange::Keep),
    });
    problem.map_or(Ok(()), Err)
}

fn arguments(value: &RawJson, notes: &mut MendNotes) -> Result<ValueChange, String> {
    match type_of(value) {
        JsonType::Array => {}
        JsonType::Null => return Ok(drop_member("arguments", value, "a list", notes)),
        JsonType::Object
            if value
                .as_lenient_object()
                .is_some_and(|object| object.is_empty()) =>
        {
            return Ok(drop_member("arguments", value, "a list", notes));
        }
        _ => return Err("its arguments are not a list".to_owned()),
    }
    let mut is_changed = false;
    let mut kept = Vec::new();
    for entry in value.as_array().unwrap_or_default() {
        match argument(&entry, notes)? {
            ValueChange::Set(mended) => {
                is_changed = true;
                kept.push(mended);
            }
            ValueChange::Keep => kept.push(entry),
            ValueChange::Drop => is_changed = true,
        }
    }
    Ok(if is_changed {
        ValueChange::Set(RawJson::array(kept.iter()))
    } else {
        ValueChange::Keep
    })
}

fn argument(value: &RawJson, notes: &mut MendNotes) -> Result<ValueChange, String> {
    match type_of(value) {
        JsonType::Object => {}
        JsonType::Text => {
            notes.add("argument", "is a string: read as its name");
            return Ok(ValueChange::Set(
                JsonObject::new().with("name", value.clone()).to_raw(),
            ));
        }
        _ => return Err("one of its arguments is not an object".to_owned()),
    }
    let name = value
        .as_lenient_object()
        .and_then(|argument| argument.get("name").map(type_of));
    if !matches!(name, Some(JsonType::Text | JsonType::Number)) {
        return Err("one of its arguments has no name".to_owned());
    }
    Ok(values::object_with(
        "argument",
        value,
        notes,
        |key, value, notes| match key {
            "name" => values::text("argument's name", value, notes),
            "title" => values::text("argument's title", value, notes),
            "description" => values::text("argument's description", value, notes),
            "required" => flag("argument's required", value, notes),
            _ => ValueChange::Keep,
        },
    ))
}
