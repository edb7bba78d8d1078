//! Durations, sizes and rates with their units, as the config writes them.
//!
//! Owns their types and their text, in both directions. Does not know keys or their ranges
//! (`config`). Invariant: a duration without a unit is an error, never a guess.

#[cfg(feature = "schema")]
mod schemas;
mod settings;
mod text;

pub use settings::{DurationSetting, RateSetting, SizeSetting};
pub use text::{duration, rate, size};
