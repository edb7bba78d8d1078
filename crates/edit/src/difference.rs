//! Difference of two texts, as edits.
//!
//! Owns the comparison of their trees. Does not change a text. Invariant: the edits make the first
//! tree the second, and name nothing that is equal in both.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::edit_action::{Edit, EditAction, PathStep};
use crate::error::EditError;
use crate::format::Format;
use crate::proof::ParsedText;

/// Fields that distinguish the elements of a list.
const NAME_FIELDS: [&str; 2] = ["name", "id"];

/// Returns the edits that lead from one text to another. They also fit a text that others changed
/// elsewhere.
pub fn difference(format: Format, from: &str, to: &str) -> Result<Vec<Edit>, EditError> {
    let from = parse(format, from)?;
    let to = parse(format, to)?;
    let mut edits = Vec::new();
    compare(&[], from.tree(), to.tree(), &mut edits)?;
    Ok(edits)
}

fn parse(format: Format, text: &str) -> Result<ParsedText, EditError> {
    ParsedText::parse(format, text.trim_start_matches('\u{feff}').to_owned())
}

fn compare(
    path: &[PathStep],
    from: &Value,
    to: &Value,
    edits: &mut Vec<Edit>,
) -> Result<(), EditError> {
    if from == to {
        return Ok(());
    }
    let (Some(old), Some(new)) = (members(from), members(to)) else {
        if path.is_empty() {
            return Err(EditError::refuse("the texts have no common table"));
        }
        edits.push(Edit::new(path.to_vec(), EditAction::Set(to.clone())));
        return Ok(());
    };
    let old_steps: HashSet<&PathStep> = old.iter().map(|(step, _)| step).collect();
    // Of elements with one name, the first is meant. The last in reverse stays.
    let of_step: HashMap<&PathStep, &Value> = new
        .iter()
        .rev()
        .map(|(step, value)| (step, *value))
        .collect();
    for (step, value) in &old {
        let below = [path, std::slice::from_ref(step)].concat();
        match of_step.get(step) {
            Some(other) if other.is_object() == value.is_object() => {
                compare(&below, value, other, edits)?
            }
            Some(other) => edits.push(Edit::new(below, EditAction::Set((*other).clone()))),
            None => remove(below, value, edits),
        }
    }
    for (step, value) in &new {
        if !old_steps.contains(step) {
            let below = path.iter().chain([step]).cloned();
            edits.push(Edit::new(below, EditAction::Set((*value).clone())));
        }
    }
    Ok(())
}

/// Removes a value. A container at the top is taken apart, since others may have added to it.
fn remove(path: Vec<PathStep>, value: &Value, edits: &mut Vec<Edit>) {
    let inside = members(value).filter(|inside| path.len() == 1 && !inside.is_empty());
    let Some(inside) = inside else {
        return edits.push(Edit::new(path, EditAction::Remove));
    };
    for (step, _) in inside {
        edits.push(Edit::new(
            path.iter().cloned().chain([step]),
            EditAction::Remove,
        ));
    }
    edits.push(Edit::new(path, EditAction::RemoveIfEmpty));
}

/// Returns the members of a table, or of a list whose elements have names.
fn members(value: &Value) -> Option<Vec<(PathStep, &Value)>> {
    match value {
        Value::Object(table) => Some(
            table
                .iter()
                .map(|(key, value)| (PathStep::Key(key.clone()), value))
                .collect(),
        ),
        Value::Array(items) => items
            .iter()
            .map(|item| Some((name_step(item.as_object()?)?, item)))
            .collect(),
        _ => None,
    }
}

fn name_step(item: &Map<String, Value>) -> Option<PathStep> {
    NAME_FIELDS.iter().find_map(|field| {
        Some(PathStep::Item {
            field: (*field).to_owned(),
            value: item.get(*field)?.as_str()?.to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::edit;

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    /// Undoes the change from one text to another in a third.
    fn undone(before: &str, written: &str, now: &str) -> String {
        edit(
            Format::Json,
            now,
            &difference(Format::Json, written, before).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn a_change_is_undone_where_others_changed_something_else() {
        let before = r#"{"n": 1, "s": {"a": 1}, "l": [{"id": "x", "v": 1}]}"#;
        let written = r#"{"n": 1, "s": {"a": 2, "m": {"k": 1}}, "l": [{"id": "x", "v": 1}, {"id": "m"}], "t": {"m": 1}}"#;
        assert_eq!(difference(Format::Json, written, written), Ok(Vec::new()));
        assert_eq!(parsed(&undone(before, written, written)), parsed(before));
        let now = written
            .replace("\"n\": 1", "\"n\": 5")
            .replace("{\"m\": 1}", "{\"m\": 1, \"o\": 1}");
        let expected = r#"{"n": 5, "s": {"a": 1}, "l": [{"id": "x", "v": 1}], "t": {"o": 1}}"#;
        assert_eq!(parsed(&undone(before, written, &now)), parsed(expected));
        assert_eq!(
            parsed(&undone(
                "",
                r#"{"s": {"m": 1}}"#,
                r#"{"s": {"m": 1, "o": 1}}"#
            )),
            parsed(r#"{"s": {"o": 1}}"#)
        );
        assert_eq!(
            parsed(&undone(
                r#"{"s": {"gone": 1}}"#,
                r#"{"s": {}}"#,
                r#"{"s": {"o": 1}}"#
            )),
            parsed(r#"{"s": {"o": 1, "gone": 1}}"#)
        );
        assert!(difference(Format::Json, "[1]", "{}").is_err());
    }
}
