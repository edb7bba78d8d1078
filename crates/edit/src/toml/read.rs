//! Reader of TOML: values, their ranges, and comments.
//!
//! Owns the parsers. The one of the config reads the values, and its tokens give the ranges.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};
use toml_parser::parser::{Event, EventKind, parse_document};
use toml_parser::{Raw, Source};

use crate::error::EditError;
use crate::node::{NodeMembers, NodeShape, SpanEntry, SpanNode};
use crate::plan::NodeStep;
use crate::source::ReadText;

/// Sections of a file in their order. The first one has no header.
#[derive(Debug)]
pub(crate) struct TomlLayout {
    pub(crate) sections: Vec<TomlSection>,
}

/// Header with the entries beneath it.
#[derive(Debug, Default)]
pub(crate) struct TomlSection {
    /// Range of the header with its brackets.
    pub(crate) header: Option<Range<usize>>,
    /// Path of the table.
    pub(crate) at: Vec<NodeStep>,
    pub(crate) entries: Vec<TomlEntry>,
}

/// Line `a.b = value`.
#[derive(Debug)]
pub(crate) struct TomlEntry {
    /// Names of its key, more than one if it is dotted.
    pub(crate) names: Vec<String>,
    pub(crate) key: Range<usize>,
    pub(crate) value: SpanNode,
}

impl TomlEntry {
    /// Returns the path of the value.
    pub(crate) fn path_in(&self, section: &TomlSection) -> Vec<NodeStep> {
        section
            .at
            .iter()
            .cloned()
            .chain(self.names.iter().cloned().map(NodeStep::Key))
            .collect()
    }
}

impl TomlLayout {
    /// Returns all entries with their sections.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&TomlSection, &TomlEntry)> {
        self.sections
            .iter()
            .flat_map(|section| section.entries.iter().map(move |entry| (section, entry)))
    }
}

/// Reads a text.
pub(crate) fn parse(text: &str) -> Result<ReadText<TomlLayout>, EditError> {
    // The strict parser comes first. The tokens below also describe broken texts, and recover from
    // errors silently.
    let table = DeTable::parse(text).map_err(|error| {
        EditError::unreadable(
            text,
            error.span().map_or(text.len(), |span| span.start),
            error.message(),
        )
    })?;
    let tree = Value::Object(table_value(table.get_ref()));
    let source = Source::new(text);
    let tokens = source.lex().into_vec();
    let mut events = Vec::new();
    let mut comments = Vec::new();
    parse_document(
        &tokens,
        &mut |event: Event| match event.kind() {
            EventKind::Whitespace | EventKind::Newline => {}
            EventKind::Comment => comments.push(event.span().start()..event.span().end()),
            _ => events.push(event),
        },
        &mut (),
    );
    let mut reader = EventReader {
        source,
        events: &events,
        at: 0,
    };
    let layout = reader
        .sections()
        .ok_or_else(|| EditError::refuse("its layout was not understood"))?;
    Ok(ReadText {
        tree,
        layout,
        comments,
    })
}

fn table_value(table: &DeTable<'_>) -> Map<String, Value> {
    table
        .iter()
        .map(|(key, value)| {
            (
                key.get_ref().clone().into_owned(),
                plain_value(value.get_ref()),
            )
        })
        .collect()
}

fn plain_value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        // Numbers that JSON lacks are compared by their spelling.
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.into(),
            Err(_) => Value::String(format!("integer {number}")),
        },
        DeValue::Float(number) => {
            let parsed = number
                .as_str()
                .parse()
                .ok()
                .and_then(serde_json::Number::from_f64);
            parsed.map_or_else(|| Value::String(format!("float {number}")), Value::Number)
        }
        DeValue::Boolean(value) => Value::Bool(*value),
        // A date and a string of the same spelling look alike here. JSON has no dates, so no edit
        // writes one.
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| plain_value(item.get_ref()))
                .collect(),
        ),
        DeValue::Table(table) => Value::Object(table_value(table)),
    }
}

struct EventReader<'a> {
    source: Source<'a>,
    events: &'a [Event],
    at: usize,
}

