//! Tree of config values, each with the span where it was written.
//!
//! Owns the tree for every format, paths through it, and its conversion to JSON. Does not know
//! which keys exist (`file`), and does not merge layers (`merge`). Invariant: a node's span points
//! into the source of its value.

use std::collections::BTreeMap;
use std::fmt;

/// Span of a text: bytes `start..end` of a source, by its index in `ConfigSources`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SourceSpan {
    pub(super) source: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl SourceSpan {
    /// Span of built-in values.
    pub(super) const BUILT_IN: SourceSpan = SourceSpan {
        source: usize::MAX,
        start: 0,
        end: 0,
    };
}

/// Value with its span.
#[derive(Clone, Debug)]
pub(super) struct ConfigNode {
    pub(super) value: ConfigValue,
    /// Span of the value.
    pub(super) span: SourceSpan,
    /// Span of the key. Items of a list have the value's span.
    pub(super) key: SourceSpan,
    /// True if a reference was replaced in the value (a variable, a file). Messages do not quote
    /// it.
    pub(super) expanded: bool,
    /// True if the value must not be shown at all.
    pub(super) secret: bool,
}

/// Value of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ConfigValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<ConfigNode>),
    Table(BTreeMap<String, ConfigNode>),
}

// Equal values are equal wherever they were written.
impl PartialEq for ConfigNode {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl ConfigNode {
    pub(super) fn new(value: ConfigValue, span: SourceSpan) -> Self {
        ConfigNode {
            value,
            span,
            key: span,
            expanded: false,
            secret: false,
        }
    }

    /// Creates an empty table.
    pub(super) fn table(span: SourceSpan) -> Self {
        ConfigNode::new(ConfigValue::Table(BTreeMap::new()), span)
    }

    pub(super) fn as_table(&self) -> Option<&BTreeMap<String, ConfigNode>> {
        match &self.value {
            ConfigValue::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(super) fn as_table_mut(&mut self) -> Option<&mut BTreeMap<String, ConfigNode>> {
        match &mut self.value {
            ConfigValue::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            ConfigValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Child that a step leads to.
    pub(super) fn child(&self, step: &str) -> Option<&ConfigNode> {
        match &self.value {
            ConfigValue::Table(table) => table.get(step),
            ConfigValue::List(items) => items.get(index_of(step)?),
            _ => None,
        }
    }

    /// Node at a path.
    pub(super) fn at(&self, path: &ConfigPath) -> Option<&ConfigNode> {
        path.0.iter().try_fold(self, |node, step| node.child(step))
    }

    /// Node at a path, or the nearest one above it.
    pub(super) fn nearest_node(&self, path: &ConfigPath) -> &ConfigNode {
        let mut node = self;
        for step in &path.0 {
            match node.child(step) {
                Some(child) => node = child,
                None => break,
            }
        }
        node
    }

    /// True if a server should run: it is enabled, and `--only` does not leave it out.
    pub(super) fn is_used(&self, name: &str, only: &[String]) -> bool {
        // The entry wins over the defaults, as in the merge. Without either, a server is on.
        let enabled = self
            .switch(&["servers", name, "enabled"])
            .or_else(|| self.switch(&["defaults", "enabled"]))
            .unwrap_or(true);
        enabled && (only.is_empty() || only.iter().any(|other| other == name))
    }

    /// Value of a setting that is true or false.
    fn switch(&self, path: &[&str]) -> Option<bool> {
        match self.at(&ConfigPath::of(path))?.value {
            ConfigValue::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// True for the entry of a server that should not run.
    pub(super) fn is_unused(&self, path: &ConfigPath, only: &[String]) -> bool {
        matches!(path.steps().as_slice(), ["servers", name] if !self.is_used(name, only))
    }

    /// Type of the value, in words.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            ConfigValue::Null => "nothing",
            ConfigValue::Bool(_) => "true or false",
            ConfigValue::Int(_) | ConfigValue::Float(_) => "a number",
            ConfigValue::Text(_) => "text",
            ConfigValue::List(_) => "a list",
            ConfigValue::Table(_) => "a table",
        }
    }

    /// Converts to JSON. `mask` returns the text that stands for a secret value.
    pub(super) fn to_json(&self, mask: &MaskNode<'_>) -> serde_json::Value {
        self.json_at(&ConfigPath::root(), mask)
    }

    fn json_at(&self, path: &ConfigPath, mask: &MaskNode<'_>) -> serde_json::Value {
        use serde_json::Value as Json;
        if let Some(masked) = mask(path, self) {
            return Json::String(masked);
        }
        match &self.value {
            ConfigValue::Null => Json::Null,
            ConfigValue::Bool(value) => Json::Bool(*value),
            ConfigValue::Int(value) => Json::from(*value),
            ConfigValue::Float(value) => Json::from(*value),
            ConfigValue::Text(value) => Json::String(value.clone()),
            ConfigValue::List(items) => Json::Array(
                items
                    .iter()
                    .enumerate()
                    .map(|(i, item)| item.json_at(&path.item(i), mask))
                    .collect(),
            ),
            ConfigValue::Table(table) => Json::Object(
                table
                    .iter()
                    .map(|(key, node)| (key.clone(), node.json_at(&path.key(key), mask)))
                    .collect(),
            ),
        }
    }
}

/// Function that returns the text for a secret value.
pub(super) type MaskNode<'a> = dyn Fn(&ConfigPath, &ConfigNode) -> Option<String> + 'a;

/// Path from the root to a node: keys, and `[n]` for items of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConfigPath(pub(super) Vec<String>);

impl ConfigPath {
    pub(super) fn root() -> Self {
        ConfigPath(Vec::new())
    }

    /// Creates a path of keys.
    pub(super) fn of(keys: &[&str]) -> Self {
        ConfigPath(keys.iter().map(|key| (*key).to_owned()).collect())
    }

    pub(super) fn key(&self, key: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(key.to_owned());
        ConfigPath(steps)
    }

    pub(super) fn item(&self, index: usize) -> Self {
        self.key(&format!("[{index}]"))
    }

    /// Server whose entry the path leads into.
    pub(super) fn server(&self) -> Option<&str> {
        match self.0.as_slice() {
            [servers, name, ..] if servers == "servers" => Some(name),
            _ => None,
        }
    }

    pub(super) fn steps(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}

impl fmt::Display for ConfigPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            // A key such as "a.b" is shown in quotes, or it would read as two keys.
            let plain = step
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$'));
            // An index is written as it is: `args[0]`, without a dot.
            match index_of(step) {
                Some(_) => f.write_str(step)?,
                None => {
                    f.write_str(if i == 0 { "" } else { "." })?;
                    if plain && !step.is_empty() {
                        f.write_str(step)?
                    } else {
                        write!(f, "{step:?}")?
                    }
                }
            }
        }
        Ok(())
    }
}

fn index_of(step: &str) -> Option<usize> {
    step.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}
