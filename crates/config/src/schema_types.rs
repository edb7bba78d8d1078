//! Values with a unit: durations, rates and sizes.
//!
//! Owns their types and their form in the schema. Does not read or write the text (`parse_units`). Invariant: a value that
//! its text does not give is refused with its place in the file (`check`), before one of these is made.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::parse_units;
use moongate_access::policy::RequestRate;

/// Duration in a config: `30s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationSetting(pub Duration);

impl DurationSetting {
    pub(super) const fn millis(number: u64) -> Self {
        DurationSetting(Duration::from_millis(number))
    }

    pub(super) const fn seconds(number: u64) -> Self {
        DurationSetting(Duration::from_secs(number))
    }

    pub(super) const fn minutes(number: u64) -> Self {
        DurationSetting::seconds(number * 60)
    }
}

impl Serialize for DurationSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&parse_units::duration_text(self.0))
    }
}

impl<'de> Deserialize<'de> for DurationSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_units::duration(&text).map(DurationSetting).map_err(D::Error::custom)
    }
}

impl JsonSchema for DurationSetting {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration with its unit: `30s`, `1m30s`, `500ms`.",
            "pattern": r"^(([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?|.*\$\{.*)$",
            "x-unit": "duration",
            "x-write": "write a duration with its unit, such as \"30s\", \"1m30s\" or \"500ms\"",
        })
    }
}

/// Rate in a config: `100/min`. `None` for any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSetting(pub Option<RequestRate>);

impl Serialize for RateSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&parse_units::rate_text(self.0))
    }
}

impl<'de> Deserialize<'de> for RateSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_units::rate(&text).map(RateSetting).map_err(D::Error::custom)
    }
}

impl JsonSchema for RateSetting {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A number in a time: `100/min`, `10/s`; `0` for any number.",
            "pattern": r"^(0|[0-9]+ */ *(s|sec|min|h|hour|d|day)|.*\$\{.*)$",
            "x-unit": "rate",
            "x-write": "write a number in a time, such as \"100/min\" or \"10/s\"; \"0\" for any number",
        })
    }
}

/// Size in a config in bytes: `4MiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeSetting(pub usize);

impl SizeSetting {
    pub(super) const fn kib(number: usize) -> Self {
        SizeSetting(number << 10)
    }

    pub(super) const fn mib(number: usize) -> Self {
        SizeSetting(number << 20)
    }
}

impl Serialize for SizeSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&parse_units::size_text(self.0))
    }
}

impl<'de> Deserialize<'de> for SizeSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum WrittenSize {
            Bytes(usize),
            Text(String),
        }
        match WrittenSize::deserialize(deserializer)? {
            WrittenSize::Bytes(bytes) => Ok(SizeSetting(bytes)),
            WrittenSize::Text(text) => parse_units::size(&text).map(SizeSetting).map_err(D::Error::custom),
        }
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
            "pattern": r"^([0-9]+ *([KMGkmg][Ii]?)?[Bb]?|.*\$\{.*)$",
            "minimum": 0,
            "x-unit": "size",
            "x-write": "write a size with its unit, such as \"4MiB\", or a number of bytes",
        })
    }
}
