//! Output schemas, compiled as the TypeScript SDK 1 compiles those of all tools while it lists
//! them.
//!
//! Owns which of them its compiler refuses (ajv 8 for draft-07, `strict` and `validateSchema` off).
//! Does not validate results. Invariant: a schema that it takes is kept, and the work is bounded by
//! the schema's size.
//!
//! A tool is not left out for its output schema. Without it, clients take results unchecked.

use std::collections::{HashMap, HashSet};

use moongate_jsonrpc::json::{RawJson, ValueChange};
use serde_json::{Map, Value};

use super::mend_notes::{MendNotes, short};
use super::pattern;
use super::schema_root::{self, TYPES};
use crate::legacy::wrap_schema;
pub(super) use budget::SCHEMA_MAX;
use budget::StepBudget;
use keywords::{CompileProblem, KEYWORDS, is_truthy};
use references::References;

mod budget;
mod keywords;
mod references;

/// Levels of schemas and references. The compiler recurses through both.
const DEPTH_MAX: usize = 400;
/// Name of the member in notes.
const AT: &str = "outputSchema";

/// Mends an output schema for legacy clients, or drops it.
pub(super) fn for_legacy(value: &RawJson, notes: &mut MendNotes) -> ValueChange {
    // The compiler of a client meets the wrapped form, which it may take for another schema.
    if let Some(wrapped) = wrap_schema(value) {
        return match compile(&wrapped) {
            Ok(()) => ValueChange::Keep,
            Err(problem) => drop_schema(&format!("{problem} when wrapped"), notes),
        };
    }
    if let Err(problem) = compile(value) {
        return drop_schema(&problem, notes);
    }
    match schema_root::for_legacy(AT, value, notes) {
        Ok(change) => change,
        Err(reason) => {
            notes.add(
                "",
                format_args!("has no clear outputSchema ({reason}): dropped"),
            );
            ValueChange::Drop
        }
    }
}

fn drop_schema(reason: &str, notes: &mut MendNotes) -> ValueChange {
    notes.add(AT, format_args!("{reason}: dropped"));
    ValueChange::Drop
}

/// Compiles a schema as legacy clients are listed it.
fn compile(listed: &RawJson) -> Result<(), CompileProblem> {
    if listed.bytes().len() > SCHEMA_MAX {
        return Err(format!("has more than {SCHEMA_MAX} bytes"));
    }
    let schema: Value = listed.parse_as().map_err(|_| "cannot be read")?;
    // Such a root costs a client the whole list.
    if schema["type"] != "object" {
        return Err("is for values other than objects, and cannot be wrapped".to_owned());
    }
    Compilation::of(&schema).and_then(Compilation::run)
}

/// Schema to be compiled: itself, the resource that its references start at, and its depth.
#[derive(Clone, Copy)]
struct Subschema<'a> {
    schema: &'a Value,
    resource: &'a Value,
    depth: usize,
}

/// Compilation of one schema. A work list replaces recursion.
struct Compilation<'a> {
    budget: StepBudget,
    references: References<'a>,
    is_async: bool,
    work: Vec<Subschema<'a>>,
    /// Addresses of the schemas and resources that are in the work, or were.
    seen: HashSet<(*const Value, *const Value)>,
    patterns: HashMap<&'a str, bool>,
}

impl<'a> Compilation<'a> {
    fn of(root: &'a Value) -> Result<Self, CompileProblem> {
        let mut budget = StepBudget::new();
        let references = References::collect(root, &mut budget)?;
        let is_async = is_truthy(&root["$async"]);
        let work = vec![Subschema {
            schema: root,
            resource: root,
            depth: 0,
        }];
        Ok(Compilation {
            budget,
            references,
            is_async,
            work,
            seen: HashSet::new(),
            patterns: HashMap::new(),
        })
    }

