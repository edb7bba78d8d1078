//! TOML.
//!
//! Owns the changes of TOML texts. `read.rs` finds sections and entries, `sections.rs` places whole
//! sections, and `render.rs` writes values. Invariant: a new table looks like its neighbours, with
//! its own header or inline.

mod read;
mod render;
mod sections;

pub(crate) use read::{TomlLayout, parse};

use serde_json::Value;

use crate::error::EditError;
use crate::flow::{EmptyStyle, FlowContainer};
use crate::node::{NodeShape, SpanNode};
use crate::plan::{Change, NodeStep, path_text};
use crate::source::{Patch, SourceText};
use read::{TomlEntry, TomlSection};
use render::{QuoteStyle, render_entry, render_key, render_value};

/// Makes a change.
pub(crate) fn patch(
    source: &SourceText,
    layout: &TomlLayout,
    change: &Change,
    patch: &mut Patch,
) -> Result<(), EditError> {
    let editor = TomlEditor { source, layout };
    match change {
        Change::Insert { at, key, value } => match editor.value_at(at) {
            // `value_at` finds only values of entries. A table with a header isn't a value, so it
            // gets a line or a section.
            Some(node) => editor.push_inline(patch, node, Some(key), value, at),
            None => editor.insert(patch, at, key, value),
        },
        Change::Append { at, value } => match editor.value_at(at) {
            Some(node) => editor.push_inline(patch, node, None, value, at),
            None => editor.append_section(patch, at, value),
        },
        Change::Replace { at, value } => {
            let node = editor
                .value_at(at)
                .ok_or_else(|| refuse(at, "is a table with its own header"))?;
            let quotes = QuoteStyle::of_text(&source.text()[node.range.clone()]);
            patch.removed.push(node.range.clone());
            patch.replace(node.range.clone(), render_value(value, quotes));
            Ok(())
        }
        Change::Remove { at } => editor.remove(patch, at),
    }
}

fn refuse(at: &[NodeStep], why: &str) -> EditError {
    EditError::refuse(format!("{} {why}", path_text(at)))
}

struct TomlEditor<'a> {
    source: &'a SourceText,
    layout: &'a TomlLayout,
}

/// Form of a new table.
enum TableForm {
    /// Section with a header.
    Section,
    /// Value of an entry.
    Inline,
}

