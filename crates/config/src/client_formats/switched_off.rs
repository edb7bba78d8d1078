//! Servers and tools that a client's file disables outside of their entry.
//!
//! Owns the lists where clients do so. Does not match names (`access`). Invariant: what the
//! client's user disabled stays disabled.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::super::collector::ProblemCollector;
use super::super::problem::ProblemKind;
use super::super::server_names;
use super::super::tree::{ConfigNode, ConfigPath, ConfigValue};
use super::tools;

/// Bytes of the tools that the lists of one file disable, over all servers. More cost their
/// servers.
const RULES_BYTES_MAX: usize = 4 << 20;
/// Bytes that a rule counts for in addition to its text.
const RULE_BYTES: usize = 64;

/// Lists of servers in `mcp`.
pub(super) const LISTS: [&str; 3] = ["allowed", "excluded", "disabledMcpServers"];

type ClientTable = BTreeMap<String, ConfigNode>;

/// Disabled servers and tools of a file.
#[derive(Default)]
pub(super) struct SwitchedOff {
    /// Servers that stay enabled. `None` if all do.
    allowed: Option<NameSet>,
    servers: NameSet,
    tools: ToolPatterns,
    /// Bytes of the rules that were made of them so far.
    rules_bytes: usize,
}

/// Patterns over all tools, by which servers find theirs: texts of thousands of both would else
/// compare all pairs.
#[derive(Default)]
struct ToolPatterns {
    /// Patterns by their plain text, those of `mcp__` without it. Each is there once.
    by_plain: BTreeMap<(PatternKind, String), BTreeMap<String, ConfigNode>>,
    /// Plain starts of those that mean everything behind it.
    everything: BTreeMap<(PatternKind, String), ConfigNode>,
}

/// Joint between the name of a server and that of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PatternKind {
    /// `mcp__SERVER__TOOL`
    Claude,
    /// `SERVER_TOOL`
    Other,
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
            switched
                .servers
                .add(mcp.remove(list).iter().flat_map(texts));
        }
        if mcp.is_empty() {
            table.remove("mcp");
        }
    }
    for key in ["disabledMcpServers", "disabledMcpjsonServers"] {
        switched
            .servers
            .add(table.remove(key).iter().flat_map(texts));
    }
    if let Some(tools) = table.get("tools").and_then(ConfigNode::as_table) {
        let off = tools
            .iter()
            .filter(|(_, node)| node.value == ConfigValue::Bool(false));
        off.for_each(|(name, node)| switched.tools.add(name, node));
    }
    // A list of switches alone is read to its end. Whatever else is called so stays, and is named
    // as ignored.
    if table
        .get("tools")
        .and_then(ConfigNode::as_table)
        .is_some_and(|tools| tools.values().all(is_boolean))
    {
        table.remove("tools");
    }
    // Claude Code lists denied tools among its permissions.
    let denied = table
        .get("permissions")
        .and_then(|permissions| permissions.child("deny"));
    for list in [table.get("amp.tools.disable"), denied]
        .into_iter()
        .flatten()
    {
        if let ConfigValue::List(items) = &list.value {
            items.iter().for_each(|item| {
                item.as_text()
                    .into_iter()
                    .for_each(|name| switched.tools.add(name, item))
            });
        }
    }
    switched
}

