//! Durations, rates and sizes in their written form.
//!
//! Owns their form in the schema. Does not read them (`parse_units`). Invariant: a value that its pattern refuses is
//! refused with its place in the file.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Duration as written, read by `parse_units`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct DurationText(pub(super) String);

impl From<&str> for DurationText {
    fn from(text: &str) -> Self {
        DurationText(text.to_owned())
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration with its unit: `30s`, `1m30s`, `500ms`.",
            "pattern": r"^(([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?|.*\$\{.*)$",
            "x-write": "write a duration with its unit, such as \"30s\", \"1m30s\" or \"500ms\"",
        })
    }
}

/// Rate as written, read by `parse_units`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct RateText(pub(super) String);

impl JsonSchema for RateText {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A number in a time: `100/min`, `10/s`; `0` for any number.",
            "pattern": r"^(0|[0-9]+ */ *(s|sec|min|h|hour|d|day)|.*\$\{.*)$",
            "x-write": "write a number in a time, such as \"100/min\" or \"10/s\"; \"0\" for any number",
        })
    }
}

/// Size as written, read by `parse_units`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum SizeText {
    Bytes(u64),
    Text(String),
}

impl From<&str> for SizeText {
    fn from(text: &str) -> Self {
        SizeText::Text(text.to_owned())
    }
}

impl JsonSchema for SizeText {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "description": "A size: `4MiB`, `16KB`, or a number of bytes.",
            "pattern": r"^([0-9]+ *([KMGkmg][Ii]?)?[Bb]?|.*\$\{.*)$",
            "minimum": 0,
            "x-write": "write a size with its unit, such as \"4MiB\", or a number of bytes",
        })
    }
}
