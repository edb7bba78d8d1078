//! Tables with aligned columns, for people.
//!
//! Owns the widths. Does not choose what is in a cell. Invariant: no line ends with spaces.

/// Lays out rows, the heading among them. Each column is as wide as its widest cell.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    });
    let lines = rows.iter().map(|row| {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect::<Vec<_>>();
        format!("{}\n", cells.join("  ").trim_end())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A", "B", "C"], ["long", "x", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "A     B  C\nlong  x\n");
        assert_eq!(aligned::<2>(&[]), "");
    }
}
