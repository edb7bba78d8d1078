//! Times in clients' files, which each client writes in its own unit.
//!
//! Owns the keys whose name has a unit, and the conversion of numbers. Does not check times
//! (`check`). Invariant: a number without a known unit stays as it is.

use super::super::tree::{ConfigNode, ConfigValue};
use super::client::TimeUnit;
use super::entry::ClientEntry;

/// Keys with a time in a fixed unit, with our key.
const TIMED: [(&str, &str, TimeUnit); 9] = [
    (
        "connectionTimeout",
        "connect_timeout",
        TimeUnit::Milliseconds,
    ),
    ("startup_timeout_sec", "start_timeout", TimeUnit::Seconds),
    (
        "startup_timeout_ms",
        "start_timeout",
        TimeUnit::Milliseconds,
    ),
    ("tool_timeout_sec", "timeout", TimeUnit::Seconds),
    ("timeout_sec", "timeout", TimeUnit::Seconds),
    ("timeoutSeconds", "timeout", TimeUnit::Seconds),
    ("timeout_seconds", "timeout", TimeUnit::Seconds),
    ("timeoutMs", "timeout", TimeUnit::Milliseconds),
    ("timeout_ms", "timeout", TimeUnit::Milliseconds),
];

impl ClientEntry<'_> {
    /// Gives numbers the client's unit of time.
    pub(super) fn times(&mut self, foreign: bool) {
        for (key, ours, unit) in TIMED {
            let Some(node) = self.table.remove(key) else {
                continue;
            };
            let node = match with_unit(&node.value, unit) {
                Some(value) => ConfigNode { value, ..node },
                None => node,
            };
            self.table.entry(ours.to_owned()).or_insert(node);
        }
        let Some(unit) = self.format.unit.filter(|_| foreign) else {
            return;
        };
        for key in ["timeout", "connect_timeout", "start_timeout"] {
            if let Some(node) = self.table.get_mut(key)
                && let Some(value) = with_unit(&node.value, unit)
            {
                node.value = value;
            }
        }
        if let Some(node) = self.table.remove("initTimeout") {
            let value = with_unit(&node.value, unit);
            self.table.extend(
                value.map(|value| ("start_timeout".to_owned(), ConfigNode { value, ..node })),
            );
        }
    }
}

/// Converts a number, or the text of one, into a time.
fn with_unit(value: &ConfigValue, unit: TimeUnit) -> Option<ConfigValue> {
    let number = match value {
        #[allow(clippy::cast_precision_loss, reason = "no time is so long")]
        ConfigValue::Int(number) => *number as f64,
        ConfigValue::Float(number) => *number,
        ConfigValue::Text(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    let milliseconds = match unit {
        TimeUnit::Seconds => number * 1000.0,
        TimeUnit::Milliseconds => number,
    };
    // No config means a time above this bound, and such numbers lose digits.
    if !milliseconds.is_finite() || !(0.0..1e15).contains(&milliseconds) {
        return None;
    }
    // Whole seconds are written in seconds, since messages may quote the value.
    let whole = (milliseconds % 1000.0).abs() < f64::EPSILON;
    let text = if whole {
        format!("{:.0}s", milliseconds / 1000.0)
    } else {
        format!("{milliseconds:.0}ms")
    };
    Some(ConfigValue::Text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_value(text: &str) -> Option<ConfigValue> {
        Some(ConfigValue::Text(text.to_owned()))
    }

    #[test]
    fn numbers_get_the_unit_of_their_client() {
        assert_eq!(
            with_unit(&ConfigValue::Int(60), TimeUnit::Seconds),
            text_value("60s")
        );
        assert_eq!(
            with_unit(&ConfigValue::Int(60_000), TimeUnit::Milliseconds),
            text_value("60s")
        );
        assert_eq!(
            with_unit(&ConfigValue::Int(1500), TimeUnit::Milliseconds),
            text_value("1500ms")
        );
        assert_eq!(
            with_unit(&ConfigValue::Float(1.5), TimeUnit::Seconds),
            text_value("1500ms")
        );
        assert_eq!(
            with_unit(&ConfigValue::Text("30".to_owned()), TimeUnit::Seconds),
            text_value("30s")
        );
        assert_eq!(
            with_unit(&ConfigValue::Text("30s".to_owned()), TimeUnit::Seconds),
            None
        );
        assert_eq!(
            with_unit(&ConfigValue::Float(f64::NAN), TimeUnit::Seconds),
            None
        );
    }
}
