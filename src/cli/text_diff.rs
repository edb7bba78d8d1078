//! Differences of two texts, as lines for people.
//!
//! Owns their form. Does not compare lines (`similar`), and does not find secrets
//! (`moongate_config::mask_file`). Invariant: no line shows a key or what looks like one.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use moongate_telemetry::logs;
use moongate_telemetry::plain_text::is_invisible;
use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};
use tokio::time::Instant;

/// Lines of context around a change.
const CONTEXT: usize = 2;
/// Longest shown line in characters. Files of clients may have lines of megabytes.
const WIDTH_MAX: usize = 160;
/// Time to look for the shortest difference. Texts that have little in common take quadratic time,
/// so what is left then counts as replaced.
const SEARCH_MAX: Duration = Duration::from_secs(2);

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
    let deadline = (Instant::now() + SEARCH_MAX).into_std();
    let changes = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(deadline));
    let shown = ShownTexts::new(shown_before, shown_after, &changes);
    let mut out = String::new();
    let mut end = 0;
    for hunk in group_diff_ops(changes, CONTEXT) {
        if hunk.first().is_some_and(|op| op.old_range().start > end) {
            out.push_str("  ...\n");
        }
        for op in hunk {
            out.push_str(&shown.lines_of(op));
            end = op.old_range().end;
        }
    }
    out
}

/// Lines of both texts in the form to show.
struct ShownTexts<'a> {
    before: Vec<&'a str>,
    after: Vec<&'a str>,
    /// All removed lines. An added line that looks like one of them differs in what is hidden.
    removed: HashSet<&'a str>,
}

impl<'a> ShownTexts<'a> {
    fn new(before: &'a str, after: &'a str, changes: &[DiffOp]) -> Self {
        let before: Vec<&str> = before.lines().collect();
        let removed = changes
            .iter()
            .filter(|op| op.tag() != DiffTag::Equal)
            .flat_map(|op| lines_in(&before, op.old_range()))
            .collect();
        ShownTexts {
            before,
            after: after.lines().collect(),
            removed,
        }
    }

    fn lines_of(&self, op: DiffOp) -> String {
        let mut out = String::new();
        let removed = lines_in(&self.before, op.old_range());
        if op.tag() == DiffTag::Equal {
            for line in removed {
                out.push_str(&format!("  {}\n", cut(line, 0)));
            }
            return out;
        }
        let added = lines_in(&self.after, op.new_range());
        for (at, line) in removed.iter().enumerate() {
            let from = difference_start(line, counterpart(&added, at));
            out.push_str(&format!("- {}\n", cut(line, from)));
        }
        for (at, line) in added.iter().enumerate() {
            let from = difference_start(line, counterpart(&removed, at));
            let note = if self.removed.contains(line) {
                "  (another value)"
            } else {
                ""
            };
            out.push_str(&format!("+ {}{note}\n", cut(line, from)));
        }
        out
    }
}

fn lines_in<'a>(lines: &[&'a str], range: Range<usize>) -> Vec<&'a str> {
    range
        .map(|at| lines.get(at).copied().unwrap_or_default())
        .collect()
}

/// Returns the line of the other text that takes the place of the line at an index.
fn counterpart<'a>(others: &[&'a str], at: usize) -> &'a str {
    others
        .get(at)
        .or(others.last())
        .copied()
        .unwrap_or_default()
}

/// Returns the character at which a line starts to differ from another one.
fn difference_start(line: &str, other: &str) -> usize {
    line.chars()
        .zip(other.chars())
        .take_while(|(one, other)| one == other)
        .count()
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

    /// Text of a client's file with 900 projects. Some of them have a server.
    fn projects(with_server: &[usize]) -> String {
        let mut out = String::from("{\n");
        for project in 0..900 {
            out.push_str(&format!("  \"/p/{project}\": {{\n    \"mcpServers\": {{\n"));
            if with_server.contains(&project) {
                out.push_str("      \"x\": {\n        \"command\": \"npx\"\n      }\n");
            }
            out.push_str("    },\n");
            for _ in 0..15 {
                out.push_str("    \"\": [],\n");
            }
            out.push_str(&format!("    \"cost\": {project}\n  }},\n"));
        }
        out + "}\n"
    }

    #[test]
    fn far_changes_in_a_long_file_are_short_hunks() {
        let shown = plain(&projects(&[100, 700]), &projects(&[]));
        let hunk = "  ...\n  {place}\n      \"mcpServers\": {\n-       \"x\": {\n\
                    -         \"command\": \"npx\"\n-       }\n      },\n      \"\": [],\n";
        let [first, second] =
            [100, 700].map(|at| hunk.replace("{place}", &format!("  \"/p/{at}\": {{")));
        assert_eq!(shown, first + &second);
    }

    #[test]
    fn texts_with_nothing_in_common_are_replaced() {
        assert_eq!(plain("a\nb\n", "c\nd\n"), "- a\n- b\n+ c\n+ d\n");
        assert_eq!(plain("", "a\n"), "+ a\n");
        assert_eq!(plain("a\n", ""), "- a\n");
    }
}
