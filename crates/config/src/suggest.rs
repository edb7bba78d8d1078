//! Lists of words for messages.
//!
//! Owns their form. Does not find the word that was meant (`moongate-search`). Invariant: each word
//! is marked as code.

/// Joins words: "`a`, `b` and `c`".
pub(super) fn listed(words: &[&str]) -> String {
    joined(words, "and")
}

/// Joins words: "`a`, `b` or `c`".
pub(super) fn alternatives(words: &[&str]) -> String {
    joined(words, "or")
}

fn joined(words: &[&str], last: &str) -> String {
    match words {
        [] => "none".to_owned(),
        [only] => format!("`{only}`"),
        [first @ .., end] => {
            let first: Vec<String> = first.iter().map(|word| format!("`{word}`")).collect();
            format!("{} {last} `{end}`", first.join(", "))
        }
    }
}
