//! Checks of the definitions that one server lists, each made once.
//!
//! Owns the results, by the identity of the definition. Does not check (`protocol`). Invariant: a
//! result outlives its definition until the next sweep only, so there are at most twice as many
//! results as definitions, and a few.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use moongate_jsonrpc::json::JsonObject;
use moongate_model::ItemKind;
use moongate_protocol::{CheckedDefinition, check_definition};

/// Results that are kept without a sweep.
const UNSWEPT_MAX: usize = 64;

/// Result of a check: the definition that can be listed, or the reason against it.
pub type DefinitionCheck = Arc<Result<CheckedDefinition, String>>;

/// Results of checks. A catalogue is built for each change of any server, and a list keeps the
/// items that it has.
#[derive(Default)]
pub(crate) struct DefinitionChecks {
    results: Mutex<CheckResults>,
}

#[derive(Default)]
struct CheckResults {
    /// By address and kind. The weak reference keeps the address from another definition.
    known: HashMap<(usize, ItemKind), (Weak<JsonObject>, DefinitionCheck)>,
    sweep_at: usize,
}

impl DefinitionChecks {
    /// Returns the result of a definition's check.
    pub(crate) fn check(&self, kind: ItemKind, item: &Arc<JsonObject>) -> DefinitionCheck {
        let key = (Arc::as_ptr(item).addr(), kind);
        if let Some((_, result)) = self.results.lock().known.get(&key) {
            return result.clone();
        }
        // Without the lock: a long check holds up nobody, and two at once have the same result.
        let result = Arc::new(check_definition(kind, item));
        self.results
            .lock()
            .insert(key, Arc::downgrade(item), result.clone());
        result
    }
}

impl CheckResults {
    fn insert(&mut self, key: (usize, ItemKind), item: Weak<JsonObject>, result: DefinitionCheck) {
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, (item, _)| item.strong_count() > 0);
            self.sweep_at = UNSWEPT_MAX + 2 * self.known.len();
        }
        self.known.insert(key, (item, result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Arc<JsonObject> {
        let json = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        Arc::new(JsonObject::parse(json.into()).unwrap())
    }

    #[test]
    fn a_definition_is_checked_once() {
        let checks = DefinitionChecks::default();
        let item = tool("a");
        let first = checks.check(ItemKind::Tools, &item);
        assert!(Arc::ptr_eq(&first, &checks.check(ItemKind::Tools, &item)));
        let other = checks.check(ItemKind::Resources, &item);
        assert!(first.is_ok() && other.is_err(), "a kind has its own rules");
    }

    #[test]
    fn results_of_definitions_that_are_gone_are_forgotten() {
        let checks = DefinitionChecks::default();
        let kept = tool("kept");
        let first = checks.check(ItemKind::Tools, &kept);
        for n in 0..1000 {
            assert!(
                checks
                    .check(ItemKind::Tools, &tool(&format!("t{n}")))
                    .is_ok()
            );
        }
        assert!(checks.results.lock().known.len() <= UNSWEPT_MAX + 3);
        assert!(Arc::ptr_eq(&first, &checks.check(ItemKind::Tools, &kept)));
    }
}
