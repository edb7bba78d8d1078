//! References within a schema.
//!
//! Owns what `$id` and `$anchor` name, and where a `$ref` leads. Does not fetch anything.
//! Invariant: following a reference ends.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use serde_json::Value;
use url::Url;

use super::budget::StepBudget;
use super::keywords::{CompileProblem, is_truthy};
use crate::definitions::mend_notes::short;

/// Meta-schema that the compiler brings along, under both of its names.
const META_SCHEMAS: [&str; 2] = [
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/schema",
];
/// Names in one schema, and the bytes of each. Names are resolved, so each may be longer than the
/// schema writes it.
const NAMES_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 1024;
/// References in a row that name nothing but the next one.
const CHAIN_MAX: usize = 64;
/// Keywords whose value has schemas by name.
const NAMED: [&str; 5] = [
    "$defs",
    "definitions",
    "properties",
    "patternProperties",
    "dependencies",
];
/// Keywords whose value may be a list of schemas.
const LISTED: [&str; 4] = ["items", "allOf", "anyOf", "oneOf"];
/// Keywords whose value isn't a schema.
const SKIPPED: [&str; 18] = [
    "default",
    "enum",
    "const",
    "required",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "pattern",
    "format",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
];

/// Steps for each byte of an identifier that is resolved. A host's name may be encoded, which takes
/// long.
const URL_STEPS: usize = 8;

/// Schema that a reference leads to, and its resource.
type ReferenceTarget<'a> = (&'a Value, &'a Value);

/// Names in one schema.
pub(super) struct References<'a> {
    root: &'a Value,
    /// Schemas by their identifiers, resolved.
    named: HashMap<String, &'a Value>,
    /// Identifiers of resources, by address.
    bases: HashMap<*const Value, Rc<BaseId>>,
    /// Targets by the addresses of reference and resource. `None`: one that is known to compile.
    followed: HashMap<(*const Value, *const Value), Option<ReferenceTarget<'a>>>,
}

/// Identifier of a resource, parsed once.
struct BaseId {
    text: String,
    url: Option<Url>,
}

impl BaseId {
    fn of(text: String) -> Rc<Self> {
        Rc::new(BaseId {
            url: Url::parse(&text).ok(),
            text,
        })
    }
}

impl<'a> References<'a> {
    /// Collects the names. Fails where the compiler does: a name that is wrong, or that two schemas
    /// have.
    pub(super) fn collect(
        root: &'a Value,
        budget: &mut StepBudget,
    ) -> Result<Self, CompileProblem> {
        let id = match root.get("$id") {
            Some(Value::String(id)) => normalized(id),
            Some(id) if is_truthy(id) => return Err("has an $id that is not a string".to_owned()),
            _ => "",
        };
        let mut found = References {
            root,
            named: HashMap::new(),
            bases: HashMap::new(),
            followed: HashMap::new(),
        };
        if !id.is_empty() {
            budget.spend(URL_STEPS * id.len())?;
            found.insert(id.to_owned(), root)?;
        }
        let base = BaseId::of(id.to_owned());
        found.bases.insert(root, base.clone());
        let mut work = Vec::new();
        children(root, &base, &mut work);
        while let Some((schema, base)) = work.pop() {
            budget.spend(1)?;
            let base = found.register_names(schema, base, budget)?;
            children(schema, &base, &mut work);
        }
        Ok(found)
    }

    /// Returns true if a schema below the root is a resource: its references start at itself.
    pub(super) fn begins_resource(schema: &Value) -> bool {
        schema
            .get("$id")
            .and_then(Value::as_str)
            .is_some_and(|id| !normalized(id).is_empty() && !id.starts_with('#'))
    }

