//! Merge of defaults, files, environment and flags.
//!
//! Owns trees of the environment and the flags, and the merge itself (by figment, which no other
//! file names). Does not check values. Invariant: tables merge, every other value is replaced, and
//! each value keeps the span of its layer.

use std::collections::BTreeMap;

use figment::providers::Serialized;
use figment::value::{Dict, Map, Value as Merged};
use figment::{Figment, Metadata, Profile, Provider};

use super::collector::ProblemCollector;
use super::file::ConfigFile;
use super::parse;
use super::problem::ProblemKind;
use super::schema::{ConfigSchema, SchemaRule};
use super::source::FileFormat;
use super::tree::{ConfigNode, ConfigValue, SourceSpan};

/// Prefix of variables that are settings.
const PREFIX: &str = "MOONGATE_";

/// Limit of levels in a variable's name. No setting is as deep, and the tree is built by a function
/// that calls itself.
const LEVELS_MAX: usize = 16;

/// Variables that read like settings of a section, but belong to commands.
const COMMAND_VARIABLES: [&str; 1] = ["ADMIN_KEY"];

/// Layer of the config in figment's form.
struct ConfigLayer<'a>(&'a ConfigNode);

impl Provider for ConfigLayer<'_> {
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
/// Fails with figment's message. No layer gives it a reason to.
pub(super) fn merge(layers: &[ConfigNode]) -> Result<ConfigNode, String> {
    let built_in = Figment::from(Serialized::defaults(ConfigFile::default()));
    let merged = layers
        .iter()
        .fold(built_in, |figment, layer| figment.merge(ConfigLayer(layer)));
    let dict = merged
        .data()
        .map_err(|error| error.to_string())?
        .remove(&Profile::Default)
        .unwrap_or_default();
    Ok(locate(
        Merged::from(dict),
        &layers.iter().collect::<Vec<_>>(),
    ))
}

fn to_figment(node: &ConfigNode) -> Merged {
    match &node.value {
        ConfigValue::Null => Merged::from(figment::value::Empty::Unit),
        ConfigValue::Bool(value) => Merged::from(*value),
        ConfigValue::Int(value) => Merged::from(*value),
        ConfigValue::Float(value) => Merged::from(*value),
        ConfigValue::Text(value) => Merged::from(value.as_str()),
        ConfigValue::List(items) => Merged::from(items.iter().map(to_figment).collect::<Vec<_>>()),
        ConfigValue::Table(table) => Merged::from(
            table
                .iter()
                .map(|(key, node)| (key.clone(), to_figment(node)))
                .collect::<Dict>(),
        ),
    }
}

/// Gives a merged value the span of the strongest layer that has it.
fn locate(merged: Merged, layers: &[&ConfigNode]) -> ConfigNode {
    let (span, key) = layers
        .last()
        .map_or((SourceSpan::BUILT_IN, SourceSpan::BUILT_IN), |node| {
            (node.span, node.key)
        });
    let value = match merged {
        Merged::String(_, text) => ConfigValue::Text(text),
        Merged::Char(_, c) => ConfigValue::Text(c.to_string()),
        Merged::Bool(_, value) => ConfigValue::Bool(value),
        Merged::Num(_, number) => {
            // figment has many types of numbers. The schema only distinguishes integers from other
            // numbers.
            let whole = number.to_i128().or_else(|| {
                number
                    .to_u128()
                    .and_then(|number| i128::try_from(number).ok())
            });
            match whole.and_then(|whole| i64::try_from(whole).ok()) {
                Some(whole) => ConfigValue::Int(whole),
                None => ConfigValue::Float(number.to_f64().unwrap_or(f64::INFINITY)),
            }
        }
        Merged::Empty(..) => ConfigValue::Null,
        Merged::Dict(_, dict) => {
            // Nulls are absent options of the built-in defaults. Parsers drop those of a config.
            let entries = dict
                .into_iter()
                .filter(|(_, value)| !matches!(value, Merged::Empty(..)));
            ConfigValue::Table(
                entries
                    .map(|(key, value)| {
                        let node = locate(value, &children(layers, &key));
                        (key, node)
                    })
                    .collect(),
            )
        }
        Merged::Array(_, items) => {
            let located = items
                .into_iter()
                .enumerate()
                .map(|(i, item)| locate(item, &children(layers, &format!("[{i}]"))));
            ConfigValue::List(located.collect())
        }
    };
    ConfigNode {
        key,
        ..ConfigNode::new(value, span)
    }
}

