//! Names of organisations and teams, pinned to their first ids.
//!
//! Owns their number, and that a name keeps its id. Does not look up ids. Invariant: a name that
//! somebody else takes over later never matches the first owner's id.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::store_fault::StoreFault;

/// Maximum number of names.
const COUNT_MAX: usize = 1_000;
/// Longest name, in bytes.
const NAME_MAX: usize = 256;

/// Name with its id, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PinnedName {
    /// Name.
    pub(crate) name: String,
    /// Id when it was first looked up.
    pub(crate) id: u64,
}

/// Names with their ids.
#[derive(Debug, Default)]
pub(crate) struct PinnedNames(HashMap<String, u64>);

impl PinnedNames {
    /// Returns the id of a name.
    pub(crate) fn id_of(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Pins a name to an id, unless it has one. Returns the row to store.
    pub(crate) fn pin(&mut self, name: &str, id: u64) -> Result<Option<PinnedName>, StoreFault> {
        if self.0.contains_key(name) {
            return Ok(None);
        }
        if self.0.len() >= COUNT_MAX || name.len() > NAME_MAX {
            return Err(StoreFault::Full);
        }
        self.0.insert(name.to_owned(), id);
        let name = name.to_owned();
        Ok(Some(PinnedName { name, id }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_first_id() {
        let mut names = PinnedNames::default();
        let stored = names.pin("acme", 1).unwrap().unwrap();
        assert_eq!(stored.name, "acme");
        assert_eq!(names.pin("acme", 2), Ok(None));
        assert_eq!(names.id_of("acme"), Some(1));
        assert_eq!(names.id_of("Acme"), None);
    }

    #[test]
    fn few_short_names_are_pinned() {
        let mut names = PinnedNames::default();
        assert_eq!(
            names.pin(&"x".repeat(NAME_MAX + 1), 1),
            Err(StoreFault::Full)
        );
        for n in 0..COUNT_MAX {
            assert!(names.pin(&n.to_string(), 1).is_ok());
        }
        assert_eq!(names.pin("acme", 1), Err(StoreFault::Full));
    }
}
