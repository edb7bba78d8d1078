//! Times and durations as the API writes them.
//!
//! Owns their precision. Does not write the durations of the config (`server_details.rs`).
//! Invariant: a time is RFC 3339 in UTC.

use std::time::{Duration, SystemTime};

/// Writes a time to the millisecond.
pub(super) fn timestamp(at: SystemTime) -> Option<String> {
    let at = jiff::Timestamp::try_from(at).ok()?;
    Some(format!("{at:.3}"))
}

/// Writes a time to the second.
pub(super) fn timestamp_to_second(at: impl TryInto<jiff::Timestamp>) -> Option<String> {
    let at: jiff::Timestamp = at.try_into().ok()?;
    Some(format!("{at:.0}"))
}

/// Returns a duration in milliseconds, with its microseconds.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