fn children<'a>(layers: &[&'a ConfigNode], step: &str) -> Vec<&'a ConfigNode> {
    layers
        .iter()
        .filter_map(|layer| layer.child(step))
        .collect()
}

/// Reads the settings in the environment. Returns their tree and the variables' names, which spans
/// index.
///
/// `known` has the layers below. Names of servers and views are matched with theirs, since a
/// variable's name cannot hold every character.
pub(super) fn environment(
    env: &BTreeMap<String, String>,
    source: usize,
    known: &[ConfigNode],
    faults: &mut ProblemCollector,
) -> (ConfigNode, Vec<String>) {
    let mut tree = ConfigNode::table(SourceSpan {
        source,
        start: 0,
        end: 0,
    });
    let mut names = Vec::new();
    let schema = ConfigSchema::read();
    let sections = schema.root().keys().unwrap_or_default();
    for (variable, text) in env {
        let Some(rest) = variable
            .strip_prefix(PREFIX)
            .filter(|rest| !COMMAND_VARIABLES.contains(rest))
        else {
            continue;
        };
        let lower = rest.to_ascii_lowercase();
        let span = SourceSpan {
            source,
            start: names.len(),
            end: names.len(),
        };
        // One underscore instead of two is the usual mistake. Other variables are none of our
        // business.
        if !lower.contains("__") && !sections.contains(&lower.as_str()) {
            let section = lower
                .split('_')
                .next()
                .filter(|section| sections.contains(section));
            if let Some((section, (_, after))) = section.zip(rest.split_once('_')) {
                let message =
                    format!("{variable} is not a setting: levels are separated by two underscores");
                let fix = format!("write {PREFIX}{}__{after}", section.to_ascii_uppercase());
                faults.warn(ProblemKind::UnknownKey, span, message, fix);
                names.push(variable.clone());
            }
            continue;
        }
        names.push(variable.clone());
        let levels: Vec<&ConfigNode> = known.iter().collect();
        // Levels are separated by two underscores, since keys have single ones.
        let steps: Vec<&str> = rest.split("__").collect();
        if steps.len() > LEVELS_MAX {
            let message = format!("an environment variable has more than {LEVELS_MAX} levels");
            faults.error(
                ProblemKind::UnknownKey,
                span,
                message,
                "no setting is nested this deeply; unset it",
            );
            continue;
        }
        EnvVariable { text, span, faults }.put_value(
            &mut tree,
            &steps,
            Some(schema.root()),
            &levels,
        );
    }
    (tree, names)
}

/// Environment variable on its way into the tree.
struct EnvVariable<'a> {
    text: &'a str,
    span: SourceSpan,
    faults: &'a mut ProblemCollector,
}

impl EnvVariable<'_> {
    /// Puts the value where the steps lead.
    fn put_value(
        &mut self,
        node: &mut ConfigNode,
        steps: &[&str],
        rule: Option<SchemaRule>,
        known: &[&ConfigNode],
    ) {
        let Some((step, rest)) = steps.split_first() else {
            *node = value(self.text, rule, self.span, self.faults);
            return;
        };
        let name = key_for_variable(step, rule, known);
        let rule = rule.and_then(|rule| {
            rule.choices()
                .into_iter()
                .find_map(|choice| choice.key(&name))
        });
        let known: Vec<&ConfigNode> = known
            .iter()
            .filter_map(|layer| layer.child(&name))
            .collect();
        if node.as_table().is_none() {
            *node = ConfigNode::table(self.span);
        }
        if let Some(table) = node.as_table_mut() {
            let child = table
                .entry(name)
                .or_insert_with(|| ConfigNode::table(self.span));
            self.put_value(child, rest, rule, &known);
        }
    }
}

