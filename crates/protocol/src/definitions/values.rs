//! Members that must have one type of value: texts, objects, numbers.
//!
//! Owns the checks of single values. Does not know items. Invariant: a value of the right type is
//! kept as it is.

use moongate_jsonrpc::json::{RawJson, ValueChange};

use super::mend_notes::MendNotes;

/// Type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonType {
    Null,
    Bool,
    Number,
    Text,
    Array,
    Object,
}

/// Returns the type of a value, which is known to be valid.
pub(super) fn type_of(value: &RawJson) -> JsonType {
    match value.bytes().first() {
        Some(b'{') => JsonType::Object,
        Some(b'[') => JsonType::Array,
        Some(b'"') => JsonType::Text,
        Some(b't' | b'f') => JsonType::Bool,
        Some(b'n') => JsonType::Null,
        _ => JsonType::Number,
    }
}

/// Drops a member, with the reason.
pub(super) fn drop_member(
    at: &str,
    value: &RawJson,
    wanted: &str,
    notes: &mut MendNotes,
) -> ValueChange {
    match type_of(value) {
        JsonType::Null => notes.add(at, "is null: dropped"),
        _ => notes.add(at, format_args!("is not {wanted}: dropped")),
    }
    ValueChange::Drop
}

/// Checks an optional text. A number is read as its text.
pub(super) fn text(at: &str, value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    match type_of(value) {
        JsonType::Text => ValueChange::Keep,
        JsonType::Number => {
            notes.add(at, "is a number: read as a string");
            ValueChange::Set(number_text(value))
        }
        _ => drop_member(at, value, "a string", notes),
    }
}

/// Encodes the digits of a number as a text.
pub(super) fn number_text(number: &RawJson) -> RawJson {
    RawJson::string(&String::from_utf8_lossy(number.bytes()))
}

/// Checks an optional object whose members are free.
pub(super) fn object(at: &str, value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    match type_of(value) {
        JsonType::Object => ValueChange::Keep,
        _ => drop_member(at, value, "an object", notes),
    }
}

/// Checks an optional word of a fixed list.
pub(super) fn word(
    at: &str,
    value: &RawJson,
    words: &[&str],
    notes: &mut MendNotes,
) -> ValueChange {
    match value.as_text() {
        Some(text) if words.contains(&text.as_str()) => ValueChange::Keep,
        Some(_) => {
            notes.add(
                at,
                format_args!("is not one of {}: dropped", words.join(", ")),
            );
            ValueChange::Drop
        }
        None => drop_member(at, value, "a string", notes),
    }
}

/// Checks an optional object, and each of its members by `member`. An empty array is what PHP
/// writes for an object without members.
pub(super) fn object_with(
    at: &str,
    value: &RawJson,
    notes: &mut MendNotes,
    mut member: impl FnMut(&str, &RawJson, &mut MendNotes) -> ValueChange,
) -> ValueChange {
    if type_of(value) != JsonType::Object {
        return drop_member(at, value, "an object", notes);
    }
    let Some(mut object) = value.as_lenient_object() else {
        return drop_member(at, value, "an object", notes);
    };
    let mut is_changed = false;
    object.change_values(|key, value| {
        let change = member(key, value, notes);
        is_changed |= change != ValueChange::Keep;
        change
    });
    if is_changed {
        ValueChange::Set(object.to_raw())
    } else {
        ValueChange::Keep
    }
}

/// Keeps the entries of an array that `keep` takes. `None` if it takes all of them.
pub(super) fn retained(value: &RawJson, keep: impl Fn(&RawJson) -> bool) -> Option<Vec<RawJson>> {
    let entries = value.as_array().unwrap_or_default();
    let kept: Vec<RawJson> = entries
        .iter()
        .filter(|entry| keep(entry))
        .cloned()
        .collect();
    (kept.len() != entries.len()).then_some(kept)
}
