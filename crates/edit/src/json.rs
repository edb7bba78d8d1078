//! JSON with comments and trailing commas.
//!
//! Owns reading and writing of JSON. Does not know where members go (`flow.rs`). Invariant: a new
//! member is written as its neighbours are.

mod read;
mod render;

pub(crate) use read::parse;

use serde_json::Value;

use crate::error::EditError;
use crate::flow::{EmptyStyle, FlowContainer};
use crate::node::{NodeMembers, NodeShape, SpanNode};
use crate::plan::{Change, NodeStep, path_text};
use crate::source::{Patch, SourceText};
use render::ValueStyle;

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
    let editor = JsonEditor { source, root };
    match change {
        Change::Insert { at, key, value } => editor.push(patch, at, Some(key), value),
        Change::Append { at, value } => editor.push(patch, at, None, value),
        Change::Replace { at, value } => {
            let node = editor.find(at)?;
            let style = ValueStyle::of_file(source, root);
            let indent = source.indent(node.range.start);
            // A file with `\r\n` keeps its line ends throughout.
            let text = style.render(value, indent).replace('\n', source.newline());
            patch.removed.push(node.range.clone());
            patch.replace(node.range.clone(), text);
            Ok(())
        }
        Change::Remove { at } => {
            let (last, container) = at
                .split_last()
                .ok_or_else(|| EditError::refuse("the whole file"))?;
            let (flow, members) = editor.container(container)?;
            let index = members.position(last).ok_or_else(|| not_found(at))?;
            flow.remove(patch, index);
            Ok(())
        }
    }
}

fn not_found(at: &[NodeStep]) -> EditError {
    EditError::refuse(format!("{} was not found", path_text(at)))
}

/// Writes the first value of a file that has none.
fn start_file(source: &SourceText, change: &Change, patch: &mut Patch) -> Result<(), EditError> {
    // All other changes need a node that exists, so they cannot be the first one.
    let Change::Insert { at, key, value } = change else {
        return Err(EditError::refuse("the file is empty"));
    };
    debug_assert!(at.is_empty());
    let style = ValueStyle::default();
    let table = Value::Object(serde_json::Map::from_iter([(key.clone(), value.clone())]));
    source.insert_lines(
        patch,
        source.text().len(),
        &format!("{}\n", style.render(&table, "")),
    );
    Ok(())
}

struct JsonEditor<'a> {
    source: &'a SourceText,
    root: &'a SpanNode,
}

impl<'a> JsonEditor<'a> {
    fn find(&self, at: &[NodeStep]) -> Result<&'a SpanNode, EditError> {
        self.root.find(at).ok_or_else(|| not_found(at))
    }

    fn container(
        &self,
        at: &[NodeStep],
    ) -> Result<(FlowContainer<'a>, &'a NodeMembers), EditError> {
        let node = self.find(at)?;
        let NodeShape::Flow(members) = &node.shape else {
            return Err(not_found(at));
        };
        Ok((
            FlowContainer::new(self.source, &node.range, members.ranges()),
            members,
        ))
    }

    /// Adds a member to a container.
    fn push(
        &self,
        patch: &mut Patch,
        at: &[NodeStep],
        key: Option<&String>,
        value: &Value,
    ) -> Result<(), EditError> {
        let (flow, members) = self.container(at)?;
        let mut style = ValueStyle::of_file(self.source, self.root);
        style.follow(self.source, members);
        let empty = EmptyStyle {
            multiline: key.map_or(style.multiline_lists, |_| !style.compact && !style.one_line),
            padded: key.is_some() && style.padded,
            trailing_comma: false,
            unit: style.unit.clone(),
        };
        let is_multiline = flow.is_multiline() || (members.values().is_empty() && empty.multiline);
        // A value over several lines would break a container that is on one line.
        style.one_line |= !is_multiline;
        let value = style.render(value, &flow.member_indent(&empty));
        let member = key.map_or_else(|| value.clone(), |key| style.render_entry(key, &value));
        flow.push(patch, &member, &empty);
        Ok(())
    }
}
