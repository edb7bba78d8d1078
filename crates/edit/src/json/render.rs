//! Writer of JSON values, in the style of a file.
//!
//! Owns the text of new values. Does not decide where they go.

use serde_json::Value;

use crate::node::{NodeMembers, NodeShape, SpanNode};
use crate::source::SourceText;

/// Style of new values.
#[derive(Clone, Debug)]
pub(crate) struct ValueStyle {
    /// Indentation of one level.
    pub(crate) unit: String,
    /// No blanks and no lines at all.
    pub(crate) compact: bool,
    /// Each value on one line.
    pub(crate) one_line: bool,
    /// Blanks inside the braces of tables on one line.
    pub(crate) padded: bool,
    /// Each element of a list of texts has its own line.
    pub(crate) multiline_lists: bool,
}

impl Default for ValueStyle {
    fn default() -> Self {
        let unit = "  ".to_owned();
        ValueStyle {
            unit,
            compact: false,
            one_line: false,
            padded: true,
            multiline_lists: false,
        }
    }
}

impl ValueStyle {
    /// Finds the style that a file has.
    pub(crate) fn of_file(source: &SourceText, root: &SpanNode) -> ValueStyle {
        let mut style = ValueStyle::default();
        let mut unit = None;
        let mut lists = None;
        root.visit(&mut |node| {
            let Some(members) = node.members() else {
                return;
            };
            let Some(first) = members.ranges().into_iter().next() else {
                return;
            };
            let is_multiline = source.opens_line(first.start);
            let outer = source.indent(node.range.start);
            let inner = source.indent(first.start);
            if is_multiline && unit.is_none() {
                // The first container over several lines shows the unit. Mixed tabs and blanks
                // share no prefix, and show nothing.
                unit = inner
                    .strip_prefix(outer)
                    .filter(|unit| !unit.is_empty())
                    .map(str::to_owned);
            }
            if matches!(members, NodeMembers::List(_)) {
                lists = lists.or(Some(is_multiline));
            }
        });
        style.unit = unit.unwrap_or(style.unit);
        style.multiline_lists = lists.unwrap_or(false);
        if let Some(NodeMembers::Table(entries)) = root.members()
            && let Some(first) = entries.first()
        {
            let colon = &source.text()[first.key.end..first.value.range.start];
            // Both are needed: some people write no blank behind the colon and still break lines.
            style.compact = colon == ":" && !source.opens_line(first.key.start);
        }
        style
    }

    /// Follows the last member of a container.
    pub(crate) fn follow(&mut self, source: &SourceText, members: &NodeMembers) {
        let Some(last) = members.values().last().copied() else {
            return;
        };
        let NodeShape::Flow(inner) = &last.shape else {
            return;
        };
        let text = &source.text()[last.range.clone()];
        // An empty container, or one over several lines, shows nothing about a single line.
        if inner.values().is_empty() || text.contains('\n') {
            return;
        }
        self.one_line = true;
        self.padded = text.starts_with("{ ") || text.starts_with("[ ");
    }

    pub(crate) fn render_entry(&self, key: &str, value: &str) -> String {
        let colon = if self.compact { ":" } else { ": " };
        format!("{}{colon}{value}", Value::from(key))
    }

    /// Writes a value. `indent` is the one of the line that it starts on.
    pub(crate) fn render(&self, value: &Value, indent: &str) -> String {
        let deeper = format!("{indent}{}", self.unit);
        match value {
            Value::Object(table) if !table.is_empty() => {
                let entries = table
                    .iter()
                    .map(|(key, value)| self.render_entry(key, &self.render(value, &deeper)));
                let pad = if self.padded && !self.compact {
                    " "
                } else {
                    ""
                };
                self.join(
                    entries.collect(),
                    ["{", "}"],
                    pad,
                    (indent, &deeper),
                    !self.one_line,
                )
            }
            Value::Array(list) if !list.is_empty() => {
                let items = list.iter().map(|item| self.render(item, &deeper)).collect();
                // Tables side by side on one line are hard to read, whatever the form of text
                // lists.
                let has_tables = list.iter().any(|item| item.is_object() || item.is_array());
                let multiline = !self.one_line && (self.multiline_lists || has_tables);
                self.join(items, ["[", "]"], "", (indent, &deeper), multiline)
            }
            value => value.to_string(),
        }
    }

    fn join(
        &self,
        members: Vec<String>,
        [open, close]: [&str; 2],
        pad: &str,
        (indent, deeper): (&str, &str),
        multiline: bool,
    ) -> String {
        if multiline && !self.compact {
            let lines = members.join(&format!(",\n{deeper}"));
            return format!("{open}\n{deeper}{lines}\n{indent}{close}");
        }
        format!(
            "{open}{pad}{}{pad}{close}",
            members.join(if self.compact { "," } else { ", " })
        )
    }
}
