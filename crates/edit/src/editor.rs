//! Editor of texts.
//!
//! Owns the loop that makes edits one change at a time. Does not know any format. Invariant: each change is proved before
//! the next one.

use crate::error::EditError;
use crate::format::Format;
use crate::operation::Edit;
use crate::plan;
use crate::proof;

/// Changes of one call. More means an edit that never settles.
const CHANGES_MAX: usize = 10_000;
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Makes all edits, one after the other, and proves each change. A text that is already as wanted comes back unchanged.
pub fn edit(format: Format, text: &str, edits: &[Edit]) -> Result<String, EditError> {
    // Some editors on Windows write the mark. Parsers differ in what they do with it, so none of them sees
    // it.
    let (mark, text) = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (BYTE_ORDER_MARK, rest),
        None => ("", text),
    };
    let mut current = proof::ParsedText::parse(format, text.to_owned())?;
    let mut changes = 0;
    for edit in edits {
        // One edit may need many changes. Each starts from the parsed result of the one before, so its ranges
        // are never stale.
        while let Some(change) = plan::next_change(edit, current.tree())? {
            changes += 1;
            if changes > CHANGES_MAX {
                return Err(EditError::refuse("it needs too many changes"));
            }
            current = current.apply(&change)?;
        }
    }
    Ok(format!("{mark}{}", current.text()))
}
