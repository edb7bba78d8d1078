//! Texts that an edit writes as they are.
//!
//! Owns their spelling in our own formats. Does not know clients' files, which have no escape
//! (`plain_dollars`). Invariant: such a text refers to no variable and to no file.

/// Doubles each dollar sign: one alone would start a reference to a variable or a file.
pub(super) fn without_references(text: &str) -> String {
    text.replace('$', "$$")
}
