//! The page of limits is true: each setting on it exists, with the default that it names, and so
//! does each metric.

use std::collections::BTreeSet;

use moongate_config::json_schema;
use moongate_telemetry::Metrics;
use serde_json::Value;

const PAGE: &str = include_str!("../../docs/reference/limits.md");

/// The rows of the section with this heading: its cells, as they are written.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = PAGE
        .split_once(heading)
        .unwrap_or_else(|| panic!("no section {heading:?}"));
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = |row: &'static str| row.trim_matches('|').split(" | ").map(str::trim).collect();
    let rows: Vec<Vec<&str>> = rows.map(cells).collect();
    assert!(rows.len() > 5, "{heading}: {rows:?}");
    rows
}

/// What stands in backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn check(heading: &str, table: &str) -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let of = |key: &str| {
        let found = &schema["properties"][table];
        let reference = found["$ref"]
            .as_str()
            .or(found["allOf"][0]["$ref"].as_str());
        let definition = reference.map_or(found, |path| schema.pointer(&path[1..]).unwrap());
        (
            definition["properties"][key].clone(),
            found["default"][key].clone(),
        )
    };
    // Every metric appears once it has a series; those with labels are made when they are first
    // used.
    let metrics = String::from_utf8(Metrics::new().render()).unwrap();
    let source = concat!(
        include_str!("../../crates/telemetry/src/metrics/areas.rs"),
        include_str!("../../crates/telemetry/src/metrics/process_metrics.rs"),
    );
    let mut seen = BTreeSet::new();
    for row in rows(heading) {
        let [key] = quoted(row[0])[..] else {
            panic!("{row:?}")
        };
        let (rule, default) = of(key);
        assert!(rule.is_object(), "{table}.{key} is not in the schema");
        match quoted(row[1])[..] {
            [written] => assert_eq!(default.to_string(), written, "{table}.{key}"),
            _ => assert!(default.is_null(), "{table}.{key} has a default: {default}"),
        }
        let named = quoted(row[2]);
        assert!(!named.is_empty(), "{table}.{key} has no metric");
        for metric in named {
            assert!(
                metrics.contains(metric) || source.contains(&format!("\"{metric}\"")),
                "there is no {metric}"
            );
        }
        assert!(!row[3].is_empty() && seen.insert(key.to_owned()), "{row:?}");
    }
    seen
}

#[test]
fn every_limit_of_clients_is_on_the_page_and_in_the_schema() {
    let seen = check("## What clients can make grow", "limits");
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let all = schema["$defs"]["Limits"]["properties"].as_object().unwrap();
    let missing: Vec<_> = all.keys().filter(|key| !seen.contains(*key)).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
}

#[test]
fn the_defaults_have_room_for_each_other() {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let default = |key: &str| {
        schema["properties"]["limits"]["default"][key]
            .as_u64()
            .unwrap()
    };
    // Over HTTP/1.1 each has a connection to itself.
    assert!(default("connections") >= default("streams") + default("calls"));
    assert!(default("calls_per_key") <= default("calls") && default("parked") <= default("calls"));
}

#[test]
fn every_limit_of_servers_is_on_the_page_and_in_the_schema() {
    let seen = check("## What servers can make grow", "defaults");
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let all = schema["$defs"]["ServerOptions"]["properties"]
        .as_object()
        .unwrap();
    let missing: Vec<_> = all
        .keys()
        .filter(|key| key.starts_with("max_") && !seen.contains(*key))
        .collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
}
