//! Servers and tools that a client's file disables outside of their entry.
//!
//! Owns the lists where clients do so. Does not match names (`access`). Invariant: what the client's user disabled
//! stays disabled.

use std::collections::BTreeMap;

use super::super::server_names;
use super::super::tree::{ConfigNode, ConfigValue};
use super::tools;

/// Lists of servers in `mcp`.
pub(super) const LISTS: [&str; 3] = ["allowed", "excluded", "disabledMcpServers"];

type ClientTable = BTreeMap<String, ConfigNode>;

/// Disabled servers and tools of a file.
#[derive(Default)]
pub(super) struct SwitchedOff {
    /// Servers that stay enabled. `None` if all do.
    allowed: Option<Vec<String>>,
    servers: Vec<String>,
    /// Tools, with the server's name in front as the client writes it.
    tools: Vec<(String, ConfigNode)>,
}

/// True if a table has lists of servers.
pub(super) fn has_lists(table: &ClientTable) -> bool {
    LISTS.iter().any(|name| table.contains_key(*name))
}

/// Takes the lists out of a file.
pub(super) fn take(table: &mut ClientTable) -> SwitchedOff {
    let mut switched = SwitchedOff::default();
    if let Some(mcp) = table.get_mut("mcp").and_then(ConfigNode::as_table_mut) {
        switched.allowed = mcp.remove("allowed").map(|node| texts(&node));
        for list in ["excluded", "disabledMcpServers"] {
            switched.servers.extend(mcp.remove(list).iter().flat_map(texts));
        }
        if mcp.is_empty() {
            table.remove("mcp");
        }
    }
    for key in ["disabledMcpServers", "disabledMcpjsonServers"] {
        switched.servers.extend(table.remove(key).iter().flat_map(texts));
    }
    if let Some(tools) = table.get("tools").and_then(ConfigNode::as_table) {
        let off = tools.iter().filter(|(_, node)| node.value == ConfigValue::Bool(false));
        switched.tools.extend(off.map(|(name, node)| (name.clone(), node.clone())));
    }
    // A list of switches alone is read to its end. Whatever else is called so stays, and is named as ignored.
    let is_switch = |node: &ConfigNode| matches!(node.value, ConfigValue::Bool(_));
    if table.get("tools").and_then(ConfigNode::as_table).is_some_and(|tools| tools.values().all(is_switch)) {
        table.remove("tools");
    }
    // Claude Code lists denied tools among its permissions.
    let denied = table.get("permissions").and_then(|permissions| permissions.child("deny"));
    for list in [table.get("amp.tools.disable"), denied].into_iter().flatten() {
        if let ConfigValue::List(items) = &list.value {
            switched.tools.extend(items.iter().filter_map(|item| Some((item.as_text()?.to_owned(), item.clone()))));
        }
    }
    switched
}

fn texts(node: &ConfigNode) -> Vec<String> {
    match &node.value {
        ConfigValue::List(items) => items.iter().filter_map(ConfigNode::as_text).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

impl SwitchedOff {
    /// Disables a server, or some of its tools.
    pub(super) fn apply(&self, name: &str, server: &mut ConfigNode) {
        let (key, place) = (server.key, server.span);
        let Some(table) = server.as_table_mut() else { return };
        let listed = |names: &[String]| names.iter().any(|other| is_same_name(other, name));
        if listed(&self.servers) || self.allowed.as_ref().is_some_and(|names| !listed(names)) {
            table.insert("enabled".to_owned(), ConfigNode { key, ..ConfigNode::new(ConfigValue::Bool(false), place) });
        }
        for (pattern, node) in &self.tools {
            if let Some(tool) = tool_of(pattern, name) {
                tools::deny(table, tool, node);
            }
        }
    }
}

/// Finds the tool of this server that a client's pattern over all tools means.
fn tool_of<'a>(pattern: &'a str, server: &str) -> Option<&'a str> {
    let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let (pattern, between) = match pattern.strip_prefix("mcp__") {
        Some(rest) => (rest, "__"),
        None => (pattern, "_"),
    };
    // Clients join the names of server and tool, and replace other characters by `_`.
    let start = format!("{}{between}", plain(server));
    // Names of servers are ASCII by now, so `start` has as many bytes as characters.
    let head = pattern.char_indices().map(|(at, _)| at).chain([pattern.len()]).find(|at| *at == start.len());
    if let Some(at) = head
        && plain(&pattern[..at]) == plain(&start)
        && at < pattern.len()
    {
        return Some(&pattern[at..]);
    }
    // The pattern means the server itself, or everything with its beginning.
    let everything = pattern.strip_suffix('*').is_some_and(|head| start.starts_with(&plain(head)));
    (everything || (between == "__" && plain(pattern) == plain(server))).then_some("*")
}

fn is_same_name(one: &str, other: &str) -> bool {
    one == other || server_names::legal_name(one).as_deref() == Some(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_over_all_tools_are_those_of_a_server() {
        for (pattern, server, tool) in [
            ("mcp__github__delete_repo", "github", Some("delete_repo")),
            ("mcp__github", "github", Some("*")),
            ("mcp__github__*", "github", Some("*")),
            ("github_delete_*", "github", Some("delete_*")),
            ("my-server_x", "my-server", Some("x")),
            ("github*", "github", Some("*")),
            ("*", "github", Some("*")),
            ("Bash(rm:*)", "github", None),
            ("mcp__git__x", "github", None),
            ("githubx_y", "github", None),
        ] {
            assert_eq!(tool_of(pattern, server), tool, "{pattern}");
        }
    }
}
