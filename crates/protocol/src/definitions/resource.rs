//! Resources and resource templates.
//!
//! Owns the mending of their members. Does not read them. Invariant: each has a name.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson, ValueChange};
use moongate_model::ItemKind;
use url::Url;

use super::common_member::common_member;
use super::mend_notes::{MendNotes, short};
use super::timestamp::is_timestamp;
use super::values::{self, JsonType, drop_member, type_of};

const ROLES: [&str; 2] = ["user", "assistant"];

/// Mends a resource or a template.
pub(super) fn mend(kind: ItemKind, item: &mut JsonObject, notes: &mut MendNotes) {
    let is_resource = kind == ItemKind::Resources;
    ensure_name(kind, item, notes);
    item.change_values(|key, value| match key.as_str() {
        "mimeType" => values::text("mimeType", value, notes),
        "size" if is_resource => size(value, notes),
        "annotations" => values::object_with("annotations", value, notes, annotation),
        key => common_member(key, value, notes).unwrap_or(ValueChange::Keep),
    });
}

/// Checks what only legacy clients refuse: a URI that isn't a URL, which the Python SDK 1 parses.
pub(super) fn check_for_legacy(item: &JsonObject) -> Result<(), String> {
    let uri = item
        .get_string("uri")
        .unwrap_or_else(|| ByteString::literal(""));
    match Url::parse(&uri) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("its uri {} is not a URL ({error})", short(&uri))),
    }
}

/// Sets the name where there is none. Clients show it, and nothing is routed by it.
fn ensure_name(kind: ItemKind, item: &mut JsonObject, notes: &mut MendNotes) {
    let (name, what) = match item.get("name") {
        Some(name) if type_of(name) == JsonType::Text => return,
        Some(name) if type_of(name) == JsonType::Number => {
            (values::number_text(name), "is a number: read as a string")
        }
        _ => {
            let key = item
                .get(kind.item_key())
                .cloned()
                .unwrap_or(RawJson::literal("\"\""));
            (key, "is missing: its URI is used instead")
        }
    };
    notes.add("name", what);
    item.set(ByteString::literal("name"), name);
}

fn annotation(key: &str, value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    match key {
        "audience" => audience(value, notes),
        "priority" => priority(value, notes),
        "lastModified" => match value.as_text() {
            Some(text) if is_timestamp(&text) => ValueChange::Keep,
            _ => drop_member(
                "annotations.lastModified",
                value,
                "a timestamp with a zone",
                notes,
            ),
        },
        _ => ValueChange::Keep,
    }
}

fn audience(value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    const AT: &str = "annotations.audience";
    match type_of(value) {
        JsonType::Array => match values::retained(value, is_role) {
            None => ValueChange::Keep,
            Some(kept) => {
                notes.add(AT, "has entries other than user and assistant: dropped");
                // An empty list would say that it is for nobody.
                if kept.is_empty() {
                    ValueChange::Drop
                } else {
                    ValueChange::Set(RawJson::array(kept.iter()))
                }
            }
        },
        JsonType::Text if is_role(value) => {
            notes.add(AT, "is not a list: read as its only entry");
            ValueChange::Set(RawJson::array(std::iter::once(value)))
        }
        _ => drop_member(AT, value, "a list of user and assistant", notes),
    }
}

fn priority(value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    const AT: &str = "annotations.priority";
    match type_of(value) {
        JsonType::Number if value.parse_as::<f64>().is_ok_and(is_priority) => ValueChange::Keep,
        JsonType::Text => {
            match number_in(value).filter(|text| text.parse::<f64>().is_ok_and(is_priority)) {
                Some(text) => read_as_number(AT, &text, notes),
                None => drop_member(AT, value, "a number from 0 to 1", notes),
            }
        }
        _ => drop_member(AT, value, "a number from 0 to 1", notes),
    }
}

/// Checks the optional size. The Python SDKs read a whole number.
fn size(value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    match type_of(value) {
        JsonType::Number => {
            let text = String::from_utf8_lossy(value.bytes());
            if is_whole(&text) || is_whole_float(&text) {
                return ValueChange::Keep;
            }
            drop_member("size", value, "a whole number", notes)
        }
        JsonType::Text => match number_in(value).filter(|text| is_whole(text)) {
            Some(text) => read_as_number("size", &text, notes),
            None => drop_member("size", value, "a whole number", notes),
        },
        _ => drop_member("size", value, "a whole number", notes),
    }
}

fn is_role(value: &RawJson) -> bool {
    value
        .as_text()
        .is_some_and(|role| ROLES.contains(&role.as_str()))
}

fn is_priority(number: f64) -> bool {
    (0.0..=1.0).contains(&number)
}

/// Returns true if a text has the digits of a whole number, and no fraction or exponent.
fn is_whole(text: &str) -> bool {
    /// Digits of a number that is whole and finite in every client.
    const DIGITS_MAX: usize = 300;
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.len() <= DIGITS_MAX
        && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// Returns true if a number is whole although it has a fraction or an exponent.
fn is_whole_float(text: &str) -> bool {
    // Beyond 2^63 the Python SDKs read no number with a fraction or an exponent.
    text.parse::<f64>()
        .is_ok_and(|n| n.fract() == 0.0 && n.abs() < 9.2e18)
}

/// Returns the number that a text holds, as JSON writes it.
fn number_in(value: &RawJson) -> Option<String> {
    let text = value.as_text()?;
    let raw = RawJson::parse(text.as_bytes().to_vec().into()).ok()?;
    (type_of(&raw) == JsonType::Number).then(|| String::from_utf8_lossy(raw.bytes()).into_owned())
}

fn read_as_number(at: &str, number: &str, notes: &mut MendNotes) -> ValueChange {
    notes.add(at, "is a string: read as a number");
    RawJson::parse(number.as_bytes().to_vec().into()).map_or(ValueChange::Drop, ValueChange::Set)
}
