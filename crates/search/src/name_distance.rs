//! Distance between names, to find the one that was probably meant.
//!
//! Owns the limit beyond which two names are strangers. Does not know what has the names.
//! Invariant: the work for one pair is bounded, however long the names are.

/// Limit of edits between two names.
const EDITS_MAX: usize = 3;
/// Characters of a name that are compared. A comparison takes the product of both lengths.
const COMPARED_MAX: usize = 128;
/// Shortest prefix that stands for a whole name, in letters.
const BEGINNING_MIN: usize = 3;

/// Returns the number of edits between two names, if it is small. Case and separators do not count.
pub fn few_edits(wanted: &str, name: &str) -> Option<usize> {
    edits(&plain(wanted), &plain(name)).filter(|edits| *edits <= edits_max(wanted, name))
}

/// Returns the same, and for a name of which only the start is written, the limit of edits.
pub fn few_edits_or_beginning(wanted: &str, name: &str) -> Option<usize> {
    let beginning = plain(wanted);
    let begins = beginning.chars().count() >= BEGINNING_MIN && plain(name).starts_with(&beginning);
    few_edits(wanted, name).or_else(|| begins.then(|| edits_max(wanted, name)))
}

/// Finds the name that was probably meant, the first of those that are equally near.
pub fn nearest<'a>(wanted: &str, names: &[&'a str]) -> Option<&'a str> {
    let near = names
        .iter()
        .filter_map(|name| Some((few_edits(wanted, name)?, *name)));
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// One mistake in three letters, up to the limit.
fn edits_max(one: &str, other: &str) -> usize {
    (one.len().min(other.len()) / 3).clamp(1, EDITS_MAX)
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

fn edits(one: &str, other: &str) -> Option<usize> {
    // No name is near whose length is not.
    if one.is_empty() || other.is_empty() || one.len().abs_diff(other.len()) > 4 * EDITS_MAX {
        return None;
    }
    Some(strsim::osa_distance(
        &compared_part(one),
        &compared_part(other),
    ))
}

fn compared_part(name: &str) -> String {
    name.chars().take(COMPARED_MAX).collect()
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
            ("connect", None),
            ("_", None),
        ] {
            assert_eq!(nearest(text, &keys), meant, "{text}");
        }
        // A distance has a step for each pair of letters: billions here.
        let known = "k".repeat(2_000);
        assert_eq!(nearest(&"k".repeat(200_000), &[&*known; 100]), None);
        assert_eq!(few_edits(&known, &known), Some(0));
    }

    #[test]
    fn a_beginning_stands_for_the_whole_name() {
        assert_eq!(few_edits_or_beginning("con", "connect_timeout"), Some(1));
        assert_eq!(few_edits_or_beginning("co", "connect_timeout"), None);
        assert_eq!(
            few_edits_or_beginning("Connect-Timeout", "connect_timeout"),
            Some(0)
        );
    }
}
