//! Difference of two texts by lines.
//!
//! Owns its form. Does not compare lines (`moongate-edit`). Invariant: lines that are equal at both
//! ends are left out, since an edit in place changes one region.

use moongate_edit::common_ends;

/// Returns the changed region: removed lines with `-`, added lines with `+`. Each text comes with
/// the form to show, which has the same lines.
pub(super) fn changed_lines(
    (before, shown_before): (&str, &str),
    (after, shown_after): (&str, &str),
) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let (start, end) = common_ends(&old, &new);
    let region = |shown: &str, count: usize, mark: char| {
        let lines = shown.lines().skip(start).take(count - end - start);
        lines
            .map(|line| format!("{mark} {line}\n"))
            .collect::<String>()
    };
    region(shown_before, old.len(), '-') + &region(shown_after, new.len(), '+')
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_changed_region_is_shown() {
        let before = "a\nb\nc\n";
        let after = "a\nb\n\nx\nc\n";
        let changed_lines = |before, after| changed_lines((before, before), (after, after));
        assert_eq!(changed_lines(before, after), "+ \n+ x\n");
        assert_eq!(
            (
                first_changed_line(before, after),
                first_changed_line(after, before)
            ),
            (4, 3)
        );
        assert_eq!(changed_lines("a\nb\n", "a\nc\n"), "- b\n+ c\n");
        assert_eq!(
            super::changed_lines(("k = 1", "k = *"), ("k = 2", "k = *")),
            "- k = *\n+ k = *\n"
        );
        assert_eq!(
            (changed_lines("a", "a"), changed_lines("", "a")),
            (String::new(), "+ a\n".to_owned())
        );
    }
}
