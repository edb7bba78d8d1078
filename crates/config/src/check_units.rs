//! Check of values with a unit.
//!
//! Owns the messages about durations, sizes and rates. Does not know keys: the schema says the unit
//! and the least value of each. Invariant: no message quotes a value that may be secret.

use super::redact::quoted_value;
use super::schema::SchemaRule;
use super::tree::{ConfigNode, ConfigPath, ConfigValue};
use moongate_units as units;

/// Message about a value, and its fix.
type UnitProblem = (String, String);

/// Checks a value whose type is right. Values without a unit pass.
pub(super) fn check_unit(
    node: &ConfigNode,
    rule: SchemaRule,
    path: &ConfigPath,
) -> Result<(), UnitProblem> {
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

fn check_duration(
    text: &str,
    node: &ConfigNode,
    rule: SchemaRule,
    path: &ConfigPath,
) -> Result<(), UnitProblem> {
    match units::duration(text) {
        Ok(duration) if duration.is_zero() && !rule.allows_zero() => Err((
            format!("`{path}` cannot be zero"),
            "write at least \"1ms\"".to_owned(),
        )),
        Ok(_) => Ok(()),
        Err(wrong) => {
            let fix = match wrong {
                // An expanded value may be a secret, so the fix must not quote it either.
                "has no unit" if !node.expanded => {
                    format!(
                        "write the unit, such as \"{}s\" or \"{}ms\"",
                        text.trim(),
                        text.trim()
                    )
                }
                "is too long" if !node.expanded => "use at most ten years".to_owned(),
                _ => "write a duration such as \"30s\", \"1m30s\" or \"500ms\"".to_owned(),
            };
            Err((
                format!("`{path}`: {} {wrong}", quoted_value(node, path)),
                fix,
            ))
        }
    }
}

fn check_size(
    text: &str,
    node: &ConfigNode,
    rule: SchemaRule,
    path: &ConfigPath,
) -> Result<(), UnitProblem> {
    // Less than one KiB would not hold any message.
    let least = rule.least().unwrap_or("1KiB");
    match units::size(text) {
        Ok(0) if rule.allows_zero() => Ok(()),
        Ok(size) if units::size(least).is_ok_and(|least| size < least) => Err((
            format!("`{path}` is too small"),
            format!("use at least \"{least}\""),
        )),
        Ok(_) => Ok(()),
        Err(wrong) => {
            let fix = "write a size such as \"4MiB\" or \"16KB\", or a number of bytes";
            Err((
                format!("`{path}`: {} {wrong}", quoted_value(node, path)),
                fix.to_owned(),
            ))
        }
    }
}

fn check_rate(text: &str, node: &ConfigNode, path: &ConfigPath) -> Result<(), UnitProblem> {
    units::rate(text).map(drop).map_err(|wrong| {
        let fix = "write a rate, such as \"100/min\" or \"10/s\"; \"0\" means no limit";
        (
            format!("`{path}`: {} {wrong}", quoted_value(node, path)),
            fix.to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::{LoadOptions, load};

    fn errors(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moongate.toml");
        std::fs::write(&path, text).unwrap();
        load(&LoadOptions {
            paths: vec![path],
            ..LoadOptions::default()
        })
        .err()
        .map(|e| e.to_string())
        .unwrap_or_default()
    }

    #[test]
    fn least_values_are_those_of_the_key() {
        for (line, expected) in [
            ("head = \"7KiB\"", "use at least \"8KiB\""),
            ("body = 1023", "use at least \"1KiB\""),
            ("memory = \"0\"", ""),
            ("memory = \"1B\"", "`limits.memory` is too small"),
            (
                "read_timeout = \"0s\"",
                "`limits.read_timeout` cannot be zero",
            ),
            ("rate = \"5\"", "\"5\" has no unit of time"),
        ] {
            let shown = errors(&format!("[limits]\n{line}\n"));
            assert!(
                shown.contains(expected) && shown.is_empty() == expected.is_empty(),
                "{line}: {shown}"
            );
        }
        assert_eq!(errors("[gateway]\ndrain = \"0s\"\n"), "");
    }

    #[test]
    fn values_of_a_server_that_does_not_run_are_not_checked() {
        for (timeout, expected) in [
            ("${NOT_SET}", "NOT_SET is not set"),
            ("soon", "`servers.a.timeout`: \"soon\" is not a duration"),
        ] {
            let server = format!("[servers.a]\nurl = \"http://a/\"\ntimeout = \"{timeout}\"\n");
            assert_eq!(errors(&format!("{server}enabled = false\n")), "");
            assert!(errors(&format!("{server}enabled = true\n")).contains(expected));
        }
    }
}
