//! A config as a tree of values, each with the place it was written at.
//!
//! Owns the tree that every format is read into, paths through it, and its conversion to and from other value types.
//! Does not know which keys exist (`file`) or how layers are merged (`layers`). Invariant: a node's place always
//! points into the source that its value came from.

use std::collections::BTreeMap;
use std::fmt;

/// Where something was written: bytes `start..end` of a source, by its index in `Sources`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) source: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Place {
    /// The place of what nobody wrote.
    pub(super) const BUILT_IN: Place = Place { source: usize::MAX, start: 0, end: 0 };
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    /// Where the value is.
    pub(super) place: Place,
    /// Where its key is; the value's place for items of a list.
    pub(super) key: Place,
    /// Holds something that was not written here (a variable, a file), so it is not quoted in messages.
    pub(super) expanded: bool,
    /// Must not be shown at all.
    pub(super) secret: bool,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Node {
    pub(super) fn new(value: Value, place: Place) -> Self {
        Node { value, place, key: place, expanded: false, secret: false }
    }

    /// An empty table.
    pub(super) fn table(place: Place) -> Self {
        Node::new(Value::Table(BTreeMap::new()), place)
    }

    pub(super) fn as_table(&self) -> Option<&BTreeMap<String, Node>> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(super) fn as_table_mut(&mut self) -> Option<&mut BTreeMap<String, Node>> {
        match &mut self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The child that a step leads to.
    pub(super) fn child(&self, step: &str) -> Option<&Node> {
        match &self.value {
            Value::Table(table) => table.get(step),
            Value::List(items) => items.get(index_of(step)?),
            _ => None,
        }
    }

    /// The node at a path.
    pub(super) fn at(&self, path: &Path) -> Option<&Node> {
        path.0.iter().try_fold(self, |node, step| node.child(step))
    }

    /// The node at a path or, where that does not exist, the nearest one above it.
    pub(super) fn near(&self, path: &Path) -> &Node {
        let mut node = self;
        for step in &path.0 {
            match node.child(step) {
                Some(child) => node = child,
                None => break,
            }
        }
        node
    }

    /// What kind of value this is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// As JSON; `hide` decides what becomes `***`.
    pub(super) fn to_json(&self, hide: &dyn Fn(&Path, &Node) -> bool) -> serde_json::Value {
        self.json_at(&Path::root(), hide)
    }

    fn json_at(&self, path: &Path, hide: &dyn Fn(&Path, &Node) -> bool) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Text(_) if hide(path, self) => Json::String("***".to_owned()),
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::from(*value),
            Value::Float(value) => Json::from(*value),
            Value::Text(value) => Json::String(value.clone()),
            Value::List(items) => {
                Json::Array(items.iter().enumerate().map(|(i, item)| item.json_at(&path.item(i), hide)).collect())
            }
            Value::Table(table) => Json::Object(
                table.iter().map(|(key, node)| (key.clone(), node.json_at(&path.key(key), hide))).collect(),
            ),
        }
    }
}

/// The steps from the root to a node: keys, and `[n]` for items of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path(pub(super) Vec<String>);

impl Path {
    pub(super) fn root() -> Self {
        Path(Vec::new())
    }

    /// A path of keys.
    pub(super) fn of(keys: &[&str]) -> Self {
        Path(keys.iter().map(|key| (*key).to_owned()).collect())
    }

    pub(super) fn key(&self, key: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(key.to_owned());
        Path(steps)
    }

    pub(super) fn item(&self, index: usize) -> Self {
        self.key(&format!("[{index}]"))
    }

    /// The server whose entry the path leads into.
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

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            let plain = step.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$'));
            match index_of(step) {
                Some(_) => f.write_str(step)?,
                None => {
                    f.write_str(if i == 0 { "" } else { "." })?;
                    if plain && !step.is_empty() { f.write_str(step)? } else { write!(f, "{step:?}")? }
                }
            }
        }
        Ok(())
    }
}

fn index_of(step: &str) -> Option<usize> {
    step.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}
