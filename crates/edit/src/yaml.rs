//! YAML.
//!
//! Owns the changes of YAML texts. `read.rs` finds the nodes, `block.rs` edits blocks by their
//! lines, and `render.rs` writes values. Does not follow aliases. Invariant: what shows through an
//! anchor is refused by the proof.

mod block;
mod read;
mod render;

pub(crate) use read::parse;

use serde_json::Value;

use crate::error::EditError;
use crate::flow::{EmptyStyle, FlowContainer};
use crate::node::{NodeMembers, NodeShape, SpanNode};
use crate::plan::{Change, NodeStep, path_text};
use crate::source::{Patch, SourceText};
use block::NodeSlot;
use render::YamlStyle;

/// Makes a change.
pub(crate) fn patch(
    source: &SourceText,
    root: Option<&SpanNode>,
    change: &Change,
    patch: &mut Patch,
) -> Result<(), EditError> {
    let Some(root) = root else {
        return start_file(source, change, patch);
    };
    let editor = YamlEditor {
        source,
        root,
        style: YamlStyle::of_file(source, root),
    };
    match change {
        Change::Insert { at, key, value } => editor.push(patch, at, Some(key), value),
        Change::Append { at, value } => editor.push(patch, at, None, value),
        Change::Replace { at, value } => editor.replace(patch, at, value),
        Change::Remove { at } => editor.remove(patch, at),
    }
}

fn refuse(at: &[NodeStep], why: &str) -> EditError {
    EditError::refuse(format!("{} {why}", path_text(at)))
}

/// Writes the first value of a file that has none.
fn start_file(source: &SourceText, change: &Change, patch: &mut Patch) -> Result<(), EditError> {
    let Change::Insert { key, value, .. } = change else {
        return Err(EditError::refuse("the file is empty"));
    };
    source.insert_lines(
        patch,
        source.text().len(),
        &YamlStyle::default().entry(key, value, 0),
    );
    Ok(())
}

struct YamlEditor<'a> {
    source: &'a SourceText,
    root: &'a SpanNode,
    style: YamlStyle,
}

impl<'a> YamlEditor<'a> {
    fn find(&self, at: &[NodeStep]) -> Result<&'a SpanNode, EditError> {
        self.root
            .find(at)
            .ok_or_else(|| refuse(at, "comes from an alias or a merge key"))
    }

    /// Adds a member to a container.
    fn push(
        &self,
        patch: &mut Patch,
        at: &[NodeStep],
        key: Option<&String>,
        value: &Value,
    ) -> Result<(), EditError> {
        let node = self.find(at)?;
        match &node.shape {
            NodeShape::Block(members) => self.push_line(patch, members, key, value),
            NodeShape::Flow(members) => match self.slot(at)? {
                // Braces are there only because a block cannot be empty.
                NodeSlot::Entry { colon_end, column }
                    if members.values().is_empty() && self.is_short_empty(colon_end, node) =>
                {
                    patch.delete(colon_end..node.range.end);
                    let lines = self.style.child_lines(key, value, column);
                    self.source
                        .insert_lines(patch, self.source.next_line(node.range.end), &lines);
                    Ok(())
                }
                // Somebody chose the brackets, so the container keeps them.
                _ => self.push_flow(patch, node, members, key, value),
            },
            NodeShape::Alias | NodeShape::Scalar => {
                Err(refuse(at, "comes from an alias or has no separate place"))
            }
        }
    }

    /// True for `key: {}` and `key: []`.
    fn is_short_empty(&self, colon_end: usize, node: &SpanNode) -> bool {
        matches!(
            &self.source.text()[colon_end..node.range.end],
            " {}" | " []"
        ) && self.source.ends_line(node.range.end)
    }

    fn push_flow(
        &self,
        patch: &mut Patch,
        node: &SpanNode,
        members: &NodeMembers,
        key: Option<&String>,
        value: &Value,
    ) -> Result<(), EditError> {
        let mut style = self.style.clone();
        style.follow(self.source, members);
        let value = style.flow(value);
        let member = key.map_or_else(
            || value.clone(),
            |key| format!("{}: {value}", style.key(key)),
        );
        let empty = EmptyStyle {
            multiline: false,
            padded: key.is_some() && style.padded,
            trailing_comma: true,
            unit: " ".repeat(style.unit),
        };
        FlowContainer::new(self.source, &node.range, members.ranges()).push(patch, &member, &empty);
        Ok(())
    }

    /// Replaces a value.
    fn replace(&self, patch: &mut Patch, at: &[NodeStep], value: &Value) -> Result<(), EditError> {
        let Some(node) = self.root.find(at) else {
            // A key that a merge brings is hidden by one of the table's own.
            return match at.split_last() {
                Some((NodeStep::Key(key), container)) => {
                    self.push(patch, container, Some(key), value)
                }
                _ => Err(refuse(at, "comes from an alias")),
            };
        };
        let text = self.source.text();
        let mut style = self.style.clone();
        // The new value keeps the quotes of the old one, since some people quote every string.
        style.quotes = render::ScalarQuotes::of_text(&text[node.range.clone()]);
        patch.removed.push(node.range.clone());
        let is_inline = style.is_inline(value);
        match self.slot(at)? {
            NodeSlot::Flow | NodeSlot::Root => patch.replace(node.range.clone(), style.flow(value)),
            NodeSlot::Entry { colon_end, column } => {
                let between = &text[colon_end..node.range.start];
                if is_inline
                    && !between.is_empty()
                    && between.trim().is_empty()
                    && !between.contains('\n')
                {
                    patch.replace(node.range.clone(), style.flow(value));
                    return Ok(());
                }
                // Comments between the key and a block value are in the replaced range, and go with
                // it.
                patch.removed.push(colon_end..node.range.end);
                let inline = if is_inline {
                    format!(" {}", style.flow(value))
                } else {
                    String::new()
                };
                patch.replace(colon_end..node.range.end, inline);
                if !is_inline {
                    let lines = style.members(value, column);
                    self.source
                        .insert_lines(patch, self.source.next_line(node.range.end), &lines);
                }
            }
            NodeSlot::Item { dash } => {
                let column = self.source.column(dash);
                let item = style.item(value, column);
                let item = item
                    .trim_end_matches('\n')
                    .replace('\n', self.source.newline());
                patch.removed.push(dash..node.range.end);
                patch.replace(dash..node.range.end, item);
            }
        }
        Ok(())
    }

    /// Removes a member of a container.
    fn remove(&self, patch: &mut Patch, at: &[NodeStep]) -> Result<(), EditError> {
        let (last, container_at) = at
            .split_last()
            .ok_or_else(|| EditError::refuse("the whole file"))?;
        let container = self.find(container_at)?;
        let members = container
            .members()
            .ok_or_else(|| refuse(at, "comes from an alias"))?;
        let index = members
            .position(last)
            .ok_or_else(|| refuse(at, "comes from a merge key"))?;
        match container.shape {
            NodeShape::Flow(_) => {
                FlowContainer::new(self.source, &container.range, members.ranges())
                    .remove(patch, index);
                Ok(())
            }
            _ => self.remove_lines(patch, container_at, container, members, index),
        }
    }
}
