//! Check of values with a unit.
//!
//! Owns the messages about durations, sizes and rates. Does not know keys: the schema says the unit and the least value
//! of each. Invariant: no message quotes a value that may be secret.

use super::parse_units;
use super::redact::quoted_value;
use super::schema::SchemaRule;
use super::tree::{ConfigNode, ConfigPath, ConfigValue};

/// Message about a value, and its fix.
type UnitProblem = (String, String);

/// Checks a value whose type is right. Values without a unit pass.
pub(super) fn check_unit(node: &ConfigNode, rule: SchemaRule, path: &ConfigPath) -> Result<(), UnitProblem> {
    let text = match &node.value {
        ConfigValue::Text(text) => text.clone(),
        // A size may be a number of bytes.
        ConfigValue::Int(number) => number.to_string(),
        _ => return Ok(()),
    };
    match rule.unit() {
        Some("duration") => check_duration(&text, node, rule, path),
        Some("size") => check_size(&text, node, rule, path),
        Some("rate") => check_rate(&text, node, path),
        _ => Ok(()),
    }
}

fn check_duration(text: &str, node: &ConfigNode, rule: SchemaRule, path: &ConfigPath) -> Result<(), UnitProblem> {
    match parse_units::duration(text) {
        Ok(duration) if duration.is_zero() && !rule.allows_zero() => {
            Err((format!("`{path}` cannot be zero"), "write at least \"1ms\"".to_owned()))
        }
        Ok(_) => Ok(()),
        Err(wrong) => {
            let fix = match wrong {
                // An expanded value may be a secret, so the fix must not quote it either.
                "has no unit" if !node.expanded => {
                    format!("write the unit, such as \"{}s\" or \"{}ms\"", text.trim(), text.trim())
                }
                "is too long" if !node.expanded => "use at most ten years".to_owned(),
                _ => "write a duration such as \"30s\", \"1m30s\" or \"500ms\"".to_owned(),
            };
            Err((format!("`{path}`: {} {wrong}", quoted_value(node, path)), fix))
        }
    }
}

fn check_size(text: &str, node: &ConfigNode, rule: SchemaRule, path: &ConfigPath) -> Result<(), UnitProblem> {
    // Less than one KiB would not hold any message.
    let least = rule.least().unwrap_or("1KiB");
    match parse_units::size(text) {
        Ok(0) if rule.allows_zero() => Ok(()),
        Ok(size) if parse_units::size(least).is_ok_and(|least| size < least) => {
            Err((format!("`{path}` is too small"), format!("use at least \"{least}\"")))
        }
        Ok(_) => Ok(()),
        Err(wrong) => {
            let fix = "write a size such as \"4MiB\" or \"16KB\", or a number of bytes";
            Err((format!("`{path}`: {} {wrong}", quoted_value(node, path)), fix.to_owned()))
        }
    }
}

fn check_rate(text: &str, node: &ConfigNode, path: &ConfigPath) -> Result<(), UnitProblem> {
    parse_units::rate(text).map(drop).map_err(|wrong| {
        let fix = "write a number in a time, such as \"100/min\" or \"10/s\"; \"0\" for any number";
        (format!("`{path}`: {} {wrong}", quoted_value(node, path)), fix.to_owned())
    })
}
