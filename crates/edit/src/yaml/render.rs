//! Writer of YAML values.
//!
//! Owns the text of keys and values. Does not decide where they go. Invariant: a text is plain only
//! if no version of YAML reads it as something else.

use serde_json::Value;

use crate::node::{NodeMembers, NodeShape, SpanNode};
use crate::source::SourceText;

/// Quotes of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarQuotes {
    /// None, where the text allows it.
    Plain,
    /// `'text'`, where the text allows it.
    Single,
    /// `"text"`.
    Double,
}

impl ScalarQuotes {
    /// Finds the quotes of a value's text.
    pub(crate) fn of_text(text: &str) -> ScalarQuotes {
        match text.as_bytes().first() {
            Some(b'\'') => ScalarQuotes::Single,
            Some(b'"') => ScalarQuotes::Double,
            _ => ScalarQuotes::Plain,
        }
    }
}

/// Style of new values.
#[derive(Clone, Debug)]
pub(crate) struct YamlStyle {
    /// Columns of one level.
    pub(crate) unit: usize,
    /// Columns of a list beneath its key.
    list_unit: usize,
    /// Lists of texts are between brackets.
    flow_lists: bool,
    /// Blanks inside of braces.
    pub(crate) padded: bool,
    pub(crate) quotes: ScalarQuotes,
    key_quotes: ScalarQuotes,
}

impl Default for YamlStyle {
    fn default() -> Self {
        let plain = ScalarQuotes::Plain;
        YamlStyle {
            unit: 2,
            list_unit: 2,
            flow_lists: false,
            padded: false,
            quotes: plain,
            key_quotes: plain,
        }
    }
}

/// Words that some version of YAML reads as a boolean or null.
// YAML 1.1 reads `no` and `on` as booleans, and clients with old parsers read the same files.
const RESERVED: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];

impl YamlStyle {
    /// Finds the style that a file has.
    pub(crate) fn of_file(source: &SourceText, root: &SpanNode) -> YamlStyle {
        let mut style = YamlStyle::default();
        let mut unit = None;
        let mut list_unit = None;
        let mut flow_lists = None;
        let mut padded = None;
        root.visit(&mut |node| {
            let (NodeShape::Block(NodeMembers::Table(entries))
            | NodeShape::Flow(NodeMembers::Table(entries))) = &node.shape
            else {
                return;
            };
            for entry in entries {
                let key = source.column(entry.key.start);
                let value = &entry.value;
                match &value.shape {
                    NodeShape::Block(NodeMembers::Table(_)) => {
                        unit = unit.or(source
                            .column(value.range.start)
                            .checked_sub(key)
                            .filter(|unit| *unit > 0));
                    }
                    NodeShape::Block(NodeMembers::List(_)) => {
                        // Many files have their lists at the column of the key, so zero is a style,
                        // too.
                        list_unit = list_unit.or(Some(
                            source.indent(value.range.start).len().saturating_sub(key),
                        ));
                        flow_lists = flow_lists.or(Some(false));
                    }
                    NodeShape::Flow(NodeMembers::List(items)) if !items.is_empty() => {
                        flow_lists = flow_lists.or(Some(true));
                    }
                    NodeShape::Flow(NodeMembers::Table(inner)) if !inner.is_empty() => {
                        padded =
                            padded.or(Some(source.text()[value.range.clone()].starts_with("{ ")));
                    }
                    _ => {}
                }
            }
        });
        style.unit = unit.unwrap_or(style.unit);
        // Without any list to follow, the file's own step is the best guess.
        style.list_unit = list_unit.unwrap_or(style.unit);
        style.flow_lists = flow_lists.unwrap_or(false);
        style.padded = padded.unwrap_or(false);
        style
    }

    /// Follows the quotes of a container's last scalar and last key.
    pub(crate) fn follow(&mut self, source: &SourceText, members: &NodeMembers) {
        let scalars: Vec<&SpanNode> = members
            .values()
            .into_iter()
            .filter(|value| matches!(value.shape, NodeShape::Scalar))
            .collect();
        if let Some(last) = scalars.last() {
            self.quotes = ScalarQuotes::of_text(&source.text()[last.range.clone()]);
        }
        if let NodeMembers::Table(entries) = members
            && let Some(last) = entries.last().filter(|last| is_plain(&last.name))
        {
            self.key_quotes = ScalarQuotes::of_text(&source.text()[last.key.clone()]);
            if self.key_quotes == ScalarQuotes::Double {
                // JSON, as far as it can be seen from here.
                self.quotes = ScalarQuotes::Double;
            }
        }
    }

