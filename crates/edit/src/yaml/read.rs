//! Reader of YAML: values, their ranges, and comments.
//!
//! Owns the parsers. The one of the config reads the values, with aliases and merge keys resolved,
//! and its events give the ranges.

use std::ops::Range;

use granit_parser::{Event, Parser, StrInput, StructureStyle};
use serde_json::Value;

use crate::error::EditError;
use crate::node::{NodeMembers, NodeShape, SpanEntry, SpanNode};
use crate::source::ReadText;
use crate::text_bounds::DEPTH_MAX;

/// Reads a text.
pub(crate) fn parse(text: &str) -> Result<ReadText<Option<SpanNode>>, EditError> {
    let options = serde_saphyr::options! { strict_booleans: true,
    budget: serde_saphyr::budget! { max_depth: DEPTH_MAX } };
    let tree = serde_saphyr::from_str_with_options::<Value>(text, options)
        .map_err(|error| unreadable(text, &error))?;
    let mut reader = EventReader {
        text,
        events: Parser::new_from_str(text),
        scalars: Vec::new(),
    };
    let root = reader.document()?;
    let comments = find_comments(text, &reader.scalars);
    Ok(ReadText {
        tree,
        layout: root,
        comments,
    })
}

fn unreadable(text: &str, error: &serde_saphyr::Error) -> EditError {
    let message = error.without_snippet().to_string();
    let message = message.lines().next().unwrap_or_default().to_owned();
    match error.location() {
        Some(location) => EditError::Unreadable {
            line: saturating_usize(location.line()),
            column: saturating_usize(location.column()),
            message,
        },
        None => EditError::unreadable(text, 0, message),
    }
}

fn saturating_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Finds all comments: each `#` behind white space that no scalar holds.
fn find_comments(text: &str, scalars: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut comments = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find('#') {
        let start = at + found;
        let before = scalars.partition_point(|scalar| scalar.start <= start);
        if let Some(scalar) = before
            .checked_sub(1)
            .map(|before| &scalars[before])
            .filter(|scalar| start < scalar.end)
        {
            at = scalar.end;
        } else if text[..start].ends_with([' ', '\t', '\n', '\r']) || start == 0 {
            let end = text[start..]
                .find(['\n', '\r'])
                .map_or(text.len(), |length| start + length);
            comments.push(start..end);
            at = end;
        } else {
            at = start + 1;
        }
    }
    comments
}

struct EventReader<'a> {
    text: &'a str,
    events: Parser<'a, StrInput<'a>>,
    /// Ranges of all scalars, keys included, in their order.
    scalars: Vec<Range<usize>>,
}

impl<'a> EventReader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Range<usize>), EditError> {
        let text = self.text;
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, span.byte_range().unwrap_or(0..0))),
            Some(Err(error)) => Err(EditError::unreadable(
                text,
                error.marker().byte_offset().unwrap_or(0),
                error.info(),
            )),
            None => Err(EditError::unreadable(
                text,
                text.len(),
                "the document does not end",
            )),
        }
    }

    fn document(&mut self) -> Result<Option<SpanNode>, EditError> {
        let mut root = None;
        loop {
            let (event, range) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentEnd => {}
                // The config reads one document only, so an edit of another one would have no
                // effect.
                Event::DocumentStart(..) if root.is_some() => {
                    return Err(EditError::refuse("the file has several documents"));
                }
                Event::DocumentStart(..) => {}
                event => root = Some(self.node(event, range)?),
            }
        }
        // A document that holds nothing has an empty scalar.
        Ok(root.filter(|root: &SpanNode| !root.range.is_empty()))
    }

    fn node(&mut self, event: Event<'a>, range: Range<usize>) -> Result<SpanNode, EditError> {
        match event {
            Event::Scalar(..) => {
                let range = self.trimmed(range);
                if !range.is_empty() {
                    self.scalars.push(range.clone());
                }
                Ok(SpanNode {
                    range,
                    shape: NodeShape::Scalar,
                })
            }
            Event::SequenceStart(style, ..) => {
                let mut items = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::SequenceEnd, end) => break end,
                        (event, range) => {
                            let mut item = self.node(event, range)?;
                            if item.range.is_empty() {
                                item.range = self.behind_mark(item.range.start, "-");
                            }
                            items.push(item);
                        }
                    }
                };
                let range = self.extent(style, range, end, items.first().zip(items.last()));
                Ok(SpanNode {
                    range,
                    shape: shape(style, NodeMembers::List(items)),
                })
            }
            Event::MappingStart(style, ..) => {
                let mut entries: Vec<SpanEntry> = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::MappingEnd, end) => break end,
                        (event, range) => entries.push(self.entry(event, range)?),
                    }
                };
                let bounds = entries.first().zip(entries.last()).map(|(first, last)| {
                    let first = SpanNode {
                        range: first.key.clone(),
                        shape: NodeShape::Scalar,
                    };
                    (
                        first,
                        SpanNode {
                            range: last.key.end..last.value.range.end.max(last.key.end),
                            shape: NodeShape::Scalar,
                        },
                    )
                });
                let range = self.extent(
                    style,
                    range,
                    end,
                    bounds.as_ref().map(|(first, last)| (first, last)),
                );
                Ok(SpanNode {
                    range,
                    shape: shape(style, NodeMembers::Table(entries)),
                })
            }
            _ => Ok(SpanNode {
                range,
                shape: NodeShape::Alias,
            }),
        }
    }

    fn entry(&mut self, event: Event<'a>, range: Range<usize>) -> Result<SpanEntry, EditError> {
        let name = match &event {
            Event::Scalar(name, ..) => name.clone().into_owned(),
            _ => String::new(),
        };
        let key = self.node(event, range)?.range;
        let (event, range) = self.next()?;
        let mut value = self.node(event, range)?;
        if value.range.is_empty() {
            value.range = self.behind_mark(value.range.start.max(key.end), ":");
        }
        Ok(SpanEntry { name, key, value })
    }

    /// Returns the position directly behind a mark, where an empty value is.
    fn behind_mark(&self, at: usize, mark: &str) -> Range<usize> {
        let before = self.text[..at].trim_end();
        // The parser may put an empty value at the mark, or at the next token.
        let at = match before.ends_with(mark) {
            true => before.len(),
            false if self.text[at..].starts_with(mark) => at + mark.len(),
            false => at,
        };
        at..at
    }

    fn trimmed(&self, range: Range<usize>) -> Range<usize> {
        range.start..range.start + self.text[range.clone()].trim_end().len()
    }

    /// Returns the range of a container: its brackets, or its members.
    fn extent(
        &self,
        style: StructureStyle,
        start: Range<usize>,
        end: Range<usize>,
        bounds: Option<(&SpanNode, &SpanNode)>,
    ) -> Range<usize> {
        match (style, bounds) {
            (StructureStyle::Block, Some((first, last))) => first.range.start..last.range.end,
            _ => self.trimmed(start.start..end.end),
        }
    }
}

fn shape(style: StructureStyle, members: NodeMembers) -> NodeShape {
    match style {
        StructureStyle::Block => NodeShape::Block(members),
        StructureStyle::Flow => NodeShape::Flow(members),
    }
}
