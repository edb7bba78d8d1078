//! Defaults, files, environment and flags, one over the other.
//!
//! Owns reading the environment and the flags into trees, and the merging, which figment does; the only file that names
//! it. Does not check anything. Invariant: tables merge, everything else is replaced; every value keeps the place of
//! the layer that it came from.

use std::collections::BTreeMap;

use figment::providers::Serialized;
use figment::value::{Dict, Map, Value as Merged};
use figment::{Figment, Metadata, Profile, Provider};

use super::file::File;
use super::parse;
use super::problem::{Faults, Kind};
use super::schema::{Rule, Schema};
use super::source::Format;
use super::tree::{Node, Place, Value};

/// What a variable must start with to be a setting.
const PREFIX: &str = "MOONGATE_";

/// Variables that look like settings of a section and belong to commands.
const OF_COMMANDS: [&str; 1] = ["ADMIN_KEY"];

/// One layer, as figment sees it.
struct Layer<'a>(&'a Node);

impl Provider for Layer<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named("a layer of the config")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let dict = match to_figment(self.0) {
            Merged::Dict(_, dict) => dict,
            _ => Dict::new(),
        };
        Ok(Profile::Default.collect(dict))
    }
}

/// Merges layers, weakest first, over the built-in defaults.
///
/// Fails with what figment says; no layer gives it a reason to.
pub(super) fn merge(layers: &[Node]) -> Result<Node, String> {
    let built_in = Figment::from(Serialized::defaults(File::default()));
    let merged = layers.iter().fold(built_in, |figment, layer| figment.merge(Layer(layer)));
    let dict = merged.data().map_err(|error| error.to_string())?.remove(&Profile::Default).unwrap_or_default();
    Ok(locate(Merged::from(dict), &layers.iter().collect::<Vec<_>>()))
}

fn to_figment(node: &Node) -> Merged {
    match &node.value {
        Value::Null => Merged::from(figment::value::Empty::Unit),
        Value::Bool(value) => Merged::from(*value),
        Value::Int(value) => Merged::from(*value),
        Value::Float(value) => Merged::from(*value),
        Value::Text(value) => Merged::from(value.as_str()),
        Value::List(items) => Merged::from(items.iter().map(to_figment).collect::<Vec<_>>()),
        Value::Table(table) => {
            Merged::from(table.iter().map(|(key, node)| (key.clone(), to_figment(node))).collect::<Dict>())
        }
    }
}

/// Gives a merged value its place: that of the strongest layer that has one here.
fn locate(merged: Merged, layers: &[&Node]) -> Node {
    let (place, key) = layers.last().map_or((Place::BUILT_IN, Place::BUILT_IN), |node| (node.place, node.key));
    let below = |step: &str| layers.iter().filter_map(|layer| layer.child(step)).collect::<Vec<_>>();
    let value = match merged {
        Merged::String(_, text) => Value::Text(text),
        Merged::Char(_, c) => Value::Text(c.to_string()),
        Merged::Bool(_, value) => Value::Bool(value),
        Merged::Num(_, number) => {
            let whole = number.to_i128().or_else(|| number.to_u128().and_then(|number| i128::try_from(number).ok()));
            match whole.and_then(|whole| i64::try_from(whole).ok()) {
                Some(whole) => Value::Int(whole),
                None => Value::Float(number.to_f64().unwrap_or(f64::INFINITY)),
            }
        }
        Merged::Empty(..) => Value::Null,
        Merged::Dict(_, dict) => {
            let entries = dict.into_iter().filter(|(_, value)| !matches!(value, Merged::Empty(..)));
            Value::Table(
                entries
                    .map(|(key, value)| {
                        let node = locate(value, &below(&key));
                        (key, node)
                    })
                    .collect(),
            )
        }
        Merged::Array(_, items) => {
            let located = items.into_iter().enumerate().map(|(i, item)| locate(item, &below(&format!("[{i}]"))));
            Value::List(located.collect())
        }
    };
    Node { key, ..Node::new(value, place) }
}

