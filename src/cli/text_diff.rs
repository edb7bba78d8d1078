//! Differences of two texts, as lines for people.
//!
//! Owns their form, and the secrets in it. Does not read files. Invariant: no line shows a key or what looks like one.

use std::path::Path;

use moongate_config::ServerEntry;
use moongate_telemetry::logs;

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

/// Shortest secret that is looked for in lines. Shorter ones are parts of other words.
const SECRET_MIN: usize = 4;

/// Returns the difference of a file with servers. Hides `key`, the servers' secrets, and all that looks like one.
pub(super) fn diff_of_file(path: &Path, before: &str, after: &str, key: Option<&str>) -> String {
    // Both texts are read: a removed line may show a secret that the new text no longer has.
    let read = [before, after].map(|text| moongate_config::server_entries(path, text).map(|read| read.servers));
    let servers: Vec<ServerEntry> = read.into_iter().filter_map(Result::ok).flatten().collect();
    let mut secrets: Vec<&str> = servers.iter().flat_map(ServerEntry::secrets).chain(key).collect();
    secrets.retain(|secret| secret.len() >= SECRET_MIN);
    // The longest first: one may be a part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    diff(before, after, &secrets)
}

/// Returns the difference, with `secrets` and all that looks like one hidden.
fn diff(before: &str, after: &str, secrets: &[&str]) -> String {
    let lines = changes(&before.lines().collect::<Vec<_>>(), &after.lines().collect::<Vec<_>>());
    let changed: Vec<usize> =
        lines.iter().enumerate().filter(|(_, (change, _))| *change != LineChange::Kept).map(|(at, _)| at).collect();
    let is_near = |at: usize| changed.iter().any(|changed| changed.abs_diff(at) <= CONTEXT);
    let mut out = String::new();
    let mut skipped = false;
    for (at, (change, line)) in lines.iter().enumerate() {
        if !is_near(at) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            out.push_str("  ...\n");
        }
        let mark = match change {
            LineChange::Kept => ' ',
            LineChange::Removed => '-',
            LineChange::Added => '+',
        };
        out.push_str(&format!("{mark} {}\n", masked(line, secrets)));
    }
    out
}

fn masked(line: &str, secrets: &[&str]) -> String {
    let hidden = secrets
        .iter()
        .filter(|secret| !secret.is_empty())
        .fold(line.to_owned(), |line, secret| line.replace(secret, "***"));
    // The known secrets come first. What is left is judged by its look, which a part of a secret may not
    // have.
    let hidden = logs::redact(&hidden).replace("[redacted]", "***");
    // Cut last: half a secret would no longer match what is hidden. Control characters could rewrite the
    // terminal.
    let shown: String =
        hidden.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }).take(WIDTH_MAX).collect();
    if hidden.chars().count() > WIDTH_MAX { shown + "..." } else { shown }
}

/// Compares lines. What is equal at both ends needs no search.
fn changes<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<(LineChange, &'a str)> {
    let start = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let (rest_before, rest_after) = (&before[start..], &after[start..]);
    let end = rest_before.iter().rev().zip(rest_after.iter().rev()).take_while(|(one, other)| one == other).count();
    let (middle_before, tail) = rest_before.split_at(rest_before.len() - end);
    let middle_after = &rest_after[..rest_after.len() - end];
    let kept = |lines: &[&'a str]| lines.iter().map(|line| (LineChange::Kept, *line)).collect::<Vec<_>>();
    let mut out = kept(&before[..start]);
    out.extend(shortest(middle_before, middle_after));
    out.extend(kept(tail));
    out
}

/// Finds the shortest difference by the longest common subsequence.
fn shortest<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<(LineChange, &'a str)> {
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
            common[row * width + column] = if before[row] == after[column] { diagonal } else { below.max(beside) };
        }
    }
    let (mut row, mut column) = (0, 0);
    while row < rows || column < columns {
        if row < rows && column < columns && before[row] == after[column] {
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

    #[test]
    fn a_change_is_shown_with_its_neighbours_and_without_secrets() {
        let before = "a\nb\nc\nd\ne\nf\ng\n";
        let after = "a\nb\nc\nd\nX key9\ne\nf\n  \"Authorization\": \"Bearer s3cr3t\"\ng\n";
        let shown = "  ...\n  c\n  d\n+ X ***\n  e\n  f\n+   \"Authorization\": \"***\"\n  g\n";
        assert_eq!(diff(before, after, &["key9"]), shown);
        assert_eq!(diff("a\n", "a\n", &[]), "");
        assert_eq!(diff("a\nb\n", "b\nc\n", &[]), "- a\n  b\n+ c\n");
        assert!(diff("", &"x".repeat(1000), &[]).len() < 200);
    }
}
