//! Words for messages: the one that was probably meant, and lists of those that are possible.
//!
//! Owns the distance between words. Does not know keys or values. Invariant: a word far from all others suggests
//! nothing.

/// Limit of mistakes in a word.
const DISTANCE_MAX: usize = 3;

/// Finds the word that was probably meant.
pub fn nearest<'a>(text: &str, words: &[&'a str]) -> Option<&'a str> {
    let plain = |word: &str| -> String {
        word.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let written = plain(text);
    // No word is near whose length is not, and a distance costs the product of both lengths.
    let is_near = |other: &String| other.len().abs_diff(written.len()) <= DISTANCE_MAX;
    let near = words.iter().map(|word| (plain(word), *word)).filter(|(plain, _)| is_near(plain));
    let distances = near.map(|(plain, word)| (strsim::osa_distance(&written, &plain), word));
    let (distance, word) = distances.min_by_key(|(distance, _)| *distance)?;
    // One mistake in three letters, up to the limit.
    let close = (word.len().min(text.len()) / 3).clamp(1, DISTANCE_MAX);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_was_meant_is_near_in_length() {
        let keys = ["command", "args", "url", "connect_timeout"];
        for (text, meant) in [
            ("comand", Some("command")),
            ("ulr", Some("url")),
            ("connectTimout", Some("connect_timeout")),
            ("arguments", None),
            ("_", None),
        ] {
            assert_eq!(nearest(text, &keys), meant, "{text}");
        }
        // A distance has a step for each pair of letters: billions here.
        let known = "k".repeat(2_000);
        assert_eq!(nearest(&"k".repeat(200_000), &[&*known; 100]), None);
    }
}