/// The settings in the environment, and the names of their variables: places are indexes into them.
///
/// `known` is the layers below: names of servers and views are matched with theirs, because a variable's name cannot
/// hold everything that such a name can.
pub(super) fn environment(
    env: &BTreeMap<String, String>,
    source: usize,
    known: &[Node],
    faults: &mut Faults,
) -> (Node, Vec<String>) {
    let mut tree = Node::table(Place { source, start: 0, end: 0 });
    let mut names = Vec::new();
    let schema = Schema::read();
    let sections = schema.root().keys().unwrap_or_default();
    for (variable, text) in env {
        let Some(rest) = variable.strip_prefix(PREFIX).filter(|rest| !OF_COMMANDS.contains(rest)) else { continue };
        let lower = rest.to_ascii_lowercase();
        let place = Place { source, start: names.len(), end: names.len() };
        if !lower.contains("__") && !sections.contains(&lower.as_str()) {
            let section = lower.split('_').next().filter(|section| sections.contains(section));
            if let Some((section, (_, after))) = section.zip(rest.split_once('_')) {
                let message = format!("{variable} is not a setting: levels are separated by two underscores");
                let fix = format!("write {PREFIX}{}__{after}", section.to_ascii_uppercase());
                faults.warn(Kind::UnknownKey, place, message, fix);
                names.push(variable.clone());
            }
            continue;
        }
        names.push(variable.clone());
        let levels: Vec<&Node> = known.iter().collect();
        let steps: Vec<&str> = rest.split("__").collect();
        Variable { text, place, faults }.put(&mut tree, &steps, Some(schema.root()), &levels);
    }
    (tree, names)
}

/// A variable on its way into the tree.
struct Variable<'a> {
    text: &'a str,
    place: Place,
    faults: &'a mut Faults,
}

impl Variable<'_> {
    /// Puts the value where the steps lead to.
    fn put(&mut self, node: &mut Node, steps: &[&str], rule: Option<Rule>, known: &[&Node]) {
        let Some((step, rest)) = steps.split_first() else {
            *node = value(self.text, rule, self.place, self.faults);
            return;
        };
        let name = spelled(step, rule, known);
        let rule = rule.and_then(|rule| rule.choices().into_iter().find_map(|choice| choice.key(&name)));
        let known: Vec<&Node> = known.iter().filter_map(|layer| layer.child(&name)).collect();
        if node.as_table().is_none() {
            *node = Node::table(self.place);
        }
        if let Some(table) = node.as_table_mut() {
            let child = table.entry(name).or_insert_with(|| Node::table(self.place));
            self.put(child, rest, rule, &known);
        }
    }
}

/// The key that a part of a variable's name means.
fn spelled(step: &str, rule: Option<Rule>, known: &[&Node]) -> String {
    let fixed = rule.and_then(Rule::keys).into_iter().flatten().map(str::to_owned);
    let given = known.iter().filter_map(|layer| layer.as_table()).flat_map(|table| table.keys().cloned());
    let same = |name: &String| name.replace('-', "_").eq_ignore_ascii_case(step);
    fixed.chain(given).find(same).unwrap_or_else(|| step.to_ascii_lowercase())
}

/// A variable's text as the type that the setting has.
fn value(text: &str, rule: Option<Rule>, place: Place, faults: &mut Faults) -> Node {
    let types: Vec<&str> = rule.map(|rule| rule.choices()).into_iter().flatten().flat_map(Rule::types).collect();
    let may_be = |name: &str| types.contains(&name);
    let trimmed = text.trim();
    let structured = (may_be("array") && trimmed.starts_with('[')) || (may_be("object") && trimmed.starts_with('{'));
    if structured {
        let mut own = Faults::default();
        let mut node = parse::parse(Format::Json, trimmed, place.source, &mut own);
        if let Some(fault) = own.errors.into_iter().next() {
            faults.error(Kind::Syntax, place, fault.message, "write one JSON value");
        }
        move_to(&mut node, place);
        return node;
    }
    let value = match trimmed {
        "true" if may_be("boolean") => Value::Bool(true),
        "false" if may_be("boolean") => Value::Bool(false),
        _ => match trimmed.parse() {
            Ok(number) if may_be("integer") => Value::Int(number),
            _ if may_be("array") && !may_be("string") => {
                let items = trimmed.split(',').map(str::trim).filter(|item| !item.is_empty());
                Value::List(items.map(|item| Node::new(Value::Text(item.to_owned()), place)).collect())
            }
            _ if may_be("array") && trimmed.contains(',') => Value::List(
                trimmed.split(',').map(|item| Node::new(Value::Text(item.trim().to_owned()), place)).collect(),
            ),
            _ => Value::Text(text.to_owned()),
        },
    };
    Node::new(value, place)
}

fn move_to(node: &mut Node, place: Place) {
    (node.place, node.key) = (place, place);
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| move_to(item, place)),
        Value::Table(table) => table.values_mut().for_each(|child| move_to(child, place)),
        _ => {}
    }
}

/// The settings that flags give.
pub(super) fn flags(listen: &[String], place: Place) -> Node {
    let mut tree = Node::table(place);
    if listen.is_empty() {
        return tree;
    }
    let items = listen.iter().map(|address| Node::new(Value::Text(address.replace('$', "$$")), place)).collect();
    let mut gateway = Node::table(place);
    if let Some(table) = gateway.as_table_mut() {
        table.insert("listen".to_owned(), Node::new(Value::List(items), place));
    }
    if let Some(table) = tree.as_table_mut() {
        table.insert("gateway".to_owned(), gateway);
    }
    tree
}
