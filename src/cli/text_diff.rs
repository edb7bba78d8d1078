//! Differences of two texts, as lines for people.
//!
//! Owns their form. Does not read files, and does not find secrets (`moongate_config::mask_file`). Invariant: no line shows a key or what looks like one.

use std::path::Path;

use moongate_telemetry::logs;
use moongate_telemetry::plain_text::is_invisible;

/// Lines of context around a change.
const CONTEXT: usize = 2;
/// Product of line counts up to which the shortest difference is looked for. Larger parts are shown as a whole.
const CELLS_MAX: usize = 4_000_000;
/// Longest shown line in characters. Files of clients may have lines of megabytes.
const WIDTH_MAX: usize = 160;

/// Kind of a line in a difference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineChange {
    Kept,
    Removed,
    Added,
}

/// Returns the difference of a client's file. Hides `key`, and all that looks like a secret.
pub(super) fn diff_of_file(path: &Path, before: &str, after: &str, key: Option<&str>) -> String {
    let shown = |text: &str| {
        let masked = moongate_config::mask_file(path, text);
        key.filter(|key| !key.is_empty()).map_or_else(|| masked.clone(), |key| masked.replace(key, "***"))
    };
    diff((before, &shown(before)), (after, &shown(after)))
}

/// Line of a difference: its own text is compared, and the other one is shown.
type ShownLine<'a> = (&'a str, &'a str);

/// Returns the difference of two texts. Each comes with the form to show, which has the same lines.
fn diff((before, shown_before): (&str, &str), (after, shown_after): (&str, &str)) -> String {
    fn pairs<'a>(text: &'a str, shown: &'a str) -> Vec<ShownLine<'a>> {
        text.trim_start_matches('\u{feff}').lines().zip(shown.lines()).collect()
    }
    let lines = changes(&pairs(before, shown_before), &pairs(after, shown_after));
    let changed: Vec<usize> =
        lines.iter().enumerate().filter(|(_, (change, _))| *change != LineChange::Kept).map(|(at, _)| at).collect();
    let is_near = |at: usize| changed.iter().any(|changed| changed.abs_diff(at) <= CONTEXT);
    let mut out = String::new();
    let mut skipped = false;
    for (at, (change, (_, shown))) in lines.iter().enumerate() {
        if !is_near(at) {
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
            |(other, (_, there)): &(LineChange, ShownLine<'_>)| *other == LineChange::Removed && there == shown;
        let note = if mark == '+' && lines.iter().any(is_hidden) { "  (another value)" } else { "" };
        out.push_str(&format!("{mark} {}{note}\n", cut(shown, from)));
    }
    out
}

/// Returns the character at which a line begins to differ from the nearest line of another kind.
fn difference_at(lines: &[(LineChange, ShownLine<'_>)], at: usize, other: LineChange) -> usize {
    let others = lines.iter().enumerate().filter(|(_, (change, _))| *change == other);
    let nearest = others.min_by_key(|(there, _)| there.abs_diff(at));
    let same = |text: &str| text.chars().zip(lines[at].1.1.chars()).take_while(|(one, other)| one == other).count();
    nearest.map_or(0, |(_, (_, (_, shown)))| same(shown))
}

/// Cuts a long line around the character that matters.
fn cut(line: &str, from: usize) -> String {
    // What looks like a key may stand where no key is known. Control characters could rewrite the terminal.
    let line = logs::redact_values(line).replace("[redacted]", "***");
    let plain: Vec<char> = line.chars().map(|c| if is_invisible(c) { ' ' } else { c }).collect();
    if plain.len() <= WIDTH_MAX {
        return plain.into_iter().collect();
    }
    let start = from.saturating_sub(WIDTH_MAX / 4).min(plain.len() - WIDTH_MAX);
    let shown: String = plain[start..start + WIDTH_MAX].iter().collect();
    let dots = |is_cut: bool| if is_cut { "..." } else { "" };
    format!("{}{shown}{}", dots(start > 0), dots(start + WIDTH_MAX < plain.len()))
}

/// Compares lines. What is equal at both ends needs no search.
fn changes<'a>(before: &[ShownLine<'a>], after: &[ShownLine<'a>]) -> Vec<(LineChange, ShownLine<'a>)> {
    let is_same = |(one, other): &(&ShownLine<'_>, &ShownLine<'_>)| one.0 == other.0;
    let start = before.iter().zip(after).take_while(is_same).count();
    let (rest_before, rest_after) = (&before[start..], &after[start..]);
    let end = rest_before.iter().rev().zip(rest_after.iter().rev()).take_while(is_same).count();
    let (middle_before, tail) = rest_before.split_at(rest_before.len() - end);
    let middle_after = &rest_after[..rest_after.len() - end];
    let kept = |lines: &[ShownLine<'a>]| lines.iter().map(|line| (LineChange::Kept, *line)).collect::<Vec<_>>();
    let mut out = kept(&before[..start]);
    out.extend(shortest(middle_before, middle_after));
    out.extend(kept(tail));
    out
}

/// Finds the shortest difference by the longest common subsequence.
fn shortest<'a>(before: &[ShownLine<'a>], after: &[ShownLine<'a>]) -> Vec<(LineChange, ShownLine<'a>)> {
    let mut out = Vec::new();
    let (rows, columns) = (before.len(), after.len());
    // The table has a cell for each pair of lines. Files of megabytes would take gigabytes.
    if rows.saturating_mul(columns) > CELLS_MAX {
        out.extend(before.iter().map(|line| (LineChange::Removed, *line)));
        out.extend(after.iter().map(|line| (LineChange::Added, *line)));
        return out;
    }
    let width = columns + 1;
    let mut common = vec![0_u32; (rows + 1) * width];
    // The table is filled from the end, so that the walk below goes forward and needs no reversal.
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            let below = common[(row + 1) * width + column];
            let beside = common[row * width + column + 1];
            let diagonal = common[(row + 1) * width + column + 1] + 1;
            common[row * width + column] = if before[row].0 == after[column].0 { diagonal } else { below.max(beside) };
        }
    }
    let (mut row, mut column) = (0, 0);
    while row < rows || column < columns {
        if row < rows && column < columns && before[row].0 == after[column].0 {
            out.push((LineChange::Kept, before[row]));
            (row, column) = (row + 1, column + 1);
        } else if column == columns
            || row < rows && common[(row + 1) * width + column] >= common[row * width + column + 1]
        {
            out.push((LineChange::Removed, before[row]));
            row += 1;
        } else {
            out.push((LineChange::Added, after[column]));
            column += 1;
        }
    }
    out
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
        assert_eq!(plain(before, "a\nb\nc\nd\nX\ne\nf\ng\n"), "  ...\n  c\n  d\n+ X\n  e\n  f\n");
        assert_eq!(diff(("k = 1", "k = ***"), ("k = 2", "k = ***")), "- k = ***\n+ k = ***  (another value)\n");
        assert_eq!(plain("a\n", "a\n"), "");
        assert_eq!(plain("a\nb\n", "b\nc\n"), "- a\n  b\n+ c\n");
        assert_eq!(plain("", "pasted sk-abcdefghijkl\n"), "+ pasted ***\n");
    }

    #[test]
    fn a_long_line_is_cut_around_what_changed() {
        let long = |word: &str| format!("{}{word}{}", "x".repeat(1000), "y".repeat(1000));
        let shown = plain(&long("one"), &long("two"));
        assert!(shown.contains("xone") && shown.contains("xtwo") && shown.len() < 400, "{shown}");
    }
}
