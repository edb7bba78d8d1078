//! Lists as columns. Owns the widths of the cells.
//!
//! Does not choose items. Invariant: an item is one line. Its name or URI, which has to be typed,
//! is never cut.

use std::sync::Arc;

use moongate_form::schema::{self, SchemaArgument};
use moongate_jsonrpc::json::JsonObject;
use moongate_model::{ItemKind, ItemTexts};
use moongate_telemetry::plain_text::readable_line;

/// Maximum width of a cell between the first and the last.
const CELL: usize = 40;
/// Maximum width of the last cell.
const LAST: usize = 80;

/// Returns the lists, each under its own heading. Empty lists are left out.
pub(super) fn lists(lists: &[(ItemKind, Vec<Arc<JsonObject>>)]) -> String {
    let filled = lists.iter().filter(|(_, items)| !items.is_empty());
    filled
        .map(|(kind, items)| list(*kind, items))
        .collect::<Vec<_>>()
        .join("\n")
}

fn list(kind: ItemKind, items: &[Arc<JsonObject>]) -> String {
    let headings: &[&str] = match kind {
        ItemKind::Tools => &["TOOL", "ARGUMENTS", "DESCRIPTION"],
        ItemKind::Prompts => &["PROMPT", "ARGUMENTS", "DESCRIPTION"],
        ItemKind::Resources => &["RESOURCE", "TYPE", "NAME", "DESCRIPTION"],
        ItemKind::Templates => &["TEMPLATE", "TYPE", "NAME", "DESCRIPTION"],
    };
    let rows: Vec<Vec<String>> = items.iter().map(|item| row(kind, item)).collect();
    columns(headings, &rows)
}

fn row(kind: ItemKind, item: &JsonObject) -> Vec<String> {
    let texts: ItemTexts = item.read_members();
    let description = texts.about().unwrap_or_default().to_owned();
    let key = kind.key_of(item);
    let key = key.as_deref().unwrap_or_default().to_owned();
    match kind {
        ItemKind::Tools => {
            let schema = texts.input_schema.unwrap_or_default();
            vec![key, names(&schema::arguments(&schema)), description]
        }
        ItemKind::Prompts => vec![key, names(&schema::prompt_arguments(item)), description],
        ItemKind::Resources | ItemKind::Templates => {
            let mime = texts.mime_type.unwrap_or_default();
            vec![key, mime, texts.name.unwrap_or_default(), description]
        }
    }
}

/// Formats names of arguments: `a b [c]`, with optional ones in brackets.
fn names(arguments: &[SchemaArgument]) -> String {
    let names = arguments.iter().map(|argument| match argument.required {
        true => argument.name.to_string(),
        false => format!("[{}]", argument.name),
    });
    names.collect::<Vec<_>>().join(" ")
}

/// Returns rows below their headings. The first column is never cut.
pub(in crate::cli) fn columns(headings: &[&str], rows: &[Vec<String>]) -> String {
    let last = headings.len() - 1;
    let headings = headings
        .iter()
        .map(|heading| (*heading).to_owned())
        .collect();
    let cells: Vec<Vec<String>> = std::iter::once(&headings)
        .chain(rows)
        .map(|row| {
            row.iter()
                .enumerate()
                .map(|(n, cell)| cut(cell, cell_limit(n, last)))
                .collect()
        })
        .collect();
    let widths: Vec<usize> = (0..last)
        .map(|column| {
            let widths = cells.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for row in &cells {
        let padded = row.iter().enumerate().map(|(n, cell)| match widths.get(n) {
            Some(&width) => format!("{cell:width$}"),
            None => cell.clone(),
        });
        out.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

fn cell_limit(column: usize, last: usize) -> usize {
    match column {
        // The first column is what has to be typed.
        0 => usize::MAX,
        column if column == last => LAST,
        _ => CELL,
    }
}

/// Returns the first line of a text, cut to `limit` characters.
fn cut(text: &str, limit: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    // Control characters could rewrite other lines of the terminal.
    let line = readable_line(line);
    if line.chars().count() <= limit {
        return line;
    }
    let cut: String = line.chars().take(limit - 1).collect();
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_is_never_cut_and_the_others_are() {
        let long = "x".repeat(100);
        let rows = [
            vec![long.clone(), "b\x1b".to_owned(), format!("{long}\nmore")],
            vec!["ä".into(), "".into(), "c".into()],
        ];
        let table = columns(&["A", "B", "C"], &rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], format!("{:100}  B   C", "A"));
        assert_eq!(lines[1], format!("{long}  b   {}…", "x".repeat(79)));
        assert_eq!(lines[2], format!("{:100}      c", "ä"));
    }
}
