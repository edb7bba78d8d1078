//! Values with a unit: durations, rates and sizes.
//!
//! Owns their types. Does not read or write the text (`parse_units`) or describe it
//! (`unit_schemas`). Invariant: a value that its text does not give is refused with its place in
//! the file (`check`), before one of these is made.

use std::time::Duration;

use std::fmt;

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
        parse_units::duration(&text)
            .map(DurationSetting)
            .map_err(D::Error::custom)
    }
}

/// Rate in a config: `100/min`. `None` for any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSetting(pub Option<RequestRate>);

impl Serialize for RateSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for RateSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&parse_units::rate_text(self.0))
    }
}

impl<'de> Deserialize<'de> for RateSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_units::rate(&text)
            .map(RateSetting)
            .map_err(D::Error::custom)
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
            WrittenSize::Text(text) => parse_units::size(&text)
                .map(SizeSetting)
                .map_err(D::Error::custom),
        }
    }
}