impl<'a> TomlEditor<'a> {
    /// Finds a node that is a value, or inside one.
    fn value_at(&self, at: &[NodeStep]) -> Option<&'a SpanNode> {
        self.layout.entries().find_map(|(section, entry)| {
            let rest = at.strip_prefix(&entry.path_in(section)[..])?;
            entry.value.find(rest)
        })
    }

    /// Adds a member to a value between brackets.
    fn push_inline(
        &self,
        patch: &mut Patch,
        node: &SpanNode,
        key: Option<&String>,
        value: &Value,
        at: &[NodeStep],
    ) -> Result<(), EditError> {
        let NodeShape::Flow(members) = &node.shape else {
            return Err(refuse(at, "has dotted keys"));
        };
        let quotes = members.values().last().map_or(QuoteStyle::Basic, |last| {
            QuoteStyle::of_text(&self.source.text()[last.range.clone()])
        });
        let value = render_value(value, quotes);
        let member = key.map_or_else(
            || value.clone(),
            |key| format!("{} = {value}", render_key(key)),
        );
        let empty = EmptyStyle {
            multiline: false,
            padded: key.is_some(),
            trailing_comma: key.is_none(),
            unit: "  ".to_owned(),
        };
        let flow = FlowContainer::new(self.source, &node.range, members.ranges());
        flow.push(patch, &member, &empty);
        Ok(())
    }

    /// Adds an entry to a table that sections or dotted keys spell.
    fn insert(
        &self,
        patch: &mut Patch,
        at: &[NodeStep],
        key: &str,
        value: &Value,
    ) -> Result<(), EditError> {
        let own = self
            .layout
            .sections
            .iter()
            .find(|section| section.at == at && (section.header.is_some() || at.is_empty()));
        match self.form_of(at, own, value) {
            TableForm::Section => {
                let path = at
                    .iter()
                    .cloned()
                    .chain([NodeStep::Key(key.to_owned())])
                    .collect::<Vec<_>>();
                self.insert_sections(patch, at, &path, value)
            }
            TableForm::Inline => self.insert_entry(patch, at, own, key, value),
        }
    }

    /// Chooses the form of a new entry by its neighbours.
    fn form_of(&self, at: &[NodeStep], own: Option<&TomlSection>, value: &Value) -> TableForm {
        if !sections::holds_tables(value) {
            return TableForm::Inline;
        }
        let has_child_sections = self
            .layout
            .sections
            .iter()
            .any(|section| section.at.len() > at.len() && section.at.starts_with(at));
        match own {
            // The neighbours' form comes before the length: a file of inline tables stays one.
            Some(own)
                if own
                    .entries
                    .iter()
                    .any(|entry| self.is_like_table(entry, value)) =>
            {
                TableForm::Inline
            }
            _ if has_child_sections || at.is_empty() => TableForm::Section,
            Some(own)
                if !own.entries.is_empty()
                    && render_value(value, QuoteStyle::Basic).len() <= render::LINE_MAX =>
            {
                TableForm::Inline
            }
            Some(_) => TableForm::Section,
            None => TableForm::Inline,
        }
    }

    /// True if an entry is a table within its line, as a new value may be.
    fn is_like_table(&self, entry: &TomlEntry, value: &Value) -> bool {
        let is_container = entry.value.members().is_some();
        is_container && value.is_object() && !self.is_list(entry) || entry.names.len() > 1
    }

    fn is_list(&self, entry: &TomlEntry) -> bool {
        self.source.text()[entry.value.range.clone()].starts_with('[')
    }

    /// Adds a line with an entry.
    fn insert_entry(
        &self,
        patch: &mut Patch,
        at: &[NodeStep],
        own: Option<&TomlSection>,
        key: &str,
        value: &Value,
    ) -> Result<(), EditError> {
        let quotes = QuoteStyle::Basic;
        // Dotted keys that spell this table.
        let dotted = self.layout.entries().filter(|(section, entry)| {
            let path = entry.path_in(section);
            section.at.len() < at.len() && path.len() > at.len() && path.starts_with(at)
        });
        if let (None, Some((section, last))) = (own, dotted.last()) {
            let prefix = last.names[..at.len() - section.at.len()]
                .iter()
                .map(|name| render_key(name) + ".")
                .collect::<String>();
            let line = format!(
                "{}{prefix}{}",
                self.source.indent(last.key.start),
                render_entry(key, value, quotes)
            );
            self.source
                .insert_lines(patch, self.source.next_line(last.value.range.end), &line);
            return Ok(());
        }
        let line = render_entry(key, value, quotes);
        let Some(own) = own else {
            // Only the sections below it spell the table: it gets its own header.
            let first = self
                .layout
                .sections
                .iter()
                .find(|section| section.at.starts_with(at) && !at.is_empty());
            let header = first
                .and_then(|section| section.header.clone())
                .ok_or_else(|| refuse(at, "was not found"))?;
            let position = self
                .source
                .comments_above(self.source.line_start(header.start));
            patch.insert(
                position,
                format!("[{}]\n{line}\n", sections::header_name(at))
                    .replace('\n', self.source.newline()),
            );
            return Ok(());
        };
        let (position, indent) = match (own.entries.last(), &own.header) {
            (Some(last), _) => (
                self.source.next_line(last.value.range.end),
                self.source.indent(last.key.start),
            ),
            (None, Some(header)) => (
                self.source.next_line(header.end),
                self.source.indent(header.start),
            ),
            (None, None) => (self.top_position(), ""),
        };
        self.source
            .insert_lines(patch, position, &format!("{indent}{line}"));
        Ok(())
    }

    /// Finds the position of the first entry of a file: above the first header, else at the end.
    fn top_position(&self) -> usize {
        let first = self
            .layout
            .sections
            .iter()
            .find_map(|section| section.header.as_ref());
        first.map_or(self.source.text().len(), |header| {
            self.source
                .comments_above(self.source.line_start(header.start))
        })
    }

    fn remove(&self, patch: &mut Patch, at: &[NodeStep]) -> Result<(), EditError> {
        // TOML may spell one table at several positions: headers, and dotted keys above them. All
        // of them go.
        let mut found = self.remove_sections(patch, at);
        for (section, entry) in self
            .layout
            .entries()
            .filter(|(section, _)| !section.at.starts_with(at))
        {
            let path = entry.path_in(section);
            if path.starts_with(at) {
                self.remove_line(patch, entry);
                found = true;
            } else if let Some((last, rest)) =
                at.strip_prefix(&path[..]).and_then(<[_]>::split_last)
            {
                let node = entry
                    .value
                    .find(rest)
                    .ok_or_else(|| refuse(at, "was not found"))?;
                let NodeShape::Flow(members) = &node.shape else {
                    return Err(refuse(at, "has dotted keys"));
                };
                let index = members
                    .position(last)
                    .ok_or_else(|| refuse(at, "was not found"))?;
                FlowContainer::new(self.source, &node.range, members.ranges()).remove(patch, index);
                found = true;
            }
        }
        if found {
            Ok(())
        } else {
            Err(refuse(at, "was not found"))
        }
    }

    fn remove_line(&self, patch: &mut Patch, entry: &TomlEntry) {
        let lines =
            self.source.line_start(entry.key.start)..self.source.next_line(entry.value.range.end);
        self.source.delete_lines(patch, lines);
    }
}
