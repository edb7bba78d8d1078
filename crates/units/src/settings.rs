//! Values with a unit: durations, rates and sizes.
//!
//! Owns their types. Does not read or write the text (`text`) or describe it (`schemas`).

use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text;
use moongate_access::policy::RequestRate;

/// Duration in a config: `30s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationSetting(pub Duration);

impl DurationSetting {
    /// Creates a duration of milliseconds.
    pub const fn millis(number: u64) -> Self {
        DurationSetting(Duration::from_millis(number))
    }

    /// Creates a duration of seconds.
    pub const fn seconds(number: u64) -> Self {
        DurationSetting(Duration::from_secs(number))
    }

    /// Creates a duration of minutes.
    pub const fn minutes(number: u64) -> Self {
        DurationSetting::seconds(number * 60)
    }
}

impl Serialize for DurationSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text::duration_text(self.0))
    }
}

impl<'de> Deserialize<'de> for DurationSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        text::duration(&written)
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
        f.write_str(&text::rate_text(self.0))
    }
}

impl<'de> Deserialize<'de> for RateSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        text::rate(&written)
            .map(RateSetting)
            .map_err(D::Error::custom)
    }
}

/// Size in a config in bytes: `4MiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeSetting(pub usize);

impl SizeSetting {
    /// Creates a size of KiB.
    pub const fn kib(number: usize) -> Self {
        SizeSetting(number << 10)
    }

    /// Creates a size of MiB.
    pub const fn mib(number: usize) -> Self {
        SizeSetting(number << 20)
    }
}

impl Serialize for SizeSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text::size_text(self.0))
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
            WrittenSize::Text(written) => text::size(&written)
                .map(SizeSetting)
                .map_err(D::Error::custom),
        }
    }
}
