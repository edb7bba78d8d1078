//! Text to paste where a file cannot be edited.
//!
//! Owns what of an edit is shown: the whole value that each path would have. Does not change a
//! file. Invariant: the text has the format of the file, and nothing that the edits do not name.

use serde_json::{Map, Value};

use crate::edit_action::{Edit, EditAction};
use crate::editor::edit;
use crate::format::Format;
use crate::plan;
use crate::proof::ParsedText;

/// Returns the lines that a file would have with these edits. `None` where there is only something
/// to take away.
pub fn snippet(format: Format, text: &str, edits: &[Edit]) -> Option<String> {
    let parsed = ParsedText::parse(format, text.trim_start_matches('\u{feff}').to_owned());
    let mut tree = match &parsed {
        Ok(parsed) => parsed.tree().clone(),
        Err(_) => Value::Object(Map::new()),
    };
    // Without the list that the file has, a part of one would take its place.
    let edits: Vec<Edit> = edits
        .iter()
        .filter(|edit| parsed.is_ok() || matches!(edit.action(), EditAction::Set(_)))
        .cloned()
        .collect();
    plan::apply_edits(&edits, &mut tree).ok()?;
    let mut shown: Vec<Edit> = Vec::new();
    for edit in &edits {
        let value = match (plan::value_at(&tree, edit.path()), edit.action()) {
            (_, EditAction::RemoveIfEmpty) => continue,
            (Some(value), _) => value.clone(),
            // The list is gone with its last item.
            (None, EditAction::RemoveItem(_)) => Value::Array(Vec::new()),
            (None, _) => continue,
        };
        if shown.iter().all(|known| known.path() != edit.path()) {
            shown.push(Edit::new(
                edit.path().iter().cloned(),
                EditAction::Set(value),
            ));
        }
    }
    let text = self::edit(format, "", &shown).ok()?;
    (!text.is_empty()).then_some(text)
}
