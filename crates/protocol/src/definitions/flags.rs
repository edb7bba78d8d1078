//! Members that are true or false.
//!
//! Owns which words mean which. Does not know what a flag is for. Invariant: a word means what it
//! means to the Python SDKs, which read more than `true` and `false` (pydantic, "Conversion Table",
//! `bool` from `str` and `int`).

use moongate_jsonrpc::json::{RawJson, ValueChange};

use super::mend_notes::MendNotes;
use super::values::{JsonType, drop_member, type_of};

const TRUE_WORDS: [&str; 6] = ["1", "on", "t", "true", "y", "yes"];
const FALSE_WORDS: [&str; 6] = ["0", "off", "f", "false", "n", "no"];

/// Checks an optional flag.
pub(super) fn flag(at: &str, value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    let meant = match type_of(value) {
        JsonType::Bool => return ValueChange::Keep,
        JsonType::Text => value.as_text().and_then(|word| meaning_of(&word)),
        JsonType::Number => match value.parse_as::<f64>() {
            Ok(1.0) => Some(true),
            Ok(0.0) => Some(false),
            _ => None,
        },
        JsonType::Null | JsonType::Array | JsonType::Object => None,
    };
    let Some(meant) = meant else {
        return drop_member(at, value, "a boolean", notes);
    };
    notes.add(at, format_args!("is not a boolean: read as {meant}"));
    ValueChange::Set(RawJson::literal(if meant { "true" } else { "false" }))
}

fn meaning_of(word: &str) -> Option<bool> {
    if is_one_of(word, &TRUE_WORDS) {
        return Some(true);
    }
    is_one_of(word, &FALSE_WORDS).then_some(false)
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}
