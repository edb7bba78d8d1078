//! Check of a config against the schema: keys, types, ranges.
//!
//! Owns the checks of single values. Does not compare values (`resolve`). Invariant: the tree after
//! the check can be read as a `ConfigFile`, so one run finds the other problems too.

use super::check_units::check_unit;
use super::collector::ProblemCollector;
use super::problem::ProblemKind;
use super::schema::{ConfigSchema, SchemaRule};
use super::suggest::{alternatives, listed};
use super::tree::{ConfigNode, ConfigPath, ConfigValue};
use super::unavailable::UNAVAILABLE;
use moongate_search::nearest;

/// Checks the whole tree. Reports wrong values and removes them.
///
/// `unused` names the subtrees whose references were not replaced. Their values have no unit to
/// check.
pub(super) fn check_tree(
    tree: &mut ConfigNode,
    unused: &dyn Fn(&ConfigPath) -> bool,
    faults: &mut ProblemCollector,
) {
    SchemaCheck { faults, unused }.node(tree, ConfigSchema::read().root(), &ConfigPath::root());
}

/// True if the config accepts a setting of a server.
pub(super) fn accepts_setting(name: &str, key: &str, value: &ConfigNode) -> bool {
    let mut faults = ProblemCollector::default();
    // Each setting is checked alone: an error of one key would otherwise count against all of them.
    let server = table_with(name, table_with(key, value.clone()));
    let mut tree = table_with("servers", server);
    check_tree(&mut tree, &|_| false, &mut faults);
    faults.errors.is_empty()
}

fn table_with(key: &str, inner: ConfigNode) -> ConfigNode {
    let mut node = ConfigNode::table(inner.span);
    if let Some(table) = node.as_table_mut() {
        table.insert(key.to_owned(), inner);
    }
    node
}

struct SchemaCheck<'a> {
    faults: &'a mut ProblemCollector,
    unused: &'a dyn Fn(&ConfigPath) -> bool,
}