    fn register_names(
        &mut self,
        schema: &'a Value,
        base: Rc<BaseId>,
        budget: &mut StepBudget,
    ) -> Result<Rc<BaseId>, CompileProblem> {
        let mut inner = base;
        if schema
            .get("$id")
            .is_some_and(|id| !id.is_string() && is_truthy(id))
        {
            return Err("has an $id that is not a string".to_owned());
        }
        if let Some(id) = schema.get("$id").and_then(Value::as_str) {
            let id = joined(&inner, id, budget)?;
            self.insert(id.clone(), schema)?;
            if Self::begins_resource(schema) {
                inner = BaseId::of(id);
                self.bases.insert(schema, inner.clone());
            }
        }
        for anchor in ["$anchor", "$dynamicAnchor"]
            .iter()
            .filter_map(|key| schema.get(*key)?.as_str())
        {
            let mut bytes = anchor.bytes();
            let is_right = bytes
                .next()
                .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            if !is_right {
                return Err(format!("has an invalid anchor ({})", short(anchor)));
            }
            self.insert(format!("{}#{anchor}", inner.text), schema)?;
        }
        Ok(inner)
    }

    fn insert(&mut self, name: String, schema: &'a Value) -> Result<(), CompileProblem> {
        if self.named.len() == NAMES_MAX || name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "has more than {NAMES_MAX} names, or a name of more than {NAME_BYTES_MAX} bytes"
            ));
        }
        match self.named.entry(name) {
            Entry::Vacant(free) => {
                free.insert(schema);
                Ok(())
            }
            Entry::Occupied(taken) => Err(format!(
                "has two schemas with the same name ({})",
                short(taken.key())
            )),
        }
    }

    /// Returns the target of a reference, which is a text. `None`: one that is known to compile.
    pub(super) fn resolve(
        &mut self,
        reference: &'a Value,
        resource: &'a Value,
        budget: &mut StepBudget,
    ) -> Result<Option<ReferenceTarget<'a>>, CompileProblem> {
        let mut next = reference;
        let mut resource = resource;
        for _ in 0..CHAIN_MAX {
            let Some((schema, inner)) = self.follow_reference(next, resource, budget)? else {
                return Ok(None);
            };
            if schema.is_null() {
                return Err(format!(
                    "has a reference to null ({})",
                    short(text_of(reference))
                ));
            }
            match lone_reference(schema, budget)? {
                Some(reference) => (next, resource) = (reference, inner),
                None => return Ok(Some((schema, inner))),
            }
        }
        Err(format!(
            "has circular references ({})",
            short(text_of(reference))
        ))
    }

    /// Follows one reference. Others lead to it again, so its target is kept.
    fn follow_reference(
        &mut self,
        reference: &'a Value,
        resource: &'a Value,
        budget: &mut StepBudget,
    ) -> Result<Option<ReferenceTarget<'a>>, CompileProblem> {
        budget.spend(1)?;
        let key = (std::ptr::from_ref(reference), std::ptr::from_ref(resource));
        if let Some(known) = self.followed.get(&key) {
            return Ok(*known);
        }
        let target = self.find(text_of(reference), resource, budget)?;
        self.followed.insert(key, target);
        Ok(target)
    }

    fn find(
        &self,
        reference: &str,
        resource: &'a Value,
        budget: &mut StepBudget,
    ) -> Result<Option<ReferenceTarget<'a>>, CompileProblem> {
        budget.spend(reference.len())?;
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let start = match (document, self.bases.get(&std::ptr::from_ref(resource))) {
            ("", _) => resource,
            _ if META_SCHEMAS.contains(&document) => return Ok(None),
            (_, Some(base)) => *self
                .named
                .get(&joined(base, document, budget)?)
                .ok_or_else(|| missing_target(reference))?,
            (_, None) => *self
                .named
                .get(normalized(document))
                .ok_or_else(|| missing_target(reference))?,
        };
        // The whole resource is being compiled, or was.
        if fragment.is_empty() || fragment == "/" {
            return Ok((!std::ptr::eq(start, self.root)).then_some((start, start)));
        }
        // The compiler follows the reference of a resource that has nothing else before it reads a
        // fragment of it. With a fragment of the same resource it never ends.
        if !std::ptr::eq(start, self.root) && lone_reference(start, budget)?.is_some() {
            return Err(missing_target(reference));
        }
        let Some(pointer) = fragment.strip_prefix('/') else {
            let base = self
                .bases
                .get(&std::ptr::from_ref(start))
                .map(|base| &*base.text)
                .unwrap_or_default();
            let named = self
                .named
                .get(&format!("{base}#{fragment}"))
                .ok_or_else(|| missing_target(reference))?;
            return Ok(Some((named, start)));
        };
        follow_pointer(pointer, start)
            .map(Some)
            .ok_or_else(|| missing_target(reference))
    }
}