impl EventReader<'_> {
    fn next(&mut self) -> Option<Event> {
        let event = self.events.get(self.at).copied();
        self.at += 1;
        event
    }

    fn peek(&self) -> Option<EventKind> {
        self.events.get(self.at).map(Event::kind)
    }

    fn sections(&mut self) -> Option<TomlLayout> {
        let mut sections = vec![TomlSection::default()];
        // Number of elements of each list that `[[...]]` spells.
        let mut elements: HashMap<Vec<NodeStep>, usize> = HashMap::new();
        while let Some(kind) = self.peek() {
            match kind {
                EventKind::StdTableOpen | EventKind::ArrayTableOpen => {
                    let open = self.next()?.span().start();
                    let (names, _) = self.key()?;
                    let header = open..self.next()?.span().end();
                    let at = section_path(names, kind == EventKind::ArrayTableOpen, &mut elements);
                    sections.push(TomlSection {
                        header: Some(header),
                        at,
                        entries: Vec::new(),
                    });
                }
                _ => {
                    let (names, key) = self.key()?;
                    // The `=`.
                    self.next()?;
                    let value = self.value()?;
                    sections
                        .last_mut()?
                        .entries
                        .push(TomlEntry { names, key, value });
                }
            }
        }
        Some(TomlLayout { sections })
    }

    fn key(&mut self) -> Option<(Vec<String>, Range<usize>)> {
        let mut names = Vec::new();
        let mut range = None::<Range<usize>>;
        while let Some(EventKind::SimpleKey | EventKind::KeySep) = self.peek() {
            let event = self.next()?;
            if event.kind() == EventKind::KeySep {
                continue;
            }
            let raw: Raw<'_> = self.source.get(event)?;
            let mut name = String::new();
            raw.decode_key(&mut name, &mut ());
            names.push(name);
            let start = range.map_or(event.span().start(), |range| range.start);
            range = Some(start..event.span().end());
        }
        Some((names, range?))
    }

    fn value(&mut self) -> Option<SpanNode> {
        let event = self.next()?;
        let start = event.span().start();
        let (close, is_table) = match event.kind() {
            EventKind::Scalar => {
                return Some(SpanNode {
                    range: start..event.span().end(),
                    shape: NodeShape::Scalar,
                });
            }
            EventKind::ArrayOpen => (EventKind::ArrayClose, false),
            EventKind::InlineTableOpen => (EventKind::InlineTableClose, true),
            _ => return None,
        };
        let mut items = Vec::new();
        let mut entries = Vec::new();
        loop {
            match self.peek()? {
                kind if kind == close => break,
                EventKind::ValueSep => drop(self.next()),
                _ if is_table => entries.push(self.inline_entry()?),
                _ => items.push(self.value()?),
            }
        }
        let end = self.next()?.span().end();
        let members = if is_table {
            NodeMembers::Table(entries)
        } else {
            NodeMembers::List(items)
        };
        Some(SpanNode {
            range: start..end,
            shape: NodeShape::Flow(members),
        })
    }

    fn inline_entry(&mut self) -> Option<SpanEntry> {
        let (names, key) = self.key()?;
        self.next()?;
        let mut value = self.value()?;
        if names.len() > 1 {
            // A dotted key inside braces spells a table that has no range.
            value = SpanNode {
                range: value.range,
                shape: NodeShape::Alias,
            };
        }
        Some(SpanEntry {
            name: names.into_iter().next()?,
            key,
            value,
        })
    }
}

/// Finds the path of a header. Names of lists lead into their last elements.
fn section_path(
    names: Vec<String>,
    is_element: bool,
    elements: &mut HashMap<Vec<NodeStep>, usize>,
) -> Vec<NodeStep> {
    let mut at = Vec::new();
    let count = names.len();
    for (n, name) in names.into_iter().enumerate() {
        at.push(NodeStep::Key(name));
        if is_element && n + 1 == count {
            *elements.entry(at.clone()).or_default() += 1;
        }
        // TOML: a header `[a.b]` beneath `[[a]]` belongs to the last element of `a`.
        if let Some(count) = elements.get(&at) {
            at.push(NodeStep::Index(count - 1));
        }
    }
    at
}
