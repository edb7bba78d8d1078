//! Servers and tools that a client's file disables outside of their entry.
//!
//! Owns the lists where clients do so. Does not match names (`access`). Invariant: what the client's user disabled
//! stays disabled.

use std::collections::{BTreeMap, BTreeSet};

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
    allowed: Option<NameSet>,
    servers: NameSet,
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
        switched.allowed = mcp.remove("allowed").map(|node| texts(&node).collect());
        for list in ["excluded", "disabledMcpServers"] {
            switched.servers.add(mcp.remove(list).iter().flat_map(texts));
        }
        if mcp.is_empty() {
            table.remove("mcp");
        }
    }
    for key in ["disabledMcpServers", "disabledMcpjsonServers"] {
        switched.servers.add(table.remove(key).iter().flat_map(texts));
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

fn texts(node: &ConfigNode) -> impl Iterator<Item = &str> {
    let items = match &node.value {
        ConfigValue::List(items) => &items[..],
        _ => &[],
    };
    items.iter().filter_map(ConfigNode::as_text)
}

/// Names of servers as the client writes them, with the names that they have here.
#[derive(Default)]
struct NameSet(BTreeSet<String>);

impl NameSet {
    fn add<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.0.extend(names.flat_map(|name| [Some(name.to_owned()), server_names::legal_name(name)]).flatten());
    }
}

impl<'a> FromIterator<&'a str> for NameSet {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Self {
        let mut set = NameSet::default();
        set.add(names.into_iter());
        set
    }
}

impl SwitchedOff {
    /// Disables a server, or some of its tools.
    pub(super) fn apply(&self, name: &str, server: &mut ConfigNode) {
        let (key, place) = (server.key, server.span);
        let Some(table) = server.as_table_mut() else { return };
        let listed = |names: &NameSet| names.0.contains(name);
        if listed(&self.servers) || self.allowed.as_ref().is_some_and(|names| !listed(names)) {
            table.insert("enabled".to_owned(), ConfigNode { key, ..ConfigNode::new(ConfigValue::Bool(false), place) });
        }
        let server = plain(name);
        for (pattern, node) in &self.tools {
            if let Some(tool) = tool_of(pattern, &server) {
                tools::deny(table, tool, node);
            }
        }
    }
}

/// Writes a name as clients do before they join it with that of a tool: other characters become `_`.
fn plain(name: &str) -> String {
    name.chars().map(plain_letter).collect()
}

fn plain_letter(letter: char) -> char {
    if letter.is_ascii_alphanumeric() { letter } else { '_' }
}

/// Finds the tool that a client's pattern over all tools means. `server` is the plain name of a server.
// Tried for each server with each pattern, so it makes no copies.
fn tool_of<'a>(pattern: &'a str, server: &str) -> Option<&'a str> {
    let (pattern, between) = match pattern.strip_prefix("mcp__") {
        Some(rest) => (rest, "__"),
        None => (pattern, "_"),
    };
    let start = || server.chars().chain(between.chars());
    let is_start = |head: &str| head.chars().map(plain_letter).eq(start());
    let length = server.len() + between.len();
    // Plain names are ASCII, so the beginning of the pattern has as many bytes.
    if let Some((head, tool)) = pattern.split_at_checked(length)
        && is_start(head)
        && !tool.is_empty()
    {
        return Some(tool);
    }
    // The pattern means the server itself, or everything with its beginning.
    let mut left = start();
    let everything = pattern
        .strip_suffix('*')
        .is_some_and(|head| head.chars().all(|letter| left.next() == Some(plain_letter(letter))));
    let is_server = || between == "__" && pattern.chars().map(plain_letter).eq(server.chars());
    (everything || is_server()).then_some("*")
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
            assert_eq!(tool_of(pattern, &plain(server)), tool, "{pattern}");
        }
    }
}
