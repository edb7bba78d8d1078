//! Editor of texts.
//!
//! Owns the loop that makes edits: one change at a time, or many of one list at once. Does not know
//! any format. Invariant: each step is proved before the next one.

use std::ops::Range;

use serde_json::Value;

use crate::edit_action::{Edit, EditAction, PathStep};
use crate::error::EditError;
use crate::format::Format;
use crate::plan;
use crate::proof::ParsedText;

/// Changes of one call. More means an edit that never settles.
const CHANGES_MAX: usize = 10_000;
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Makes all edits, one after the other, and proves each change. A text that needs no change comes
/// back as it is.
pub fn edit(format: Format, text: &str, edits: &[Edit]) -> Result<String, EditError> {
    // Some editors on Windows write the mark. Parsers differ in what they do with it, so none of
    // them sees it.
    let (mark, text) = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (BYTE_ORDER_MARK, rest),
        None => ("", text),
    };
    let mut current = ParsedText::parse(format, text.to_owned())?;
    let mut changes = 0;
    for group in edits.chunk_by(is_same_list) {
        current = make(current, group, &mut changes)?;
    }
    Ok(format!("{mark}{}", current.text()))
}

/// Finds the comments of a text.
pub fn comments(format: Format, text: &str) -> Result<Vec<Range<usize>>, EditError> {
    Ok(ParsedText::parse(format, text.to_owned())?
        .comments()
        .to_vec())
}

/// Returns the value that a path leads to in a text. `None` if there is none.
pub fn read_value(
    format: Format,
    text: &str,
    path: &[PathStep],
) -> Result<Option<Value>, EditError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let parsed = ParsedText::parse(format, text.to_owned())?;
    Ok(plan::value_at(parsed.tree(), path).cloned())
}

/// True if both edits add to the same list, or take from it.
fn is_same_list(one: &Edit, other: &Edit) -> bool {
    use EditAction::{AddItem, RemoveItem};
    let actions = (one.action(), other.action());
    one.path() == other.path()
        && matches!(
            actions,
            (AddItem(_), AddItem(_)) | (RemoveItem(_), RemoveItem(_))
        )
}

/// Makes edits of one list in as few steps as the text allows: each step parses the whole text.
fn make(current: ParsedText, edits: &[Edit], changes: &mut usize) -> Result<ParsedText, EditError> {
    match edits {
        [] => Ok(current),
        [edit] => make_one(current, edit, changes),
        edits => {
            if let Some(done) = current.apply_at_once(edits) {
                // An item that was in the list twice is still there once.
                return edits
                    .iter()
                    .try_fold(done, |current, edit| make_one(current, edit, changes));
            }
            // Some texts take the first or the last item of a list in a separate step.
            let (first, rest) = edits.split_at(edits.len() / 2);
            let current = make(current, first, changes)?;
            make(current, rest, changes)
        }
    }
}

fn make_one(
    mut current: ParsedText,
    edit: &Edit,
    changes: &mut usize,
) -> Result<ParsedText, EditError> {
    // One edit may need many changes. Each starts from the parsed result of the one before, so its
    // ranges are never stale.
    while let Some(change) = plan::next_change(edit, current.tree())? {
        *changes += 1;
        if *changes > CHANGES_MAX {
            return Err(EditError::refuse("it needs too many changes"));
        }
        current = current.apply(&change)?;
    }
    Ok(current)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_read_where_an_edit_would_change_it() {
        let path = ["a", "b"].map(PathStep::from);
        for (format, text) in [
            (Format::Json, "\u{feff}{\"a\": {\"b\": [1]}} // end\n"),
            (Format::Toml, "[a]\nb = [1]\n"),
            (Format::Yaml, "a:\n  b: [1]\n"),
        ] {
            assert_eq!(read_value(format, text, &path), Ok(Some(json!([1]))));
            let missing = ["a", "c"].map(PathStep::from);
            assert_eq!(read_value(format, text, &missing), Ok(None));
            assert_eq!(read_value(format, "", &path), Ok(None));
        }
        assert!(read_value(Format::Json, "{", &path).is_err());
    }
}