    /// True if a value is on the line of its key.
    pub(crate) fn is_inline(&self, value: &Value) -> bool {
        match value {
            Value::Object(table) => table.is_empty(),
            // Tables in a list have their own lines even here: in brackets nobody could read them.
            Value::Array(items) => {
                items.is_empty() || (self.flow_lists && !items.iter().any(Value::is_object))
            }
            _ => true,
        }
    }

    /// Writes an entry as lines. The first one has no indentation.
    pub(crate) fn entry(&self, key: &str, value: &Value, column: usize) -> String {
        let key = self.key(key);
        match self.is_inline(value) {
            true => format!("{key}: {}\n", self.flow(value)),
            false => format!("{key}:\n{}", self.members(value, column)),
        }
    }

    /// Writes the members of a container as lines beneath a key.
    pub(crate) fn members(&self, value: &Value, key_column: usize) -> String {
        match value {
            Value::Object(table) => {
                let column = key_column + self.unit;
                let lines = table
                    .iter()
                    .map(|(key, value)| " ".repeat(column) + &self.entry(key, value, column));
                lines.collect()
            }
            Value::Array(items) => {
                let column = key_column + self.list_unit;
                items
                    .iter()
                    .map(|item| " ".repeat(column) + &self.item(item, column))
                    .collect()
            }
            value => format!(
                "{}{}\n",
                " ".repeat(key_column + self.unit),
                self.flow(value)
            ),
        }
    }

    /// Writes the first member of a container as lines beneath a key.
    pub(crate) fn child_lines(
        &self,
        key: Option<&String>,
        value: &Value,
        key_column: usize,
    ) -> String {
        let container = match key {
            Some(key) => Value::Object(serde_json::Map::from_iter([(key.clone(), value.clone())])),
            None => Value::Array(vec![value.clone()]),
        };
        self.members(&container, key_column)
    }

    /// Writes an item with its dash as lines. The first one has no indentation.
    pub(crate) fn item(&self, value: &Value, column: usize) -> String {
        match value {
            Value::Object(table) if !table.is_empty() => {
                // The entries are below the first one, behind the dash and its blank.
                let inner = column + 2;
                let entries: Vec<String> = table
                    .iter()
                    .map(|(key, value)| self.entry(key, value, inner))
                    .collect();
                format!("- {}", entries.join(&" ".repeat(inner)))
            }
            value => format!("- {}\n", self.flow(value)),
        }
    }

    /// Writes a value on one line.
    pub(crate) fn flow(&self, value: &Value) -> String {
        match value {
            Value::String(text) => scalar(text, self.quotes),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.flow(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Object(table) if table.is_empty() => "{}".to_owned(),
            Value::Object(table) => {
                let entries: Vec<String> = table
                    .iter()
                    .map(|(key, value)| format!("{}: {}", self.key(key), self.flow(value)))
                    .collect();
                let blank = if self.padded { " " } else { "" };
                format!("{{{blank}{}{blank}}}", entries.join(", "))
            }
            value => value.to_string(),
        }
    }

    /// Writes a key.
    pub(crate) fn key(&self, key: &str) -> String {
        scalar(key, self.key_quotes)
    }
}

fn scalar(text: &str, quotes: ScalarQuotes) -> String {
    match quotes {
        ScalarQuotes::Plain if is_plain(text) => text.to_owned(),
        // Single quotes know no escapes, and a line break inside them would be folded into a blank.
        ScalarQuotes::Single if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        // YAML reads the escapes of JSON.
        _ => Value::from(text).to_string(),
    }
}

/// True if a text needs no quotes, in blocks and between brackets.
fn is_plain(text: &str) -> bool {
    let is_reserved = RESERVED.iter().any(|word| text.eq_ignore_ascii_case(word));
    let starts_well =
        text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || first == '/');
    let is_safe = text
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "_-./+@%$~ :".contains(letter));
    // A colon before a blank starts a value. Blanks at the end or in a row may get lost in folding.
    let has_mark =
        text.contains(": ") || text.ends_with(':') || text.ends_with(' ') || text.contains("  ");
    starts_well && !is_reserved && is_safe && !has_mark
}
