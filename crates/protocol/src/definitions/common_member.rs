//! Members that every kind of item has.
//!
//! Owns their list. Does not check values. Invariant: none of them is required.

use moongate_jsonrpc::json::{RawJson, ValueChange};

use super::mend_notes::MendNotes;
use super::{icons, values};

/// Checks a member that every kind of item has. `None`: it is the kind's own.
pub(super) fn common_member(
    key: &str,
    value: &RawJson,
    notes: &mut MendNotes,
) -> Option<ValueChange> {
    match key {
        "title" | "description" => Some(values::text(key, value, notes)),
        "icons" => Some(icons::icons(value, notes)),
        "_meta" => Some(values::object(key, value, notes)),
        _ => None,
    }
}
