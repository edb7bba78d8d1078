//! Tools that a client's user switched off or chose.
//!
//! Turns clients' lists into `tools.deny` and `tools.allow`. Does not match names (`policy`). Invariant: what was
//! switched off in the client is never callable through the gateway.

use std::collections::BTreeMap;

use super::super::problem::{Faults, Kind};
use super::super::tree::{Node, Path, Value};

/// Keys with tools that are switched off.
const DENIED: [&str; 8] = [
    "disabledTools",
    "disabled_tools",
    "excludeTools",
    "exclude_tools",
    "disallowedTools",
    "blockedTools",
    "deniedTools",
    "excludedTools",
];

/// Keys with the only tools that there are.
const ALLOWED: [&str; 8] = [
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
pub(super) fn convert(path: &Path, table: &mut BTreeMap<String, Node>, faults: &mut Faults) {
    // A list as `tools` is what the entry may use.
    if table.get("tools").is_some_and(|node| matches!(node.value, Value::List(_)))
        && let Some(node) = table.remove("tools")
    {
        add(path, table, "allow", node, faults);
    }
    for (keys, list) in [(DENIED, "deny"), (ALLOWED, "allow")] {
        for key in keys {
            let Some(node) = table.remove(key) else { continue };
            // An empty list of this name means all of them.
            if key == "available_tools" && node.value == Value::List(Vec::new()) {
                continue;
            }
            add(path, table, list, node, faults);
        }
    }
}

/// Switches one tool of an entry off.
pub(super) fn deny(table: &mut BTreeMap<String, Node>, tool: &str, node: &Node) {
    let item = Node { value: Value::Text(tool.to_owned()), ..node.clone() };
    let list = Node { value: Value::List(vec![item]), ..node.clone() };
    let path = Path::root();
    add(&path, table, "deny", list, &mut Faults::default());
}

fn add(path: &Path, table: &mut BTreeMap<String, Node>, list: &str, mut node: Node, faults: &mut Faults) {
    if let Value::Text(text) = &node.value {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let place = node.place;
        node.value = Value::List(names.map(|name| Node::new(Value::Text(name.to_owned()), place)).collect());
    }
    let (key, place) = (node.key, node.place);
    let tools = table.entry("tools".to_owned()).or_insert_with(|| Node { key, ..Node::table(place) });
    let there = tools.as_table_mut().map(|tools| match tools.get_mut(list) {
        None => {
            tools.insert(list.to_owned(), node.clone());
            true
        }
        Some(Node { value: Value::List(items), .. }) => match &node.value {
            Value::List(more) => {
                items.extend(more.iter().cloned());
                true
            }
            _ => false,
        },
        Some(_) => false,
    });
    if there != Some(true) {
        let message = format!("`{path}` says in two ways which tools there are");
        faults.about(path).error(Kind::Conflict, key, message, "keep `tools.allow` and `tools.deny`");
    }
}
