//! Blocks of YAML: members on their own lines.
//!
//! Owns the lines that belong to a member. Does not write values. Invariant: a block that loses its
//! last member becomes `{}` or `[]`, never null.

use std::ops::Range;

use serde_json::Value;

use super::{YamlEditor, refuse};
use crate::error::EditError;
use crate::node::{NodeMembers, NodeShape, SpanNode};
use crate::plan::NodeStep;
use crate::source::Patch;

/// Slot that holds a node.
pub(super) enum NodeSlot {
    /// Behind the colon of a block's key.
    Entry { colon_end: usize, column: usize },
    /// Behind the dash of a block's item.
    Item { dash: usize },
    /// Between brackets.
    Flow,
    /// The document itself.
    Root,
}

impl YamlEditor<'_> {
    /// Finds the slot that holds the node at a path.
    pub(super) fn slot(&self, at: &[NodeStep]) -> Result<NodeSlot, EditError> {
        let Some((last, container)) = at.split_last() else {
            return Ok(NodeSlot::Root);
        };
        let container = self.find(container)?;
        match &container.shape {
            NodeShape::Block(members) => {
                let index = members
                    .position(last)
                    .ok_or_else(|| refuse(at, "comes from a merge key"))?;
                match members {
                    NodeMembers::Table(entries) => {
                        let key = &entries[index].key;
                        let colon_end = self
                            .colon_end(key)
                            .ok_or_else(|| refuse(at, "has no colon"))?;
                        Ok(NodeSlot::Entry {
                            colon_end,
                            column: self.source.column(key.start),
                        })
                    }
                    NodeMembers::List(items) => {
                        let dash = self
                            .dash(&items[index])
                            .ok_or_else(|| refuse(at, "has no dash"))?;
                        Ok(NodeSlot::Item { dash })
                    }
                }
            }
            _ => Ok(NodeSlot::Flow),
        }
    }

    fn colon_end(&self, key: &Range<usize>) -> Option<usize> {
        let rest = &self.source.text()[key.end..];
        let colon = key.end + (rest.len() - rest.trim_start_matches([' ', '\t']).len());
        self.source.text()[colon..]
            .starts_with(':')
            .then_some(colon + 1)
    }

    /// Finds the dash of an item. Anchors and tags may be between them.
    fn dash(&self, item: &SpanNode) -> Option<usize> {
        let line = self.source.line_start(item.range.start);
        let before = &self.source.text()[line..item.range.start];
        // The last dash is the item's own: in `- - a` the first one opens the outer list.
        let dash = before.rfind("- ").or_else(|| before.rfind('-'))?;
        // Anything else before the item means another form of list, and a wrong dash would destroy
        // it.
        before[dash + 1..]
            .split_whitespace()
            .all(|word| word.starts_with(['&', '!']))
            .then_some(line + dash)
    }

    /// Adds a member as lines behind the last one.
    pub(super) fn push_line(
        &self,
        patch: &mut Patch,
        members: &NodeMembers,
        key: Option<&String>,
        value: &Value,
    ) -> Result<(), EditError> {
        let mut style = self.style.clone();
        // The neighbours decide about quotes, since one file may have several styles.
        style.follow(self.source, members);
        let (start, end) = self
            .member_positions(members, members.ranges().len().wrapping_sub(1))
            .ok_or_else(|| EditError::refuse("a block without members"))?;
        let column = self.source.column(start);
        let lines = match key {
            Some(key) => style.entry(key, value, column),
            None => style.item(value, column),
        };
        let end = self.end_of_lines(end, column);
        self.source
            .insert_lines(patch, end, &format!("{}{lines}", " ".repeat(column)));
        Ok(())
    }

    /// Returns where a member starts, with its dash, and where its value ends.
    fn member_positions(&self, members: &NodeMembers, index: usize) -> Option<(usize, usize)> {
        match members {
            NodeMembers::Table(entries) => {
                let entry = entries.get(index)?;
                Some((entry.key.start, entry.value.range.end.max(entry.key.end)))
            }
            NodeMembers::List(items) => {
                let item = items.get(index)?;
                Some((self.dash(item)?, item.range.end))
            }
        }
    }

    /// Returns the end of a member's lines, with the comment lines beneath that are indented
    /// deeper.
    fn end_of_lines(&self, end: usize, column: usize) -> usize {
        // Comments at the member's own column most likely describe the next one.
        self.source
            .comments_beneath(self.source.next_line(end), |line| {
                self.source.indent(line).len() > column
            })
    }

    /// Removes a member with its lines.
    pub(super) fn remove_lines(
        &self,
        patch: &mut Patch,
        container_at: &[NodeStep],
        container: &SpanNode,
        members: &NodeMembers,
        index: usize,
    ) -> Result<(), EditError> {
        let (start, end) = self
            .member_positions(members, index)
            .ok_or_else(|| uneditable(container_at))?;
        let is_only = members.ranges().len() == 1;
        if !self.source.opens_line(start) {
            if is_only {
                // The proof of the change needs all comments outside these ranges.
                patch.removed.push(container.range.clone());
                patch.replace(container.range.clone(), empty_text(members));
                return Ok(());
            }
            // The next member takes its place on the line.
            let (next, _) = self
                .member_positions(members, index + 1)
                .ok_or_else(|| uneditable(container_at))?;
            patch.delete(start..next);
            patch.removed.push(start..self.source.line_end(end));
            return Ok(());
        }
        let lines =
            self.source.line_start(start)..self.end_of_lines(end, self.source.column(start));
        if is_only {
            match self.slot(container_at)? {
                NodeSlot::Root => {}
                // Without members `servers:` would be null, which is another value than an empty
                // table.
                NodeSlot::Entry { colon_end, .. } => {
                    patch.insert(colon_end, format!(" {}", empty_text(members)))
                }
                NodeSlot::Item { .. } | NodeSlot::Flow => return Err(uneditable(container_at)),
            }
        }
        self.source.delete_lines(patch, lines);
        Ok(())
    }
}

fn uneditable(container_at: &[NodeStep]) -> EditError {
    refuse(container_at, "has a form that cannot be edited")
}

fn empty_text(members: &NodeMembers) -> &'static str {
    match members {
        NodeMembers::List(_) => "[]",
        NodeMembers::Table(_) => "{}",
    }
}
