//! Principals that are admitted now, interned by their keys.
//!
//! Owns their ids, and which method admitted each. Does not check credentials, and does not decide who is admitted
//! (`api_keys.rs`). Invariant: no id is given twice in one process, so state kept for one principal is never found by
//! another.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;

use moongate_model::{Principal, PrincipalKey, PrincipalSecret};

use crate::auth::expiry::is_past;

/// Name that stands for a method where no credentials are asked for.
pub(super) const NO_METHOD: &str = "none";

/// Table of principals. Each method of authentication removes those of its own that it no longer admits.
#[derive(Default)]
pub struct PrincipalTable(RwLock<InternedPrincipals>);

#[derive(Clone, Default)]
struct InternedPrincipals {
    by_key: HashMap<PrincipalKey, InternedPrincipal>,
    next_id: u32,
}

#[derive(Clone)]
struct InternedPrincipal {
    principal: Arc<Principal>,
    /// Method that admitted it.
    method: &'static str,
    /// Time from which its credentials are refused.
    expires: Option<jiff::Timestamp>,
}

impl InternedPrincipal {
    fn is_admitted(&self) -> bool {
        !is_past(self.expires)
    }
}

/// Principal before a change of the config, and after it.
#[derive(Default)]
pub struct PrincipalChange {
    /// Name of the principal. `None`: callers without credentials.
    pub name: Option<String>,
    /// Principal before the change.
    pub before: Option<Arc<Principal>>,
    /// Principal after the change.
    pub after: Option<Arc<Principal>>,
}

impl PrincipalTable {
    /// Returns the principal of a key. Another name makes another principal, with this secret and its own role.
    pub fn intern(
        &self,
        method: &'static str,
        key: PrincipalKey,
        name: &str,
        secret: Option<PrincipalSecret>,
    ) -> Arc<Principal> {
        let mut table = self.0.write();
        // One lock for look-up and insertion. Two reloads at once must not give one key two ids.
        if let Some(known) = table.by_key.get(&key).filter(|known| known.principal.name == name) {
            return known.principal.clone();
        }
        let id = table.next_id;
        // Ids never wrap, and the last ones are reserved.
        table.next_id = id.saturating_add(1).min(Principal::OPERATOR - 1);
        let principal = Arc::new(Principal { secret, ..Principal::new(name, id, key) });
        table.by_key.insert(key, InternedPrincipal { principal: principal.clone(), method, expires: None });
        principal
    }

    /// Admits callers without credentials. Returns their principal.
    pub fn intern_anonymous(&self) -> Arc<Principal> {
        let anonymous = Principal::anonymous();
        let mut table = self.0.write();
        let new = |principal| InternedPrincipal { principal: Arc::new(principal), method: NO_METHOD, expires: None };
        table.by_key.entry(anonymous.key).or_insert_with(|| new(anonymous)).principal.clone()
    }

    /// Sets the time from which a principal is no longer admitted. It keeps its id, since a reload may move the time.
    pub fn set_expiry(&self, key: &PrincipalKey, expires: Option<jiff::Timestamp>) {
        if let Some(known) = self.0.write().by_key.get_mut(key) {
            known.expires = expires;
        }
    }

    /// Removes the principals of a method that have other ids than these.
    pub fn retain(&self, method: &str, ids: &HashSet<u32>) {
        // Only its own: a reload of the keys must not end the sessions of another method.
        self.0.write().by_key.retain(|_, known| known.method != method || ids.contains(&known.principal.id));
    }

    /// Removes the principals of all other methods than these.
    pub fn retain_methods(&self, methods: &[&str]) {
        self.0.write().by_key.retain(|_, known| methods.contains(&known.method));
    }

    /// Copies the table, to try a change of the config.
    pub fn fork(&self) -> Self {
        PrincipalTable(RwLock::new(self.0.read().clone()))
    }

    /// Lists the principals of this table and of a later one. Credentials with a new value and their old name have one
    /// entry. Callers without credentials come last.
    pub fn changes_to(&self, later: &PrincipalTable) -> Vec<PrincipalChange> {
        let mut changes = BTreeMap::<_, PrincipalChange>::new();
        for (table, is_later) in [(self, false), (later, true)] {
            for InternedPrincipal { principal, method, .. } in table.0.read().by_key.values() {
                let name = (principal.id != Principal::ANONYMOUS).then(|| principal.name.clone());
                let change = changes.entry((name.is_none(), name, *method)).or_default();
                let side = if is_later { &mut change.after } else { &mut change.before };
                *side = Some(principal.clone());
            }
        }
        changes.into_iter().map(|((_, name, _), change)| PrincipalChange { name, ..change }).collect()
    }

    /// Finds a principal by its key.
    pub fn find(&self, key: &PrincipalKey) -> Option<Arc<Principal>> {
        self.0.read().by_key.get(key).map(|known| known.principal.clone())
    }

    /// Returns true if the principal is still admitted. The admin listener admits operators, so they always are here.
    pub fn admits(&self, principal: &Principal) -> bool {
        principal.id == Principal::OPERATOR
            || self
                .0
                .read()
                .by_key
                .get(&principal.key)
                .is_some_and(|known| *known.principal == *principal && known.is_admitted())
    }

    /// Returns the ids of all principals that are admitted now, and of operators.
    pub fn ids(&self) -> HashSet<u32> {
        let table = self.0.read();
        let admitted = table.by_key.values().filter(|known| known.is_admitted());
        admitted.map(|known| known.principal.id).chain([Principal::OPERATOR]).collect()
    }

    /// Returns true if no two callers can be different principals.
    pub fn is_single(&self) -> bool {
        self.0.read().by_key.len() <= 1
    }

    /// Returns all principals.
    pub fn all(&self) -> Vec<Arc<Principal>> {
        self.0.read().by_key.values().map(|known| known.principal.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_one_principal_until_it_is_removed() {
        let table = PrincipalTable::default();
        let (first, other) = (table.intern("test", [1; 16], "a", None), table.intern("test", [2; 16], "b", None));
        assert!(Arc::ptr_eq(&first, &table.intern("test", [1; 16], "a", None)) && first != other);
        let renamed = table.intern("test", [1; 16], "c", None);
        assert!(table.admits(&renamed) && !table.admits(&first));
        table.retain("test", &HashSet::from([other.id]));
        assert!(!table.admits(&renamed) && table.find(&[1; 16]).is_none());
        assert_eq!(table.all(), std::slice::from_ref(&other));
        // The same key comes back: nothing of the removed principal is its own.
        assert!(![first.id, renamed.id, other.id].contains(&table.intern("test", [1; 16], "a", None).id));
    }

    #[test]
    fn a_principal_is_admitted_until_its_credentials_expire() {
        let table = PrincipalTable::default();
        let known = table.intern("test", [1; 16], "a", None);
        table.set_expiry(&known.key, Some(jiff::Timestamp::UNIX_EPOCH));
        assert!(!table.admits(&known) && !table.ids().contains(&known.id));
        table.set_expiry(&known.key, Some(jiff::Timestamp::MAX));
        assert!(table.admits(&known) && Arc::ptr_eq(&known, &table.intern("test", [1; 16], "a", None)));
    }

    #[test]
    fn callers_without_credentials_have_the_same_mark_in_every_process() {
        let (table, next) = (PrincipalTable::default(), PrincipalTable::default());
        next.intern("test", [1; 16], "a", None);
        assert_eq!(table.intern_anonymous().key, next.intern_anonymous().key);
        assert!(Arc::ptr_eq(&next.intern_anonymous(), &next.intern_anonymous()));
    }
}