impl SchemaCheck<'_> {
    /// Checks a node. False if it must be removed.
    fn node(&mut self, node: &mut ConfigNode, rule: SchemaRule, path: &ConfigPath) -> bool {
        // Another step reported this value already, and made it null.
        if node.value == ConfigValue::Null {
            return false;
        }
        // Before the type check: a setting of another version should not be called a mistake.
        if let Some(fix) = unavailable(path, node) {
            let message = match node.as_text() {
                Some(text) if !node.expanded => {
                    format!("`{path} = {text:?}` is not available in this version")
                }
                _ => format!("`{path}` is not available in this version"),
            };
            self.faults
                .for_setting(path)
                .error(ProblemKind::Unavailable, node.span, message, fix);
            return false;
        }
        let choices = rule.choices();
        let Some(rule) = choices.iter().find(|choice| fits(node, **choice)) else {
            self.wrong_type(node, &choices, path);
            return false;
        };
        match &mut node.value {
            ConfigValue::Table(_) => self.table(node, *rule, path),
            ConfigValue::List(items) => {
                let Some(rule) = rule.items() else {
                    return true;
                };
                let mut kept = true;
                for (i, item) in items.iter_mut().enumerate() {
                    kept &= self.node(item, rule, &path.item(i))
                        || matches!(item.value, ConfigValue::Table(_));
                }
                // A list without one of its items could mean something else, so it goes as a whole.
                kept
            }
            _ => self.scalar(node, *rule, path),
        }
    }

    fn table(&mut self, node: &mut ConfigNode, rule: SchemaRule, path: &ConfigPath) -> bool {
        let span = node.key;
        let Some(table) = node.as_table_mut() else {
            return false;
        };
        for name in rule.required() {
            if !table.contains_key(name) {
                let message = format!("`{}` is missing", path.key(name));
                self.faults.for_setting(path).error(
                    ProblemKind::Missing,
                    span,
                    message,
                    format!("add `{name}`"),
                );
            }
        }
        table.retain(|name, child| {
            let path = path.key(name);
            match rule.key(name) {
                // A wrong child goes alone. The rest of the table is checked in the same run.
                Some(rule) => self.node(child, rule, &path),
                None => {
                    self.unknown_key(name, child, rule, &path);
                    false
                }
            }
        });
        true
    }

    fn unknown_key(&mut self, name: &str, child: &ConfigNode, rule: SchemaRule, path: &ConfigPath) {
        let top = path.0.len() == 1;
        // Keys with `x-` are free for notes and anchors, and `$schema` is for editors.
        if top && (name.starts_with("x-") || name == "$schema") {
            return;
        }
        if let Some(fix) = unavailable(path, child) {
            let message = format!("`{path}` is not available in this version");
            return self.faults.for_setting(path).error(
                ProblemKind::Unavailable,
                child.key,
                message,
                fix,
            );
        }
        let parent = ConfigPath(path.0[..path.0.len() - 1].to_vec());
        let message = match top {
            true => format!("unknown key `{name}`"),
            false => format!("unknown key `{name}` in `{parent}`"),
        };
        let keys = rule.keys().unwrap_or_default();
        let fix = match nearest(name, &keys) {
            Some(known) => format!("did you mean `{known}`?"),
            // A long list of keys would hide the message.
            None if keys.len() > 12 => "remove it; `moongate schema` lists all keys".to_owned(),
            None => format!("remove it; valid keys here: {}", listed(&keys)),
        };
        self.faults
            .for_setting(path)
            .error(ProblemKind::UnknownKey, child.key, message, fix);
    }

    fn wrong_type(&mut self, node: &ConfigNode, choices: &[SchemaRule], path: &ConfigPath) {
        let expected: Vec<&str> = choices
            .iter()
            .flat_map(|choice| choice.types())
            .map(type_name)
            .collect();
        let fix = choices
            .iter()
            .find_map(|choice| choice.advice())
            .map_or_else(
                || match (expected.first(), &node.value) {
                    (
                        Some(&"text"),
                        ConfigValue::Int(_) | ConfigValue::Float(_) | ConfigValue::Bool(_),
                    ) => "put it in quotes".to_owned(),
                    (Some(&"a list"), _) => "write a list: [\"...\"]".to_owned(),
                    _ => format!("write {}", expected.join(" or ")),
                },
                str::to_owned,
            );
        let message = format!(
            "`{path}` must be {}, but is {}",
            expected.join(" or "),
            node.kind()
        );
        self.faults
            .for_setting(path)
            .error(ProblemKind::Type, node.span, message, fix);
    }

    fn scalar(&mut self, node: &ConfigNode, rule: SchemaRule, path: &ConfigPath) -> bool {
        match &node.value {
            ConfigValue::Text(text) => {
                if let Some(words) = rule.words().filter(|words| !words.contains(&text.as_str())) {
                    // An expanded value may be a secret, so no message quotes it.
                    let shown = if node.expanded {
                        "that value".to_owned()
                    } else {
                        format!("{text:?}")
                    };
                    let fix = match nearest(text, &words).filter(|_| !node.expanded) {
                        Some(word) => format!("did you mean `{word}`?"),
                        None => format!("use {}", alternatives(&words)),
                    };
                    return self.reject(node, path, format!("`{path}` cannot be {shown}"), fix);
                }
                let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
                if rule.number("minLength").is_some_and(|min| length < min) {
                    return self.reject(
                        node,
                        path,
                        format!("`{path}` is empty"),
                        "write at least one character".to_owned(),
                    );
                }
                if let Some(max) = rule.number("maxLength").filter(|max| length > *max) {
                    return self.reject(
                        node,
                        path,
                        format!("`{path}` is too long"),
                        format!("use at most {max} characters"),
                    );
                }
                self.unit(node, rule, path)
            }
            ConfigValue::Int(number) => {
                let min = rule.number("minimum");
                let max = rule.number("maximum");
                if min.is_none_or(|min| *number >= min) && max.is_none_or(|max| *number <= max) {
                    return self.unit(node, rule, path);
                }
                let fix = match (min, max) {
                    (Some(min), Some(max)) => format!("write a number from {min} to {max}"),
                    (Some(min), None) => format!("write a number of at least {min}"),
                    _ => format!("write a number of at most {}", max.unwrap_or(i64::MAX)),
                };
                self.reject(node, path, format!("`{path}` is out of range"), fix)
            }
            _ => true,
        }
    }

    /// Reports a wrong value. False, since it must be removed.
    fn reject(
        &mut self,
        node: &ConfigNode,
        path: &ConfigPath,
        message: String,
        fix: String,
    ) -> bool {
        self.faults
            .for_setting(path)
            .error(ProblemKind::Value, node.span, message, fix);
        false
    }

    fn unit(&mut self, node: &ConfigNode, rule: SchemaRule, path: &ConfigPath) -> bool {
        let Err((message, fix)) = check_unit(node, rule, path) else {
            return true;
        };
        // The text may still be a reference, such as `${TIMEOUT}`, which has no unit to check.
        let is_unused = path
            .server()
            .is_some_and(|name| (self.unused)(&ConfigPath::of(&["servers", name])));
        if !is_unused {
            self.faults
                .for_setting(path)
                .error(ProblemKind::Value, node.span, message, fix);
        }
        false
    }
}

fn fits(node: &ConfigNode, rule: SchemaRule) -> bool {
    let wanted = match node.value {
        ConfigValue::Null => return false,
        ConfigValue::Bool(_) => "boolean",
        ConfigValue::Int(_) => "integer",
        ConfigValue::Float(_) => "number",
        ConfigValue::Text(_) => "string",
        ConfigValue::List(_) => "array",
        ConfigValue::Table(_) => "object",
    };
    rule.types().contains(&wanted)
}

fn type_name(name: &str) -> &'static str {
    match name {
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "text",
        "array" => "a list",
        _ => "a table",
    }
}

/// Finds the advice for a key or value that this version does not have.
fn unavailable(path: &ConfigPath, node: &ConfigNode) -> Option<&'static str> {
    let mut steps = path.steps();
    // The defaults of all servers have the keys of one.
    if steps.first() == Some(&"defaults") {
        steps.splice(0..1, ["servers", "*"]);
    }
    let found = UNAVAILABLE.iter().find(|(pattern, value, _)| {
        matches_pattern(&steps, pattern)
            && value.is_none_or(|value| {
                node.as_text()
                    .is_some_and(|text| is_value(text.trim(), value))
            })
    });
    found.map(|(_, _, fix)| *fix)
}

fn matches_pattern(steps: &[&str], pattern: &str) -> bool {
    let parts: Vec<&str> = pattern.split('.').collect();
    parts.len() == steps.len()
        && parts
            .iter()
            .zip(steps)
            .all(|(part, step)| *part == "*" || part == step)
}

/// True if a text is this value, or a URL of this scheme.
fn is_value(text: &str, value: &str) -> bool {
    text.strip_prefix(value)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("://"))
}