    fn run(mut self) -> Result<(), CompileProblem> {
        while let Some(next) = self.work.pop() {
            if next.depth > DEPTH_MAX {
                return Err(format!(
                    "has more than {DEPTH_MAX} levels of schemas and references"
                ));
            }
            if let Value::Object(schema) = next.schema
                && self.seen.insert((next.schema, next.resource))
                && self.budget.rules_of(schema)? > 0
            {
                self.compile(schema, next)?;
            }
        }
        Ok(())
    }

    fn compile(
        &mut self,
        schema: &'a Map<String, Value>,
        at: Subschema<'a>,
    ) -> Result<(), CompileProblem> {
        if is_truthy(schema.get("$async").unwrap_or(&Value::Null)) && !self.is_async {
            return Err("has $async below its root".to_owned());
        }
        let types = schema
            .get("type")
            .and_then(Value::as_array)
            .map_or(1, Vec::len);
        self.budget.spend(KEYWORDS.len() + types)?;
        check_types(schema)?;
        let begins_resource = at.depth > 0 && References::begins_resource(at.schema);
        let at = if begins_resource {
            Subschema {
                resource: at.schema,
                ..at
            }
        } else {
            at
        };
        if let Some(reference) = schema.get("$ref") {
            self.follow(reference, at)?;
            if is_truthy(reference) && self.budget.rules_of(schema)? == 1 {
                return Ok(());
            }
        }
        for (keyword, shape) in KEYWORDS {
            if let Some(value) = schema.get(*keyword) {
                shape.check(keyword, value)?;
                self.keyword(keyword, value, schema, at)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, reference: &'a Value, at: Subschema<'a>) -> Result<(), CompileProblem> {
        if !reference.is_string() {
            return Err("has a $ref that is not a string".to_owned());
        }
        match self
            .references
            .resolve(reference, at.resource, &mut self.budget)?
        {
            None => Ok(()),
            Some((schema, _)) if is_truthy(&schema["$async"]) && !self.is_async => {
                Err("has a reference to a schema with $async".to_owned())
            }
            Some((schema, resource)) => {
                self.work.push(Subschema {
                    schema,
                    resource,
                    depth: at.depth + 1,
                });
                Ok(())
            }
        }
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &'a Value,
        schema: &'a Map<String, Value>,
        at: Subschema<'a>,
    ) -> Result<(), CompileProblem> {
        match keyword {
            "pattern" => self.judge(value.as_str().unwrap_or_default()),
            "enum" if value.as_array().is_some_and(|values| values.is_empty()) => {
                Err("has an empty enum".to_owned())
            }
            "not" | "propertyNames" | "contains" => self.push(value, at),
            "additionalProperties" => self.additional_properties(value, schema, at),
            "properties" => self.push_all(own_entries(value), at),
            "dependencies" => {
                let schemas = own_entries(value).filter(|(_, entry)| !entry.is_array());
                self.push_all(schemas, at)
            }
            "patternProperties" => self.pattern_properties(value, at),
            "items" => match value.as_array() {
                Some(tuple) => tuple.iter().try_for_each(|schema| self.push(schema, at)),
                None => self.push(value, at),
            },
            "additionalItems" if schema.get("items").is_some_and(Value::is_array) => {
                self.push(value, at)
            }
            "allOf" | "oneOf" => value
                .as_array()
                .into_iter()
                .flatten()
                .try_for_each(|schema| self.push(schema, at)),
            "anyOf" => self.any_of(value, at),
            "if" => self.condition(value, schema, at),
            _ => Ok(()),
        }
    }

    /// Adds a schema to the work, unless it accepts everything.
    fn push(&mut self, schema: &'a Value, at: Subschema<'a>) -> Result<(), CompileProblem> {
        self.budget.spend(1)?;
        if !self.accepts_all(schema)? {
            self.work.push(Subschema {
                schema,
                resource: at.resource,
                depth: at.depth + 1,
            });
        }
        Ok(())
    }

    fn push_all(
        &mut self,
        mut entries: impl Iterator<Item = (&'a String, &'a Value)>,
        at: Subschema<'a>,
    ) -> Result<(), CompileProblem> {
        entries.try_for_each(|(_, schema)| self.push(schema, at))
    }

    fn judge(&mut self, pattern: &'a str) -> Result<(), CompileProblem> {
        self.budget.spend(1 + pattern.len())?;
        let is_broken = match self.patterns.get(pattern) {
            Some(known) => *known,
            None => {
                self.budget.spend(pattern::steps(pattern))?;
                let is_broken = pattern::is_broken(pattern);
                self.patterns.insert(pattern, is_broken);
                is_broken
            }
        };
        match is_broken {
            true => Err(format!(
                "has a pattern that does not compile ({})",
                short(pattern)
            )),
            false => Ok(()),
        }
    }

    fn pattern_properties(
        &mut self,
        value: &'a Value,
        at: Subschema<'a>,
    ) -> Result<(), CompileProblem> {
        let mut is_checked = false;
        for (_, schema) in own_entries(value) {
            is_checked |= !self.accepts_all(schema)?;
        }
        if !is_checked {
            return Ok(());
        }
        own_entries(value).try_for_each(|(pattern, _)| self.judge(pattern))?;
        self.push_all(own_entries(value), at)
    }

    fn additional_properties(
        &mut self,
        value: &'a Value,
        schema: &'a Map<String, Value>,
        at: Subschema<'a>,
    ) -> Result<(), CompileProblem> {
        if !self.accepts_all(value)? {
            let patterns = schema
                .get("patternProperties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            patterns
                .filter(is_own)
                .try_for_each(|(pattern, _)| self.judge(pattern))?;
        }
        self.push(value, at)
    }

    fn any_of(&mut self, value: &'a Value, at: Subschema<'a>) -> Result<(), CompileProblem> {
        let branches = value.as_array().map(Vec::as_slice).unwrap_or_default();
        for branch in branches {
            // One that accepts everything ends the search, and nothing is compiled.
            if self.accepts_all(branch)? {
                return Ok(());
            }
        }
        branches.iter().try_for_each(|schema| self.push(schema, at))
    }

    fn condition(
        &mut self,
        value: &'a Value,
        schema: &'a Map<String, Value>,
        at: Subschema<'a>,
    ) -> Result<(), CompileProblem> {
        let mut branches = Vec::new();
        for branch in ["then", "else"].iter().filter_map(|key| schema.get(*key)) {
            if !self.accepts_all(branch)? {
                branches.push(branch);
            }
        }
        if !branches.is_empty() {
            self.push(value, at)?;
        }
        branches
            .into_iter()
            .try_for_each(|schema| self.push(schema, at))
    }

    /// Returns true if the compiler skips a schema. Fails where it does.
    fn accepts_all(&mut self, schema: &Value) -> Result<bool, CompileProblem> {
        match schema {
            Value::Null => Err("has null where a schema belongs".to_owned()),
            Value::Bool(accepts) => Ok(*accepts),
            Value::Object(schema) => Ok(self.budget.rules_of(schema)? == 0),
            Value::Number(_) | Value::String(_) | Value::Array(_) => Ok(true),
        }
    }
}

/// Returns the entries of an object that the compiler reads.
fn own_entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten().filter(is_own)
}

/// Returns false for the key that the compiler passes over.
fn is_own(entry: &(&String, &Value)) -> bool {
    entry.0 != "__proto__"
}

/// Checks `type` and `nullable`.
fn check_types(schema: &Map<String, Value>) -> Result<(), CompileProblem> {
    let types: Vec<&Value> = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().collect(),
        Some(kind) if is_truthy(kind) => vec![kind],
        _ => Vec::new(),
    };
    if let Some(unknown) = types
        .iter()
        .find(|kind| kind.as_str().is_none_or(|kind| !TYPES.contains(&kind)))
    {
        return Err(format!(
            "has an unknown type ({})",
            short(&unknown.to_string())
        ));
    }
    match schema.get("nullable") {
        Some(Value::Bool(false)) if types.iter().any(|kind| *kind == "null") => {
            Err("has the type null but is not nullable".to_owned())
        }
        Some(_) if types.is_empty() => Err("has nullable without a type".to_owned()),
        _ => Ok(()),
    }
}
