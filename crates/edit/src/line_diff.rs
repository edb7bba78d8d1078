//! Comparison of two texts by lines.
//!
//! Owns the choice of the lines that changed. Does not show them. Invariant: the work is bounded,
//! however long the texts are.

/// Product of line counts up to which the shortest difference is looked for. Larger parts count as
/// replaced.
const CELLS_MAX: usize = 4_000_000;

/// Kind of a line in a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineChange {
    /// Both texts have it.
    Kept,
    /// Only the text before has it.
    Removed,
    /// Only the text after has it.
    Added,
}

/// Compares two texts. Each line comes with its index: that in the text after for added ones, else
/// in the text before.
pub fn line_changes(before: &[&str], after: &[&str]) -> Vec<(LineChange, usize)> {
    // What is equal at both ends needs no search.
    let (start, end) = common_ends(before, after);
    let tail = before.len() - end;
    let mut out: Vec<(LineChange, usize)> = (0..start).map(|at| (LineChange::Kept, at)).collect();
    let middle = shortest(&before[start..tail], &after[start..after.len() - end]);
    out.extend(middle.into_iter().map(|(change, at)| (change, start + at)));
    out.extend((tail..before.len()).map(|at| (LineChange::Kept, at)));
    out
}

/// Counts the lines that two texts have in common at the start and at the end.
pub fn common_ends(old: &[&str], new: &[&str]) -> (usize, usize) {
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

/// Finds the shortest difference by the longest common subsequence.
fn shortest(before: &[&str], after: &[&str]) -> Vec<(LineChange, usize)> {
    let mut out = Vec::new();
    let rows = before.len();
    let columns = after.len();
    // The table has a cell for each pair of lines. Files of megabytes would take gigabytes.
    if rows.saturating_mul(columns) > CELLS_MAX {
        out.extend((0..rows).map(|row| (LineChange::Removed, row)));
        out.extend((0..columns).map(|column| (LineChange::Added, column)));
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
            common[row * width + column] = if before[row] == after[column] {
                diagonal
            } else {
                below.max(beside)
            };
        }
    }
    let mut row = 0;
    let mut column = 0;
    while row < rows || column < columns {
        if row < rows && column < columns && before[row] == after[column] {
            out.push((LineChange::Kept, row));
            (row, column) = (row + 1, column + 1);
        } else if column == columns
            || row < rows && common[(row + 1) * width + column] >= common[row * width + column + 1]
        {
            out.push((LineChange::Removed, row));
            row += 1;
        } else {
            out.push((LineChange::Added, column));
            column += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::LineChange::{Added, Kept, Removed};
    use super::*;

    #[test]
    fn lines_in_the_middle_are_kept() {
        let found = line_changes(&["a", "b", "c", "d"], &["a", "x", "c", "y", "d"]);
        assert_eq!(
            found,
            [
                (Kept, 0),
                (Removed, 1),
                (Added, 1),
                (Kept, 2),
                (Added, 3),
                (Kept, 3)
            ]
        );
    }
}
