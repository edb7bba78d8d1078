//! Words for messages: the one that was probably meant, and lists of those that are possible.
//!
//! Owns the distance between words. Does not know keys or values. Invariant: a word far from all others suggests
//! nothing.

/// Finds the word that was probably meant.
pub fn nearest<'a>(text: &str, words: &[&'a str]) -> Option<&'a str> {
    let plain = |word: &str| -> String {
        word.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let written = plain(text);
    let distances = words.iter().map(|word| (strsim::osa_distance(&written, &plain(word)), *word));
    let (distance, word) = distances.min_by_key(|(distance, _)| *distance)?;
    // One mistake in three letters, but never more than three.
    let close = (word.len().min(text.len()) / 3).clamp(1, 3);
    (distance <= close && !written.is_empty()).then_some(word)
}

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
