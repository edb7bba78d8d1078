//! Schemas of values with a unit.
//!
//! Owns the form of durations, rates and sizes in the config's schema. Does not read their text
//! (`text`). Invariant: only tests compile it, since the program reads the finished file.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::settings::{DurationSetting, RateSetting, SizeSetting};

/// Numbers with their units, larger units first, or a reference. Not every validator knows
/// lookaheads, so each first unit is a separate case.
const DURATION_PATTERN: &str = concat!(
    r"^([0-9]+(ms|s([0-9]+ms)?|m([0-9]+s)?([0-9]+ms)?|h([0-9]+m)?([0-9]+s)?([0-9]+ms)?",
    r"|d([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)|.*\$\{.*)$"
);

impl JsonSchema for DurationSetting {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration with its unit: `30s`, `1m30s`, `500ms`.",
            "pattern": DURATION_PATTERN,
            "x-unit": "duration",
            "x-write": "write a duration with its unit, such as \"30s\", \"1m30s\" or \"500ms\"",
        })
    }
}

impl JsonSchema for RateSetting {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A rate: `100/min`, `10/s`; `0` means no limit.",
            "pattern": r"^(0|[0-9]+ */ *(s|sec|min|h|hour|d|day)|.*\$\{.*)$",
            "x-unit": "rate",
            "x-write": "write a rate, such as \"100/min\" or \"10/s\"; \"0\" means no limit",
        })
    }
}

impl JsonSchema for SizeSetting {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "description": "A size: `4MiB`, `16KB`, or a number of bytes.",
            "pattern": r"^([0-9]+ *(([KMGkmg][Ii]?)?[Bb])?|.*\$\{.*)$",
            "minimum": 0,
            "x-unit": "size",
            "x-write": "write a size with its unit, such as \"4MiB\", or a number of bytes",
        })
    }
}