fn is_boolean(node: &ConfigNode) -> bool {
    matches!(node.value, ConfigValue::Bool(_))
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
    fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    fn add<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.0.extend(
            names
                .flat_map(|name| [Some(name.to_owned()), server_names::legal_name(name)])
                .flatten(),
        );
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
    /// Disables a server, or some of its tools. `path` is that of its entry.
    pub(super) fn apply(
        &mut self,
        path: &ConfigPath,
        name: &str,
        server: &mut ConfigNode,
        faults: &mut ProblemCollector,
    ) {
        let key = server.key;
        let span = server.span;
        let Some(table) = server.as_table_mut() else {
            return;
        };
        let is_allowed = self
            .allowed
            .as_ref()
            .is_none_or(|names| names.contains(name));
        if !is_allowed || self.servers.contains(name) {
            table.insert(
                "enabled".to_owned(),
                ConfigNode {
                    key,
                    ..ConfigNode::new(ConfigValue::Bool(false), span)
                },
            );
        }
        let mut own = BTreeMap::new();
        for (tool, node) in self.tools.of_server(&plain(name)) {
            self.rules_bytes += tool.len() + RULE_BYTES;
            if self.rules_bytes > RULES_BYTES_MAX {
                let message = "the file's lists disable too many tools over all its servers";
                let fix = "disable whole servers, or tools by patterns such as `delete_*`";
                return faults
                    .for_setting(path)
                    .error(ProblemKind::Value, key, message, fix);
            }
            own.entry(tool).or_insert(node);
            if tool == "*" {
                // Nothing is left to disable, and nothing else was found before.
                break;
            }
        }
        own.into_iter()
            .for_each(|(tool, node)| tools::deny(table, tool, node));
    }
}

impl PatternKind {
    /// Returns the kind of a pattern, and the pattern without its mark.
    fn of(pattern: &str) -> (PatternKind, &str) {
        match pattern.strip_prefix("mcp__") {
            Some(rest) => (PatternKind::Claude, rest),
            None => (PatternKind::Other, pattern),
        }
    }

    fn joint(self) -> &'static str {
        match self {
            PatternKind::Claude => "__",
            PatternKind::Other => "_",
        }
    }
}

impl ToolPatterns {
    fn add(&mut self, pattern: &str, node: &ConfigNode) {
        let (kind, rest) = PatternKind::of(pattern);
        if let Some(head) = rest.strip_suffix('*') {
            self.everything
                .entry((kind, plain(head)))
                .or_insert_with(|| node.clone());
        }
        let same = self.by_plain.entry((kind, plain(rest))).or_default();
        same.entry(rest.to_owned()).or_insert_with(|| node.clone());
    }

    /// Returns the tools of a server that the patterns mean: `*` first, if it is among them.
    /// `server` is its plain name.
    fn of_server(&self, server: &str) -> impl Iterator<Item = (&str, &ConfigNode)> {
        let kinds = [PatternKind::Claude, PatternKind::Other];
        let everything = kinds.iter().find_map(|kind| self.all_of(*kind, server));
        let some = kinds
            .into_iter()
            .flat_map(move |kind| self.tools_of(kind, server));
        everything.map(|node| ("*", node)).into_iter().chain(some)
    }

    /// Finds a pattern that means all tools of a server: its name, or its start with `*`.
    fn all_of(&self, kind: PatternKind, server: &str) -> Option<&ConfigNode> {
        let start = format!("{server}{}", kind.joint());
        // Plain texts are ASCII, so they can be cut at each byte.
        let mut beginnings = (0..=start.len()).map(|length| start[..length].to_owned());
        let with_star = beginnings.find_map(|head| self.everything.get(&(kind, head)));
        if with_star.is_some() || kind != PatternKind::Claude {
            return with_star;
        }
        self.by_plain
            .get(&(kind, server.to_owned()))?
            .values()
            .next()
    }

    fn tools_of(
        &self,
        kind: PatternKind,
        server: &str,
    ) -> impl Iterator<Item = (&str, &ConfigNode)> {
        let start = format!("{server}{}", kind.joint());
        let length = start.len();
        let behind = self
            .by_plain
            .range((Bound::Excluded((kind, start.clone())), Bound::Unbounded));
        let behind = behind
            .take_while(move |((other, plain), _)| *other == kind && plain.starts_with(&start));
        behind
            .flat_map(|(_, same)| same)
            .filter_map(move |(pattern, node)| {
                // A plain text has a byte for each character.
                let (at, _) = pattern.char_indices().nth(length)?;
                Some((&pattern[at..], node))
            })
    }
}

