//! Principals that are admitted now, interned by their marks.
//!
//! Owns their ids. Does not check credentials, and does not decide who is admitted (`api_keys.rs`). Invariant: no id is
//! given twice in one process, so state kept for one principal is never found by another.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;

use moongate_model::{Principal, PrincipalMark, PrincipalSecret};

/// Table of principals. Its owner removes those that it no longer admits, so there are as many as keys.
#[derive(Default)]
pub struct PrincipalTable(RwLock<InternedPrincipals>);

#[derive(Default)]
struct InternedPrincipals {
    by_mark: HashMap<PrincipalMark, Arc<Principal>>,
    next_id: u32,
}

impl PrincipalTable {
    /// Returns the principal of a mark. Another name makes another principal, with this secret and a role of its own.
    pub fn intern(&self, mark: PrincipalMark, name: &str, secret: Option<PrincipalSecret>) -> Arc<Principal> {
        let mut table = self.0.write();
        if let Some(known) = table.by_mark.get(&mark).filter(|known| known.name == name) {
            return known.clone();
        }
        let id = table.next_id;
        // Ids never wrap, and the last ones are reserved.
        table.next_id = id.saturating_add(1).min(Principal::ANONYMOUS - 1);
        let principal = Arc::new(Principal { secret, ..Principal::new(name, id, mark) });
        table.by_mark.insert(mark, principal.clone());
        principal
    }

    /// Admits callers without credentials. Returns their principal.
    pub fn intern_anonymous(&self) -> Arc<Principal> {
        let anonymous = Principal::anonymous();
        let mut table = self.0.write();
        table.by_mark.entry(anonymous.mark).or_insert_with(|| Arc::new(anonymous)).clone()
    }

    /// Removes the principals with other ids than these.
    pub fn retain(&self, ids: &HashSet<u32>) {
        self.0.write().by_mark.retain(|_, principal| ids.contains(&principal.id));
    }

    /// Finds a principal by its mark.
    pub fn find(&self, mark: &PrincipalMark) -> Option<Arc<Principal>> {
        self.0.read().by_mark.get(mark).cloned()
    }

    /// Returns true if the principal is still admitted.
    pub fn admits(&self, principal: &Principal) -> bool {
        self.0.read().by_mark.get(&principal.mark).is_some_and(|known| **known == *principal)
    }

    /// Returns the ids of all principals.
    pub fn ids(&self) -> HashSet<u32> {
        self.0.read().by_mark.values().map(|principal| principal.id).collect()
    }

    /// Returns true if no two callers can be different principals.
    pub fn is_single(&self) -> bool {
        self.0.read().by_mark.len() <= 1
    }

    /// Returns all principals.
    pub fn all(&self) -> Vec<Arc<Principal>> {
        self.0.read().by_mark.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_one_principal_until_it_is_removed() {
        let table = PrincipalTable::default();
        let (first, other) = (table.intern([1; 16], "a", None), table.intern([2; 16], "b", None));
        assert!(Arc::ptr_eq(&first, &table.intern([1; 16], "a", None)) && first != other);
        let renamed = table.intern([1; 16], "c", None);
        assert!(table.admits(&renamed) && !table.admits(&first));
        table.retain(&HashSet::from([other.id]));
        assert!(!table.admits(&renamed) && table.find(&[1; 16]).is_none());
        assert_eq!(table.all(), std::slice::from_ref(&other));
        // The same mark comes back: nothing of the removed principal is its own.
        assert!(![first.id, renamed.id, other.id].contains(&table.intern([1; 16], "a", None).id));
    }

    #[test]
    fn callers_without_credentials_have_the_same_mark_in_every_process() {
        let (table, next) = (PrincipalTable::default(), PrincipalTable::default());
        next.intern([1; 16], "a", None);
        assert_eq!(table.intern_anonymous().mark, next.intern_anonymous().mark);
        assert!(Arc::ptr_eq(&next.intern_anonymous(), &next.intern_anonymous()));
    }
}
