//! Tests that the schema's patterns and the readers of values agree.
//!
//! Owns samples of each kind of value. Does not change the schema (`derived`). Invariant: an editor
//! that knows the schema marks what `check` refuses.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use regress::Regex;
use serde_json::Value;

use super::schema::ConfigSchema;

/// Durations, and texts that are none.
const DURATIONS: [&str; 19] = [
    "30s",
    "1m30s",
    "500ms",
    "0s",
    "1d2h3m4s5ms",
    "1h5ms",
    "1d5ms",
    "2m1ms",
    "",
    "30",
    "1.5",
    "s",
    "30 s",
    "1s1m",
    "1s1s",
    "-1s",
    "1ms1s",
    "30S",
    "1m30",
];
/// Rates, and texts that are none.
const RATES: [&str; 14] = [
    "100/min",
    "10 / s",
    "5/hour",
    "0",
    "0/s",
    "1/d",
    "1/sec",
    "100",
    "",
    "x/s",
    "1/fortnight",
    "-1/s",
    "0/",
    "1/m",
];
/// Sizes, and texts that are none.
const SIZES: [&str; 18] = [
    "4MiB", "16KB", "512", "1 GiB", "0", "5b", "4kib", "1GB", "4M", "4k", "4Mi", "4 Mi", "", "MiB",
    "-4", "4.5MiB", "4TiB", "4BB",
];

fn check(rule: &Value, samples: &[&str], is_read: impl Fn(&str) -> bool) {
    let pattern = Regex::new(rule["pattern"].as_str().unwrap()).unwrap();
    for text in samples {
        assert_eq!(pattern.find(text).is_some(), is_read(text), "{text:?}");
    }
    // The value of a variable is known later.
    for text in ["${LIMIT}", "${LIMIT:-1}MiB"] {
        assert!(pattern.find(text).is_some(), "{text:?}");
    }
}

#[test]
fn patterns_take_what_the_readers_take() {
    let schema = ConfigSchema::read().into_value();
    let rules = &schema["$defs"];
    check(&rules["Duration"], &DURATIONS, |text| {
        moongate_units::duration(text).is_ok()
    });
    check(&rules["Rate"], &RATES, |text| {
        moongate_units::rate(text).is_ok()
    });
    check(&rules["Size"], &SIZES, |text| {
        moongate_units::size(text).is_ok()
    });
}

#[test]
fn modes_of_sockets_are_permissions_alone() {
    let schema = ConfigSchema::read().into_value();
    let rule = &schema["$defs"]["Gateway"]["properties"]["socket_mode"];
    let modes = ["600", "0660", "1777", "7777", "60", "rw", ""];
    check(rule, &modes, |text| matches!(text, "600" | "0660"));
}
