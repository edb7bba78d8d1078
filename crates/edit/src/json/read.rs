//! Reader of JSON: values, their ranges, and comments.
//!
//! Owns the parser. Invariant: a key that is there twice is an error, since nobody knows which one
//! counts.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::errors::ParseError;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, ParseOptions, Scanner};
use serde_json::{Map, Value};

use std::ops::Range;

use crate::error::EditError;
use crate::node::{NodeMembers, NodeShape, SpanEntry, SpanNode};
use crate::source::ReadText;

/// Reads a text.
pub(crate) fn parse(text: &str) -> Result<ReadText<Option<SpanNode>>, EditError> {
    let comments = scan(text)?;
    // Keys without quotes are JSON5. Clients and our own loader do not read them.
    let options = ParseOptions {
        allow_loose_object_property_names: false,
        ..Default::default()
    };
    let parsed = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &options)
        .map_err(|error| syntax_error(text, &error))?;
    let (tree, root) = match &parsed.value {
        Some(value) => {
            let (tree, node) = convert(text, value)?;
            (tree, Some(node))
        }
        None => (Value::Null, None),
    };
    Ok(ReadText {
        tree,
        layout: root,
        comments,
    })
}

fn syntax_error(text: &str, error: &ParseError) -> EditError {
    EditError::unreadable(text, error.range().start, error.kind().to_string())
}

/// Finds all comments.
fn scan(text: &str) -> Result<Vec<Range<usize>>, EditError> {
    let mut scanner = Scanner::new(text);
    let mut comments = Vec::new();
    while let Some(token) = scanner.scan().map_err(|error| syntax_error(text, &error))? {
        if let Token::CommentLine(_) | Token::CommentBlock(_) = token {
            let comment = scanner.token_start()..scanner.token_end();
            // A line comment may end with the carriage return of its line, which isn't part of it.
            let length = text[comment.clone()].trim_end().len();
            comments.push(comment.start..comment.start + length);
        }
    }
    Ok(comments)
}

/// Reads a number to the last digit. `serde_json` rounds faster, and not always right.
fn read_number(text: &str) -> Option<Value> {
    let whole = text
        .parse::<i64>()
        .map(Value::from)
        .or_else(|_| text.parse::<u64>().map(Value::from));
    whole
        .ok()
        .or_else(|| serde_json::Number::from_f64(text.parse().ok()?).map(Value::Number))
}

fn convert(text: &str, value: &ast::Value<'_>) -> Result<(Value, SpanNode), EditError> {
    let range = value.start()..value.end();
    let (value, shape) = match value {
        ast::Value::StringLit(string) => (
            Value::String(string.value.clone().into_owned()),
            NodeShape::Scalar,
        ),
        ast::Value::NumberLit(number) => {
            let parsed = read_number(number.value);
            (
                parsed.ok_or_else(|| EditError::unreadable(text, range.start, "not a number"))?,
                NodeShape::Scalar,
            )
        }
        ast::Value::BooleanLit(value) => (Value::Bool(value.value), NodeShape::Scalar),
        ast::Value::NullKeyword(_) => (Value::Null, NodeShape::Scalar),
        ast::Value::Array(array) => {
            let items = array
                .elements
                .iter()
                .map(|item| convert(text, item))
                .collect::<Result<Vec<_>, _>>()?;
            let (values, nodes) = items.into_iter().unzip();
            (
                Value::Array(values),
                NodeShape::Flow(NodeMembers::List(nodes)),
            )
        }
        ast::Value::Object(object) => {
            let mut values = Map::new();
            let mut entries = Vec::new();
            for property in &object.properties {
                let key = property.name.start()..property.name.end();
                let name = property.name.as_str().to_owned();
                let (value, node) = convert(text, &property.value)?;
                if values.insert(name.clone(), value).is_some() {
                    return Err(EditError::unreadable(
                        text,
                        key.start,
                        format!("`{name}` is defined twice"),
                    ));
                }
                entries.push(SpanEntry {
                    name,
                    key,
                    value: node,
                });
            }
            (
                Value::Object(values),
                NodeShape::Flow(NodeMembers::Table(entries)),
            )
        }
    };
    Ok((value, SpanNode { range, shape }))
}
