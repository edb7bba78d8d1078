//! Text of an error with all its causes.
//!
//! Owns the joining of the texts. Does not know any kind of error. Invariant: no cause is named
//! twice in a row.

/// Returns an error with its causes. The outermost error alone says little.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
