//! Difference of two texts by lines.
//!
//! Owns its form. Does not look for equal lines inside the changed region. Invariant: lines that are
//! equal at both ends are left out, since an edit in place changes one region.

use std::ops::Range;

/// Returns the changed region: removed lines with `-`, added lines with `+`. Each text comes with
/// the form to show, which has the same lines.
pub(super) fn changed_lines(
    (before, shown_before): (&str, &str),
    (after, shown_after): (&str, &str),
) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let (start, end) = common_ends(&old, &new);
    marked_lines(shown_before, start..old.len() - end, '-')
        + &marked_lines(shown_after, start..new.len() - end, '+')
}

fn marked_lines(text: &str, lines: Range<usize>, mark: char) -> String {
    text.lines()
        .skip(lines.start)
        .take(lines.len())
        .map(|line| format!("{mark} {line}\n"))
        .collect()
}

/// Returns the number of the first line that differs, from 1. Blank lines that only part entries
/// are skipped.
pub(super) fn first_changed_line(before: &str, after: &str) -> usize {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let (start, end) = common_ends(&old, &new);
    let blank = new[start..new.len() - end]
        .iter()
        .take_while(|line| line.trim().is_empty())
        .count();
    start + blank + 1
}

/// Counts the lines that two texts have in common at the start and at the end.
fn common_ends(old: &[&str], new: &[&str]) -> (usize, usize) {
    let start = old
        .iter()
        .zip(new)
        .take_while(|(one, other)| one == other)
        .count();
    // Without the common start: a repeated line must not count at both ends.
    let old = &old[start..];
    let new = &new[start..];
    (
        start,
        old.iter()
            .rev()
            .zip(new.iter().rev())
            .take_while(|(one, other)| one == other)
            .count(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_changed_region_is_shown() {
        let before = "a\nb\nc\n";
        let after = "a\nb\n\nx\nc\n";
        assert_eq!(plain_changes(before, after), "+ \n+ x\n");
        assert_eq!(first_changed_line(before, after), 4);
        assert_eq!(first_changed_line(after, before), 3);
        assert_eq!(plain_changes("a\nb\n", "a\nc\n"), "- b\n+ c\n");
        assert_eq!(
            changed_lines(("k = 1", "k = *"), ("k = 2", "k = *")),
            "- k = *\n+ k = *\n"
        );
        assert_eq!(plain_changes("a", "a"), "");
        assert_eq!(plain_changes("", "a"), "+ a\n");
    }

    /// Compares texts that are shown as they are.
    fn plain_changes(before: &str, after: &str) -> String {
        changed_lines((before, before), (after, after))
    }
}
