//! Work that one schema may cause.
//!
//! Owns its bound, and counts that are made once for each schema. Does not compile. Invariant: a
//! schema whose work grows with its size stays far below the bound.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::keywords::{CompileProblem, Shape};

/// Size of a schema that is compiled, in bytes. Legacy clients do not get a larger one.
pub(crate) const SCHEMA_MAX: usize = 1024 * 1024;
/// Steps for one schema: members, bytes of references, rules that are looked up. Each takes some 10
/// ns.
const STEPS_MAX: usize = 8 * SCHEMA_MAX;

/// Steps that are left, and the numbers of rules so far.
pub(super) struct StepBudget {
    left: usize,
    /// Numbers of keywords with rules, by the addresses of schemas. Any number of references may
    /// lead to one of them.
    rules: HashMap<*const Map<String, Value>, usize>,
}

impl StepBudget {
    pub(super) fn new() -> Self {
        StepBudget {
            left: STEPS_MAX,
            rules: HashMap::new(),
        }
    }

    /// Spends steps. Fails if there are too few.
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), CompileProblem> {
        let left = self.left.checked_sub(steps);
        self.left = left.ok_or_else(|| format!("takes more than {STEPS_MAX} steps to compile"))?;
        Ok(())
    }

    /// Returns the number of a schema's keywords that the compiler has rules for.
    pub(super) fn rules_of(
        &mut self,
        schema: &Map<String, Value>,
    ) -> Result<usize, CompileProblem> {
        let address = std::ptr::from_ref(schema);
        if let Some(known) = self.rules.get(&address) {
            return Ok(*known);
        }
        self.spend(schema.len())?;
        let count = schema.keys().filter(|key| Shape::of(key).is_some()).count();
        self.rules.insert(address, count);
        Ok(count)
    }
}
