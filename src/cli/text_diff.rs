//! Differences of two texts, as lines for people.
//!
//! Owns their form. Does not compare lines (`moongate-edit`), and does not find secrets
//! (`moongate_config::mask_file`). Invariant: no line shows a key or what looks like one.

use std::path::Path;

use moongate_edit::{LineChange, line_changes};
use moongate_telemetry::logs;
use moongate_telemetry::plain_text::is_invisible;

/// Lines of context around a change.
const CONTEXT: usize = 2;
/// Longest shown line in characters. Files of clients may have lines of megabytes.
const WIDTH_MAX: usize = 160;

/// Returns the difference of a client's file. Hides `key`, and all that looks like a secret.
pub(super) fn diff_of_file(path: &Path, before: &str, after: &str, key: Option<&str>) -> String {
    let [shown_before, shown_after] = [before, after].map(|text| {
        let masked = moongate_config::mask_file(path, text);
        match key.filter(|key| !key.is_empty()) {
            Some(key) => masked.replace(key, "***"),
            None => masked,
        }
    });
    diff((before, &shown_before), (after, &shown_after))
}

/// Returns the difference of two texts. Each comes with the form to show, which has the same lines.
fn diff((before, shown_before): (&str, &str), (after, shown_after): (&str, &str)) -> String {
    let old: Vec<&str> = before.trim_start_matches('\u{feff}').lines().collect();
    let new: Vec<&str> = after.trim_start_matches('\u{feff}').lines().collect();
    let shown_old: Vec<&str> = shown_before.lines().collect();
    let shown_new: Vec<&str> = shown_after.lines().collect();
    let shown = line_changes(&old, &new).into_iter().map(|(change, at)| {
        let side = if change == LineChange::Added {
            &shown_new
        } else {
            &shown_old
        };
        (change, side.get(at).copied().unwrap_or_default())
    });
    let lines: Vec<(LineChange, &str)> = shown.collect();
    let changed: Vec<usize> = lines
        .iter()
        .enumerate()
        .filter(|(_, (change, _))| *change != LineChange::Kept)
        .map(|(at, _)| at)
        .collect();
    let mut out = String::new();
    let mut skipped = false;
    for (at, (change, shown)) in lines.iter().enumerate() {
        let is_near = changed
            .iter()
            .any(|changed| changed.abs_diff(at) <= CONTEXT);
        if !is_near {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            out.push_str("  ...\n");
        }
        let (mark, from) = match change {
            LineChange::Kept => (' ', 0),
            LineChange::Removed => ('-', difference_at(&lines, at, LineChange::Added)),
            LineChange::Added => ('+', difference_at(&lines, at, LineChange::Removed)),
        };
        let is_hidden =
            |(other, there): &(LineChange, &str)| *other == LineChange::Removed && there == shown;
        let note = if mark == '+' && lines.iter().any(is_hidden) {
            "  (another value)"
        } else {
            ""
        };
        out.push_str(&format!("{mark} {}{note}\n", cut(shown, from)));
    }
    out
}

/// Returns the character at which a line starts to differ from the nearest line of another kind.
fn difference_at(lines: &[(LineChange, &str)], at: usize, other: LineChange) -> usize {
    let others = lines
        .iter()
        .enumerate()
        .filter(|(_, (change, _))| *change == other);
    let nearest = others.min_by_key(|(there, _)| there.abs_diff(at));
    nearest.map_or(0, |(_, (_, shown))| {
        shown
            .chars()
            .zip(lines[at].1.chars())
            .take_while(|(one, other)| one == other)
            .count()
    })
}

/// Cuts a long line around the character that matters.
fn cut(line: &str, from: usize) -> String {
    // What looks like a key may be where no key is known. Control characters could rewrite the
    // terminal.
    let line = logs::redact_values(line).replace("[redacted]", "***");
    let plain: Vec<char> = line
        .chars()
        .map(|c| if is_invisible(c) { ' ' } else { c })
        .collect();
    if plain.len() <= WIDTH_MAX {
        return plain.into_iter().collect();
    }
    let start = from
        .saturating_sub(WIDTH_MAX / 4)
        .min(plain.len() - WIDTH_MAX);
    let shown: String = plain[start..start + WIDTH_MAX].iter().collect();
    let [head, tail] =
        [start > 0, start + WIDTH_MAX < plain.len()].map(|is_cut| if is_cut { "..." } else { "" });
    format!("{head}{shown}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(before: &str, after: &str) -> String {
        diff((before, before), (after, after))
    }

    #[test]
    fn a_change_is_shown_with_its_neighbours_and_without_secrets() {
        let before = "a\nb\nc\nd\ne\nf\ng\n";
        assert_eq!(
            plain(before, "a\nb\nc\nd\nX\ne\nf\ng\n"),
            "  ...\n  c\n  d\n+ X\n  e\n  f\n"
        );
        assert_eq!(
            diff(("k = 1", "k = ***"), ("k = 2", "k = ***")),
            "- k = ***\n+ k = ***  (another value)\n"
        );
        assert_eq!(plain("a\n", "a\n"), "");
        assert_eq!(plain("a\nb\n", "b\nc\n"), "- a\n  b\n+ c\n");
        assert_eq!(plain("", "pasted sk-abcdefghijkl\n"), "+ pasted ***\n");
    }

    #[test]
    fn a_long_line_is_cut_around_what_changed() {
        let [before, after] =
            ["one", "two"].map(|word| format!("{}{word}{}", "x".repeat(1000), "y".repeat(1000)));
        let shown = plain(&before, &after);
        assert!(
            shown.contains("xone") && shown.contains("xtwo") && shown.len() < 400,
            "{shown}"
        );
    }
}
