//! Tools that a client's user disabled or chose.
//!
//! Owns the conversion of clients' lists into `tools.deny` and `tools.allow`. Does not match names
//! (`access`). Invariant: a tool that is disabled in the client is never callable through the
//! gateway.

use std::collections::BTreeMap;

use super::super::collector::ProblemCollector;
use super::super::problem::ProblemKind;
use super::super::tree::{ConfigNode, ConfigPath, ConfigValue};

/// Keys with disabled tools.
pub(super) const DENIED: [&str; 8] = [
    "disabledTools",
    "disabled_tools",
    "excludeTools",
    "exclude_tools",
    "disallowedTools",
    "blockedTools",
    "deniedTools",
    "excludedTools",
];

/// Keys with the only enabled tools.
pub(super) const ALLOWED: [&str; 8] = [
    "includeTools",
    "include_tools",
    "enabledTools",
    "enabled_tools",
    "allowedTools",
    "allowed_tools",
    "includedTools",
    "available_tools",
];

/// Moves the lists of an entry into its `tools`.
pub(super) fn convert(
    path: &ConfigPath,
    table: &mut BTreeMap<String, ConfigNode>,
    faults: &mut ProblemCollector,
) {
    // A list as `tools` names the tools that the entry may use.
    if table
        .get("tools")
        .is_some_and(|node| matches!(node.value, ConfigValue::List(_) | ConfigValue::Text(_)))
        && let Some(node) = table.remove("tools")
    {
        add(path, table, "allow", node, faults);
    }
    for (keys, list) in [(DENIED, "deny"), (ALLOWED, "allow")] {
        for key in keys {
            let Some(node) = table.remove(key) else {
                continue;
            };
            // An empty list under this key means all tools.
            if key == "available_tools" && node.value == ConfigValue::List(Vec::new()) {
                continue;
            }
            add(path, table, list, node, faults);
        }
    }
}

/// Disables one tool of an entry.
pub(super) fn deny(table: &mut BTreeMap<String, ConfigNode>, tool: &str, node: &ConfigNode) {
    let item = ConfigNode {
        value: ConfigValue::Text(tool.to_owned()),
        ..node.clone()
    };
    let list = ConfigNode {
        value: ConfigValue::List(vec![item]),
        ..node.clone()
    };
    let path = ConfigPath::root();
    // Its problems are dropped: the schema check reports a `tools.deny` that isn't a list.
    add(&path, table, "deny", list, &mut ProblemCollector::default());
}

fn add(
    path: &ConfigPath,
    table: &mut BTreeMap<String, ConfigNode>,
    list: &str,
    mut node: ConfigNode,
    faults: &mut ProblemCollector,
) {
    // Some clients write the names in one text, with commas.
    if let ConfigValue::Text(text) = &node.value {
        let names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let span = node.span;
        node.value = ConfigValue::List(
            names
                .map(|name| ConfigNode::new(ConfigValue::Text(name.to_owned()), span))
                .collect(),
        );
    }
    let key = node.key;
    let span = node.span;
    let tools = table
        .entry("tools".to_owned())
        .or_insert_with(|| ConfigNode {
            key,
            ..ConfigNode::table(span)
        });
    let there = tools.as_table_mut().map(|tools| match tools.get_mut(list) {
        None => {
            tools.insert(list.to_owned(), node.clone());
            true
        }
        Some(ConfigNode {
            value: ConfigValue::List(items),
            ..
        }) => match &node.value {
            ConfigValue::List(more) => {
                items.extend(more.iter().cloned());
                true
            }
            _ => false,
        },
        Some(_) => false,
    });
    // Two lists of one kind add up. A value that isn't a list cannot be joined.
    if there != Some(true) {
        let message = format!("`{path}` restricts its tools in two different ways");
        faults.for_setting(path).error(
            ProblemKind::Conflict,
            key,
            message,
            "keep `tools.allow` and `tools.deny`",
        );
    }
}
