//! Whole sections of TOML: where they go, and what goes out with them.
//!
//! Owns headers and the blank lines around sections. Does not write single entries. Invariant: the
//! removal of a section is the inverse of its insertion.

use std::ops::Range;

use serde_json::{Map, Value};

use super::render::{LINE_MAX, QuoteStyle, render_entry, render_key, render_value};
use super::{TomlEditor, TomlSection, refuse};
use crate::error::EditError;
use crate::plan::NodeStep;
use crate::source::Patch;

/// Writes the name of a header.
pub(super) fn header_name(at: &[NodeStep]) -> String {
    let names = at.iter().filter_map(|step| match step {
        NodeStep::Key(key) => Some(render_key(key)),
        NodeStep::Index(_) => None,
    });
    names.collect::<Vec<_>>().join(".")
}

impl TomlEditor<'_> {
    /// Adds a table, or a list of tables, as sections behind those of its container.
    pub(super) fn insert_sections(
        &self,
        patch: &mut Patch,
        container: &[NodeStep],
        path: &[NodeStep],
        value: &Value,
    ) -> Result<(), EditError> {
        let mut sections = Vec::new();
        render_sections(path, value, &mut sections);
        self.write_sections(patch, container, &sections);
        Ok(())
    }

    /// Adds an element to a list of tables.
    pub(super) fn append_section(
        &self,
        patch: &mut Patch,
        at: &[NodeStep],
        value: &Value,
    ) -> Result<(), EditError> {
        let Value::Object(table) = value else {
            return Err(refuse(at, "holds tables only"));
        };
        let mut sections = Vec::new();
        render_table(at, table, ["[[", "]]"], &mut sections);
        self.write_sections(patch, at, &sections);
        Ok(())
    }

    fn write_sections(&self, patch: &mut Patch, container: &[NodeStep], sections: &[String]) {
        let source = self.source;
        let last = self
            .layout
            .sections
            .iter()
            .rposition(|section| section.header.is_some() && section.at.starts_with(container));
        let next = last.and_then(|last| self.layout.sections.get(last + 1)?.header.clone());
        // Without neighbours it goes to the end of the file.
        // Comments right above the next header describe that header, and must stay with it.
        let position = next.map_or(source.text().len(), |header| {
            source.comments_above(source.line_start(header.start))
        });
        // Some files indent sections below their parent, and a new one follows its neighbours.
        let indent = last
            .and_then(|last| self.layout.sections[last].header.as_ref())
            .map_or("", |header| source.indent(header.start));
        let is_tight = self.is_tight();
        let between = if is_tight { "" } else { "\n" };
        let mut text = sections.join(between);
        if !indent.is_empty() {
            text = text
                .lines()
                .map(|line| {
                    if line.is_empty() {
                        "\n".to_owned()
                    } else {
                        format!("{indent}{line}\n")
                    }
                })
                .collect();
        }
        let starts_open = match source.text()[..position].ends_with('\n') {
            true => source
                .previous_line(position)
                .is_some_and(|line| source.is_blank_line(line)),
            false => false,
        };
        if starts_open || (position == 0 && position < source.text().len()) {
            text.push('\n');
        } else if position == source.text().len() && position > 0 && !is_tight {
            text.insert(0, '\n');
        }
        source.insert_lines(patch, position, &text);
    }

    /// True if this file has no blank lines above its headers.
    fn is_tight(&self) -> bool {
        let source = self.source;
        let headers = self
            .layout
            .sections
            .iter()
            .filter_map(|section| section.header.as_ref());
        let above = headers.filter_map(|header| {
            source.previous_line(source.comments_above(source.line_start(header.start)))
        });
        let above: Vec<usize> = above.collect();
        !above.is_empty() && !above.iter().any(|line| source.is_blank_line(*line))
    }

    /// Removes all sections at a path and below it. False if there are none.
    pub(super) fn remove_sections(&self, patch: &mut Patch, at: &[NodeStep]) -> bool {
        let mut found = false;
        let mut sections = self.layout.sections.iter().enumerate().peekable();
        while let Some((first, section)) = sections.next() {
            if section.header.is_none() || !section.at.starts_with(at) {
                continue;
            }
            let mut last = first;
            // Adjacent sections go as one.
            while let Some((next, _)) = sections.next_if(|(_, section)| section.at.starts_with(at))
            {
                last = next;
            }
            found = true;
            self.remove_region(patch, first, last);
        }
        found
    }

    fn remove_region(&self, patch: &mut Patch, first: usize, last: usize) {
        let source = self.source;
        let sections = &self.layout.sections;
        let start = sections[first]
            .header
            .as_ref()
            .map_or(0, |header| source.line_start(header.start));
        let Some(mut end) = section_end(&sections[last]).map(|end| source.next_line(end)) else {
            return;
        };
        let next = sections
            .get(last + 1)
            .and_then(|section| section.header.as_ref());
        let next_block = next.map(|header| source.comments_above(source.line_start(header.start)));
        // Comment lines that touch the next header belong to it. Others beneath go with this
        // section.
        if next_block.is_none_or(|block| block > end) {
            end = source.comments_beneath(end, |_| true);
        }
        let range = self.with_blank_line(start..end);
        source.delete_lines(patch, range);
    }

    /// Extends a region by one of the blank lines around it.
    fn with_blank_line(&self, mut region: Range<usize>) -> Range<usize> {
        let source = self.source;
        let above = source.previous_line(region.start);
        let opens = above.is_none_or(|line| source.is_blank_line(line));
        if opens && region.end < source.text().len() && source.is_blank_line(region.end) {
            region.end = source.next_line(region.end);
        } else if let (true, true, Some(above)) = (opens, region.end == source.text().len(), above)
        {
            region.start = above;
        }
        region
    }
}

/// Returns the end of a section's last entry, or of its header.
fn section_end(section: &TomlSection) -> Option<usize> {
    section
        .entries
        .last()
        .map(|entry| entry.value.range.end)
        .or(section.header.as_ref().map(|header| header.end))
}

/// True for a table, and for a list of tables.
pub(super) fn holds_tables(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_object),
        _ => false,
    }
}

/// Writes a value as sections.
fn render_sections(path: &[NodeStep], value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(table) => render_table(path, table, ["[", "]"], out),
        Value::Array(items) => {
            for table in items.iter().filter_map(Value::as_object) {
                render_table(path, table, ["[[", "]]"], out);
            }
        }
        _ => {}
    }
}

fn render_table(
    path: &[NodeStep],
    table: &Map<String, Value>,
    [open, close]: [&str; 2],
    out: &mut Vec<String>,
) {
    // A table of tables needs no header: theirs spell it.
    let needs_header = table.is_empty() || open == "[[" || !table.values().all(holds_tables);
    if needs_header {
        let mut text = format!("{open}{}{close}\n", header_name(path));
        for (key, value) in table
            .iter()
            .filter(|(_, value)| !gets_section(value, needs_header))
        {
            text.push_str(&render_entry(key, value, QuoteStyle::Basic));
        }
        out.push(text);
    }
    for (key, value) in table
        .iter()
        .filter(|(_, value)| gets_section(value, needs_header))
    {
        let path: Vec<NodeStep> = path
            .iter()
            .cloned()
            .chain([NodeStep::Key(key.clone())])
            .collect();
        render_sections(&path, value, out);
    }
}

/// True if a value of a table gets a section, and not a line in that of the table.
fn gets_section(value: &Value, table_has_header: bool) -> bool {
    holds_tables(value)
        && (!table_has_header || render_value(value, QuoteStyle::Basic).len() > LINE_MAX)
}