/// Writes a name as clients do before they join it with that of a tool: other characters become
/// `_`.
fn plain(name: &str) -> String {
    name.chars().map(plain_letter).collect()
}

fn plain_letter(letter: char) -> char {
    if letter.is_ascii_alphanumeric() {
        letter
    } else {
        '_'
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::parse;
    use super::super::super::source::FileFormat;
    use super::super::super::tree::SourceSpan;
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
            ("github_", "github", None),
            ("mcp__mön__x", "mön", Some("x")),
        ] {
            let mut patterns = ToolPatterns::default();
            patterns.add(
                pattern,
                &ConfigNode::new(ConfigValue::Null, SourceSpan::BUILT_IN),
            );
            assert_eq!(
                patterns
                    .of_server(&plain(server))
                    .next()
                    .map(|(tool, _)| tool),
                tool,
                "{pattern}"
            );
        }
    }

    fn normalised(text: &str) -> (ConfigNode, ProblemCollector) {
        let mut faults = ProblemCollector::default();
        let mut tree = parse::parse(FileFormat::Json, text, 0, &mut faults);
        super::super::normalise(&mut tree, None, &mut faults);
        (tree, faults)
    }

    fn denied(tree: &ConfigNode, server: &str) -> Vec<String> {
        let deny = tree.at(&ConfigPath::of(&["servers", server, "tools", "deny"]));
        deny.into_iter()
            .flat_map(texts)
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn each_server_has_each_denied_tool_once() {
        let everything = with_denied(r#""*", "mcp__a__x", "*", "a*", "*""#);
        assert_eq!(denied(&everything, "a"), ["*"]);
        assert_eq!(denied(&everything, "a-b"), ["own", "*"]);
        let some = with_denied(
            r#""mcp__a__x", "a_x", "a.x", "mcp__a-b__y", "a_b_y", "a_b_z", "é_x", "Bash(a:*)""#,
        );
        assert_eq!(denied(&some, "a"), ["b_y", "b_z", "x"]);
        assert_eq!(denied(&some, "a-b"), ["own", "y", "z"]);
    }

    /// Reads servers `a` and `a-b` with these patterns.
    fn with_denied(patterns: &str) -> ConfigNode {
        let servers =
            r#""a": {"url": "http://a"}, "a-b": {"url": "http://b", "disabledTools": ["own"]}"#;
        let text =
            format!(r#"{{"mcpServers": {{{servers}}}, "permissions": {{"deny": [{patterns}]}}}}"#);
        let (tree, faults) = normalised(&text);
        assert!(faults.errors.is_empty());
        tree
    }

    /// Spells a number by the joints of a name.
    fn name_part(n: u32) -> String {
        (0..12)
            .map(|bit| if n >> bit & 1 == 0 { "x-" } else { "x_" })
            .collect()
    }

    #[test]
    fn servers_times_patterns_end_at_a_bound() {
        // All names are one to the client, so each pattern means a tool of each server.
        let servers: serde_json::Map<_, _> = (0..1000)
            .map(|n| (format!("a{}z", name_part(n)), json!({ "url": "http://a" })))
            .collect();
        let patterns: Vec<String> = (0..1000)
            .map(|n| format!("a{}z_t{n}", name_part(0)))
            .collect();
        let text =
            json!({ "mcpServers": servers, "permissions": { "deny": patterns } }).to_string();
        let (tree, faults) = normalised(&text);
        let count: usize = servers.keys().map(|name| denied(&tree, name).len()).sum();
        assert!(count <= RULES_BYTES_MAX / RULE_BYTES, "{count}");
        // A server whose rules are not read to their end is not used.
        let broken = faults
            .errors
            .iter()
            .filter(|fault| fault.message.contains("too many tools"))
            .count();
        assert!(
            broken > 0 && count / patterns.len() + broken == servers.len(),
            "{broken} {count}"
        );
    }
}