/// Finds the key that a part of a variable's name means.
fn key_for_variable(step: &str, rule: Option<SchemaRule>, known: &[&ConfigNode]) -> String {
    let fixed = rule
        .and_then(SchemaRule::keys)
        .into_iter()
        .flatten()
        .map(str::to_owned);
    let given = known
        .iter()
        .filter_map(|layer| layer.as_table())
        .flat_map(|table| table.keys().cloned());
    // A variable has no dashes, and is usually in upper case.
    fixed
        .chain(given)
        .find(|name| name.replace('-', "_").eq_ignore_ascii_case(step))
        .unwrap_or_else(|| step.to_ascii_lowercase())
}

/// Reads a variable's text as the type of the setting.
fn value(
    text: &str,
    rule: Option<SchemaRule>,
    span: SourceSpan,
    faults: &mut ProblemCollector,
) -> ConfigNode {
    let types: Vec<&str> = rule
        .map(|rule| rule.choices())
        .into_iter()
        .flatten()
        .flat_map(SchemaRule::types)
        .collect();
    let trimmed = text.trim();
    // A list or table needs a syntax, and every shell can quote JSON.
    // An IPv6 address starts with a bracket, too: `[::1]:8080` is not a list.
    let is_list = trimmed.starts_with('[') && trimmed.ends_with(']');
    let structured = (types.contains(&"array") && is_list)
        || (types.contains(&"object") && trimmed.starts_with('{'));
    if structured {
        let mut own = ProblemCollector::default();
        let mut node = parse::parse(FileFormat::Json, trimmed, span.source, &mut own);
        if let Some(fault) = own.errors.into_iter().next() {
            faults.error(
                ProblemKind::Syntax,
                span,
                fault.message,
                "write one JSON value",
            );
        }
        move_to(&mut node, span);
        return node;
    }
    let value = match trimmed {
        "true" if types.contains(&"boolean") => ConfigValue::Bool(true),
        "false" if types.contains(&"boolean") => ConfigValue::Bool(false),
        _ => match trimmed.parse() {
            // A number may be meant as text, so the schema decides.
            Ok(number) if types.contains(&"integer") => ConfigValue::Int(number),
            _ if types.contains(&"array") && !types.contains(&"string") => {
                let items = trimmed
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty());
                ConfigValue::List(
                    items
                        .map(|item| ConfigNode::new(ConfigValue::Text(item.to_owned()), span))
                        .collect(),
                )
            }
            _ if types.contains(&"array") && trimmed.contains(',') => ConfigValue::List(
                trimmed
                    .split(',')
                    .map(|item| ConfigNode::new(ConfigValue::Text(item.trim().to_owned()), span))
                    .collect(),
            ),
            _ => ConfigValue::Text(text.to_owned()),
        },
    };
    ConfigNode::new(value, span)
}
// A variable has no lines, so every part of its value gets the variable's span.

fn move_to(node: &mut ConfigNode, span: SourceSpan) {
    (node.span, node.key) = (span, span);
    match &mut node.value {
        ConfigValue::List(items) => items.iter_mut().for_each(|item| move_to(item, span)),
        ConfigValue::Table(table) => table.values_mut().for_each(|child| move_to(child, span)),
        _ => {}
    }
}

/// Builds the tree of the settings that flags give.
pub(super) fn flags(listen: &[String], span: SourceSpan) -> ConfigNode {
    let mut tree = ConfigNode::table(span);
    if listen.is_empty() {
        return tree;
    }
    let items =
        // Flags are not expanded: the shell has done that. Doubled dollar signs survive the
        // expansion.
        listen.iter().map(|address| ConfigNode::new(ConfigValue::Text(address.replace('$', "$$")),
            span)).collect();
    let mut gateway = ConfigNode::table(span);
    if let Some(table) = gateway.as_table_mut() {
        table.insert(
            "listen".to_owned(),
            ConfigNode::new(ConfigValue::List(items), span),
        );
    }
    if let Some(table) = tree.as_table_mut() {
        table.insert("gateway".to_owned(), gateway);
    }
    tree
}