fn missing_target(reference: &str) -> CompileProblem {
    format!("has an unresolved reference ({})", short(reference))
}

/// Returns the text of a reference, which was seen to be one.
fn text_of(reference: &Value) -> &str {
    reference.as_str().unwrap_or_default()
}

/// Returns the reference of a schema that has no other rule.
fn lone_reference<'a>(
    schema: &'a Value,
    budget: &mut StepBudget,
) -> Result<Option<&'a Value>, CompileProblem> {
    let Value::Object(members) = schema else {
        return Ok(None);
    };
    match members.get("$ref").filter(|next| !text_of(next).is_empty()) {
        Some(next) => Ok((budget.rules_of(members)? == 1).then_some(next)),
        None => Ok(None),
    }
}

/// Follows a JSON pointer. Returns what it leads to, and the resource of that.
fn follow_pointer<'a>(pointer: &str, start: &'a Value) -> Option<(&'a Value, &'a Value)> {
    let mut schema = start;
    let mut resource = start;
    for part in pointer.split('/') {
        let part = percent_decoded(part)?.replace("~1", "/").replace("~0", "~");
        schema = match schema {
            Value::Object(members) => members.get(&part)?,
            Value::Array(entries) => entries.get(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
        let holds_schemas = NAMED.contains(&part.as_str()) && part != "$defs" || part == "enum";
        if !holds_schemas && References::begins_resource(schema) {
            resource = schema;
        }
    }
    Some((schema, resource))
}

fn percent_decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = behind.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Removes an empty fragment.
fn normalized(id: &str) -> &str {
    id.strip_suffix("#/")
        .or_else(|| id.strip_suffix('#'))
        .unwrap_or(id)
}

/// Resolves an identifier against the one around it.
fn joined(base: &BaseId, id: &str, budget: &mut StepBudget) -> Result<String, CompileProblem> {
    // The result has the base, too.
    budget.spend(URL_STEPS * id.len() + base.text.len() / URL_STEPS)?;
    let id = normalized(id);
    if let Some(fragment) = id.strip_prefix('#') {
        return Ok(format!(
            "{}#{fragment}",
            base.text.split('#').next().unwrap_or_default()
        ));
    }
    match base.url.as_ref().and_then(|url| url.join(id).ok()) {
        Some(url) => Ok(normalized(url.as_str()).to_owned()),
        None => Ok(id.to_owned()),
    }
}

/// Adds the schemas within a schema, wherever the compiler looks for names.
fn children<'a>(schema: &'a Value, base: &Rc<BaseId>, work: &mut Vec<(&'a Value, Rc<BaseId>)>) {
    let Some(members) = schema.as_object() else {
        return;
    };
    for (key, value) in members {
        match value {
            Value::Array(entries) if LISTED.contains(&key.as_str()) => {
                work.extend(
                    entries
                        .iter()
                        .filter(|entry| entry.is_object())
                        .map(|entry| (entry, base.clone())),
                );
            }
            Value::Object(entries) if NAMED.contains(&key.as_str()) => {
                let schemas = entries.values().filter(|entry| entry.is_object());
                work.extend(schemas.map(|entry| (entry, base.clone())));
            }
            Value::Object(_) if !SKIPPED.contains(&key.as_str()) => {
                work.push((value, base.clone()))
            }
            _ => {}
        }
    }
}
