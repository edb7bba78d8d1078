//! JSON Schema of the config file, and queries on it.
//!
//! Owns the schema for the checks, derived from `file`. Does not walk a config (`check`).
//! Invariant: a key that the schema lacks is an error.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::Value;

/// Schema derived from `file`, as text. A test compares the two. The code that derives it would
/// stay in the gateway's memory, although it reads its config once.
const DERIVED: &str = include_str!("schema.json");

/// Schema that some check uses now. A text may have thousands of servers, and each of their keys is
/// checked by itself.
static IN_USE: Mutex<Weak<Value>> = Mutex::new(Weak::new());

/// Schema for the checks. It is shared while somebody uses it and not kept: it would be the largest
/// part of a gateway's config in memory.
pub struct ConfigSchema(Arc<Value>);

impl ConfigSchema {
    /// Parses the schema, unless it is in use.
    pub(super) fn read() -> Self {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let value = in_use.upgrade().unwrap_or_else(|| {
            let value = Arc::new(serde_json::from_str(DERIVED).expect("a test reads it"));
            *in_use = Arc::downgrade(&value);
            value
        });
        ConfigSchema(value)
    }

    /// Keeps the schema parsed for a caller that reads many texts, one after the other.
    pub fn keep() -> Self {
        ConfigSchema::read()
    }

    /// Returns the schema itself.
    pub(super) fn into_value(self) -> Value {
        Arc::unwrap_or_clone(self.0)
    }

    /// Rule for the whole file.
    pub(super) fn root(&self) -> SchemaRule<'_> {
        SchemaRule {
            value: &self.0,
            declared: &self.0,
            schema: &self.0,
        }
    }
}

/// Rule: the part of the schema for one value.
#[derive(Clone, Copy)]
pub(super) struct SchemaRule<'a> {
    value: &'a Value,
    /// Rule where it is declared: at the key, before a reference to a type.
    declared: &'a Value,
    /// Whole schema, which parts refer to.
    schema: &'a Value,
}

impl<'a> SchemaRule<'a> {
    fn of(self, value: &'a Value) -> Self {
        match value
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|name| name.strip_prefix('#'))
        {
            Some(pointer) => {
                // The marks of one key, such as `x-reload`, are next to its `$ref`: a type that
                // many keys share cannot have them.
                SchemaRule {
                    declared: value,
                    ..self.of(self.schema.pointer(pointer).unwrap_or(&Value::Null))
                }
            }
            None => SchemaRule {
                value,
                declared: value,
                ..self
            },
        }
    }

    /// Rules of which one must hold. Usually there is only one.
    pub(super) fn choices(self) -> Vec<Self> {
        match self.value.get("anyOf").and_then(Value::as_array) {
            Some(choices) => choices.iter().map(|rule| self.of(rule)).collect(),
            None => vec![self],
        }
    }

    /// Accepted types, in the words of JSON Schema.
    pub(super) fn types(self) -> Vec<&'a str> {
        match self.value.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ if self.words().is_some() => vec!["string"],
            _ => Vec::new(),
        }
    }

    /// Keys of a table. `None` if they are free.
    pub(super) fn keys(self) -> Option<Vec<&'a str>> {
        Some(
            self.value
                .get("properties")?
                .as_object()?
                .keys()
                .map(String::as_str)
                .collect(),
        )
    }

    /// Rule for the value of a key.
    pub(super) fn key(self, name: &str) -> Option<Self> {
        match self.value.get("properties") {
            Some(properties) => properties.get(name).map(|rule| self.of(rule)),
            None => self
                .value
                .get("additionalProperties")
                .filter(|rule| rule.is_object())
                .map(|rule| self.of(rule)),
        }
    }

    /// Rule for the items of a list.
    pub(super) fn items(self) -> Option<Self> {
        self.value.get("items").map(|rule| self.of(rule))
    }

    /// Keys that must be there.
    pub(super) fn required(self) -> Vec<&'a str> {
        self.value
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// Texts that are accepted. `None` if any text is.
    pub(super) fn words(self) -> Option<Vec<&'a str>> {
        if let Some(words) = self.value.get("enum").and_then(Value::as_array) {
            return Some(words.iter().filter_map(Value::as_str).collect());
        }
        // An enum whose variants have descriptions is a `oneOf` of constants.
        let choices = self.value.get("oneOf")?.as_array()?;
        let words =
            choices.iter().flat_map(
                |choice| match choice.get("enum").and_then(Value::as_array) {
                    Some(words) => words.iter().filter_map(Value::as_str).collect(),
                    None => choice
                        .get("const")
                        .and_then(Value::as_str)
                        .into_iter()
                        .collect::<Vec<_>>(),
                },
            );
        Some(words.collect())
    }

    /// Number in the schema, such as `minimum`.
    pub(super) fn number(self, name: &str) -> Option<i64> {
        self.value.get(name)?.as_i64()
    }

    /// Unit of such a value: `duration`, `size` or `rate`.
    pub(super) fn unit(self) -> Option<&'a str> {
        self.value.get("x-unit")?.as_str()
    }

    /// True if zero has a special meaning.
    pub(super) fn allows_zero(self) -> bool {
        self.declared.get("x-zero").is_some_and(|zero| zero == true)
    }

    /// True if a change applies only after a restart.
    pub(super) fn needs_restart(self) -> bool {
        self.declared
            .get("x-reload")
            .is_some_and(|reload| reload == "restart")
    }

    /// What an operator of the admin API may do with the key.
    pub(super) fn operator(self) -> Option<&'a str> {
        self.declared.get("x-operator")?.as_str()
    }

    /// Least value with a unit, if it is not that of all.
    pub(super) fn least(self) -> Option<&'a str> {
        self.declared.get("x-least")?.as_str()
    }

    /// Advice on the written form of such a value.
    pub(super) fn advice(self) -> Option<&'a str> {
        self.value.get("x-write")?.as_str()
    }
}
