//! Icons of an item.
//!
//! Owns their mending. Does not fetch them. Invariant: each icon that is listed has a `src`.

use moongate_jsonrpc::json::{JsonObject, RawJson, ValueChange};

use super::mend_notes::MendNotes;
use super::values::{self, JsonType, drop_member, type_of};

/// Checks the optional list of icons.
pub(super) fn icons(value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    let (entries, mut is_changed) = match type_of(value) {
        JsonType::Array => (value.as_array().unwrap_or_default(), false),
        JsonType::Object | JsonType::Text => {
            notes.add("icons", "is not a list: read as its only entry");
            (vec![value.clone()], true)
        }
        _ => return drop_member("icons", value, "a list", notes),
    };
    let mut kept = Vec::with_capacity(entries.len());
    for entry in &entries {
        match icon(entry, notes) {
            ValueChange::Keep => kept.push(entry.clone()),
            ValueChange::Set(mended) => {
                is_changed = true;
                kept.push(mended);
            }
            ValueChange::Drop => is_changed = true,
        }
    }
    match is_changed {
        false => ValueChange::Keep,
        true if kept.is_empty() => ValueChange::Drop,
        true => ValueChange::Set(RawJson::array(kept.iter())),
    }
}

fn icon(value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    match type_of(value) {
        JsonType::Object => {}
        JsonType::Text => {
            notes.add("icon", "is a string: read as its src");
            return ValueChange::Set(JsonObject::new().with("src", value.clone()).to_raw());
        }
        _ => return drop_member("icon", value, "an object", notes),
    }
    let src = value
        .as_lenient_object()
        .and_then(|icon| icon.get("src").map(type_of));
    if src != Some(JsonType::Text) {
        notes.add("icon", "has no src: dropped");
        return ValueChange::Drop;
    }
    values::object_with("icon", value, notes, |key, value, notes| match key {
        "mimeType" => values::text("icon's mimeType", value, notes),
        "sizes" => sizes(value, notes),
        "theme" => values::word("icon's theme", value, &["light", "dark"], notes),
        _ => ValueChange::Keep,
    })
}

/// Checks the optional sizes. Drafts of the specification had one text.
fn sizes(value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    const AT: &str = "icon's sizes";
    match type_of(value) {
        JsonType::Array => match values::retained(value, |size| type_of(size) == JsonType::Text) {
            None => ValueChange::Keep,
            Some(kept) => {
                notes.add(AT, "has entries that are not strings: dropped");
                ValueChange::Set(RawJson::array(kept.iter()))
            }
        },
        JsonType::Text => {
            notes.add(AT, "is not a list: read as its only entry");
            ValueChange::Set(RawJson::array(std::iter::once(value)))
        }
        _ => drop_member(AT, value, "a list", notes),
    }
}
