//! Reasons of mends, in words for an operator.
//!
//! Owns their bound. Does not mend. Invariant: an item has at most [`NOTES_MAX`] reasons, and each
//! is short.

use std::fmt::Display;

/// Maximum number of reasons of one item.
const NOTES_MAX: usize = 4;

/// Reasons of the mends of one item.
#[derive(Default)]
pub(super) struct MendNotes {
    texts: Vec<String>,
    more: usize,
}

impl MendNotes {
    /// Adds a reason. `at` names the member, and is empty for the whole item.
    pub(super) fn add(&mut self, at: &str, what: impl Display) {
        if self.texts.len() == NOTES_MAX {
            self.more += 1;
            return;
        }
        self.texts.push(if at.is_empty() {
            format!("it {what}")
        } else {
            format!("its {at} {what}")
        });
    }

    /// Returns true if nothing was mended.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns the reasons. The last one counts those beyond the bound.
    pub(super) fn into_texts(mut self) -> Vec<String> {
        if self.more > 0 {
            self.texts.push(format!("and {} more", self.more));
        }
        self.texts
    }
}

/// Returns a name of the server's as a reason can have it: in one piece, and short.
pub(super) fn short(name: &str) -> String {
    const SHORT: usize = 60;
    match name.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{:?}…", &name[..end]),
        None => format!("{name:?}"),
    }
}
