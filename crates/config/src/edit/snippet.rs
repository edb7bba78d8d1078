//! Lines to paste where a config is not edited.
//!
//! Owns the words for what an edit only takes away. Does not write lines (`moongate_edit`).
//! Invariant: pasted over the entry in the file, they have the effect of the edit.

use std::path::Path;

use moongate_edit::{Edit, EditAction, Format, PathStep};

/// Returns the lines that a file would have with these edits. `None` where something is only taken
/// away.
pub(super) fn snippet(path: &Path, text: &str, edits: &[Edit]) -> Option<String> {
    let edits: Vec<Edit> = edits
        .iter()
        .map(|edit| match removed_switch(edit) {
            Some(value) => Edit::new(edit.path().iter().cloned(), EditAction::Set(value.into())),
            None => edit.clone(),
        })
        .collect();
    moongate_edit::snippet(Format::of_file(path)?, text, &edits)
}

/// Returns the value that has the effect of removing a switch. A server is on where nothing says
/// otherwise, which cannot be pasted.
fn removed_switch(edit: &Edit) -> Option<bool> {
    match (edit.action(), edit.path().last()) {
        (EditAction::Remove, Some(PathStep::Key(key))) if key == "enabled" => Some(true),
        (EditAction::Remove, Some(PathStep::Key(key))) if key == "disabled" => Some(false),
        _ => None,
    }
}
