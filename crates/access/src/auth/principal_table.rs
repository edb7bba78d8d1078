//! Principals that methods admit, interned by their keys.
//!
//! Owns their ids and expiry, which method admitted each, and the limit on people. Knows who is
//! still admitted. Does not check credentials or decide who is admitted: methods do, such as
//! `api_keys.rs`. Invariant: a process never reuses an id, so state kept for one principal is never
//! found by another.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use moongate_model::{Principal, PrincipalKey, PrincipalSecret, RoleId};

use crate::auth::authenticator::AuthError;
use crate::auth::expiry::is_past;
use crate::policy::RoleSets;

/// Name in place of a method if no credentials are needed.
pub(super) const NO_METHOD: &str = "none";

/// Maximum number of people in the table, unless another one is set.
const PEOPLE_MAX: usize = 10_000;

/// Table of principals. Each authentication method removes those of its principals that it no
/// longer admits.
pub struct PrincipalTable {
    interned: RwLock<InternedPrincipals>,
    role_sets: Arc<RoleSets>,
    /// Maximum number of people.
    people_max: AtomicUsize,
    /// Notified when a person was removed.
    removed: Notify,
    /// Notified when a person's expiry changes.
    expiry_changed: Notify,
}

impl Default for PrincipalTable {
    fn default() -> Self {
        PrincipalTable::with_people_max(PEOPLE_MAX)
    }
}

#[derive(Clone, Default)]
struct InternedPrincipals {
    by_key: HashMap<PrincipalKey, InternedPrincipal>,
    /// People whom an earlier process admitted, or who made room for others, with the ends of their
    /// logins. They may have sessions that are stored or asleep.
    awaited: HashMap<PrincipalKey, jiff::Timestamp>,
    next_id: u32,
    /// True if a method admits people.
    admits_people: bool,
    /// Number of meetings so far.
    meetings: u64,
}

#[derive(Clone)]
struct InternedPrincipal {
    principal: Arc<Principal>,
    /// Method that admitted it.
    method: &'static str,
    /// Time from which its credentials are refused.
    expires: Option<jiff::Timestamp>,
    /// Number of a person's last meeting. `None` for principals in the config.
    met: Option<u64>,
}

/// Person whose login a method has checked.
pub struct Person<'a> {
    /// Identity, the same in every process.
    pub key: PrincipalKey,
    /// Name in logs. The first one is kept for as long as the person is in the table.
    pub name: &'a str,
    /// Secret that marks handles as the person's own.
    pub secret: PrincipalSecret,
    /// Roles that the person has now.
    pub role: RoleId,
    /// Time from which none of the person's logins is valid.
    pub expires: Option<jiff::Timestamp>,
}

impl InternedPrincipals {
    fn next_id(&mut self) -> u32 {
        let id = self.next_id;
        // Ids never wrap, and the last ones are reserved.
        self.next_id = id.saturating_add(1).min(Principal::LAST);
        id
    }

    fn people(&self) -> impl Iterator<Item = &InternedPrincipal> {
        self.by_key.values().filter(|known| known.met.is_some())
    }

    /// Makes room for a person, if there are this many. Returns false if all of them are in use.
    fn make_room(&mut self, people_max: usize) -> bool {
        // More than one goes after a reload with a lower limit.
        while self.people().count() >= people_max {
            // Sessions, calls and connections hold their principal, and one that only the table
            // holds has nothing open.
            let unused = self
                .people()
                .filter(|known| Arc::strong_count(&known.principal) == 1);
            let Some(key) = unused
                .min_by_key(|known| (known.is_admitted(), known.met))
                .map(|known| known.principal.key)
            else {
                return false;
            };
            if let Some(evicted) = self.by_key.remove(&key) {
                self.await_evicted(&evicted, people_max);
            }
        }
        true
    }

    /// Waits for a person who made room, so that their sleeping sessions stay until their login
    /// ends. No more people are waited for than the table has room for.
    fn await_evicted(&mut self, evicted: &InternedPrincipal, people_max: usize) {
        let Some(login_end) = evicted.expires.filter(|_| evicted.is_admitted()) else {
            return;
        };
        if self.awaited.len() >= people_max {
            self.awaited.retain(|_, end| !is_past(Some(*end)));
        }
        if self.awaited.len() < people_max {
            self.awaited.insert(evicted.principal.key, login_end);
        }
    }
}

impl InternedPrincipal {
    fn is_admitted(&self) -> bool {
        !is_past(self.expires)
    }
}

/// Returns a time in seconds since 1970. An earlier one has ended as well.
fn seconds(at: jiff::Timestamp) -> u64 {
    u64::try_from(at.as_second()).unwrap_or(0).max(1)
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
    /// Creates an empty table with room for this many people.
    pub fn with_people_max(people_max: usize) -> Self {
        PrincipalTable::of(RwLock::default(), Arc::default(), people_max)
    }

    fn of(
        interned: RwLock<InternedPrincipals>,
        role_sets: Arc<RoleSets>,
        people_max: usize,
    ) -> Self {
        let removed = Notify::new();
        let expiry_changed = Notify::new();
        PrincipalTable {
            interned,
            role_sets,
            people_max: AtomicUsize::new(people_max),
            removed,
            expiry_changed,
        }
    }

    /// Sets the maximum number of people. Those who are over it stay until somebody else comes.
    pub fn set_people_max(&self, people_max: usize) {
        self.people_max.store(people_max, Ordering::Relaxed);
    }

    /// Returns the sets of roles that people have.
    pub fn role_sets(&self) -> &Arc<RoleSets> {
        &self.role_sets
    }

    /// Returns a person's principal, and updates its roles and expiry. The person who has not come
    /// for longest makes room for a new one. Fails if everybody in the table has something open.
    pub fn meet(
        &self,
        method: &'static str,
        person: Person<'_>,
    ) -> Result<Arc<Principal>, AuthError> {
        let mut table = self.interned.write();
        table.meetings += 1;
        let met = Some(table.meetings);
        table.awaited.remove(&person.key);
        let login_end = person.expires.map(seconds);
        let Person {
            key,
            name,
            secret,
            role,
            expires,
        } = person;
        if let Some(known) = table
            .by_key
            .get_mut(&key)
            .filter(|known| known.method == method)
        {
            known.met = met;
            known.principal.set_login_end(login_end);
            if known.expires != expires {
                known.expires = expires;
                self.expiry_changed.notify_one();
            }
            known.principal.set_role(role);
            return Ok(known.principal.clone());
        }
        if !table.make_room(self.people_max.load(Ordering::Relaxed)) {
            return Err(AuthError::Unavailable("too many principals at once"));
        }
        let id = table.next_id();
        let principal = Arc::new(Principal::new(name, id, key).with_secret(Some(secret)));
        principal.set_role(role);
        principal.set_login_end(login_end);
        table.by_key.insert(
            key,
            InternedPrincipal {
                principal: principal.clone(),
                method,
                expires,
                met,
            },
        );
        if expires.is_some() {
            self.expiry_changed.notify_one();
        }
        Ok(principal)
    }

    /// Removes a person whose last login has ended, and ends everything of theirs that is still
    /// open.
    pub fn remove(&self, key: &PrincipalKey) {
        let mut table = self.interned.write();
        table.by_key.remove(key);
        table.awaited.remove(key);
        drop(table);
        self.removed.notify_one();
    }

    /// Waits for a person whom an earlier process admitted, until the end of the login that the
    /// person had there.
    pub fn await_person(&self, key: &PrincipalKey, login_end: jiff::Timestamp) {
        let mut table = self.interned.write();
        // Whoever has come again has newer credentials, and what has ended is not waited for.
        if table.by_key.contains_key(key) || is_past(Some(login_end)) {
            return;
        }
        let known = table.awaited.entry(*key).or_insert(login_end);
        *known = login_end.max(*known);
        drop(table);
        self.expiry_changed.notify_one();
    }

    /// Returns true if a person who is not in the table any more, or not yet, may still come again.
    pub fn awaits(&self, key: &PrincipalKey) -> bool {
        let login_end = self.interned.read().awaited.get(key).copied();
        login_end.is_some() && !is_past(login_end)
    }

    /// Waits until a person was removed. One task at a time may wait.
    pub fn removed(&self) -> Notified<'_> {
        self.removed.notified()
    }

    /// Waits until a person's expiry changes. Only one task may wait at a time.
    pub fn expiry_changed(&self) -> Notified<'_> {
        self.expiry_changed.notified()
    }

    /// Returns the next time after this one from which a principal is no longer admitted, or no
    /// longer waited for.
    pub fn expiry_after(&self, at: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let table = self.interned.read();
        let admitted = table.by_key.values().filter_map(|known| known.expires);
        admitted
            .chain(table.awaited.values().copied())
            .filter(|expires| *expires > at)
            .min()
    }

    /// Records that a method admits people, who are not in the table before they come.
    pub(super) fn set_people(&self, admits_people: bool) {
        self.interned.write().admits_people = admits_people;
    }

    /// Returns the principal of a key. Another name makes another principal, with this secret and
    /// its own role.
    pub fn intern(
        &self,
        method: &'static str,
        key: PrincipalKey,
        name: &str,
        secret: Option<PrincipalSecret>,
    ) -> Arc<Principal> {
        let mut table = self.interned.write();
        // One lock for look-up and insertion. Two reloads at once must not give one key two ids.
        if let Some(known) = table
            .by_key
            .get(&key)
            .filter(|known| known.principal.name == name)
        {
            return known.principal.clone();
        }
        let id = table.next_id();
        let principal = Arc::new(Principal::new(name, id, key).with_secret(secret));
        table.by_key.insert(
            key,
            InternedPrincipal {
                principal: principal.clone(),
                method,
                expires: None,
                met: None,
            },
        );
        principal
    }

    /// Admits callers without credentials. Returns their principal.
    pub fn intern_anonymous(&self) -> Arc<Principal> {
        let anonymous = Principal::anonymous();
        let mut table = self.interned.write();
        let interned = table
            .by_key
            .entry(anonymous.key)
            .or_insert_with(|| InternedPrincipal {
                principal: Arc::new(Principal::anonymous()),
                method: NO_METHOD,
                expires: None,
                met: None,
            });
        interned.principal.clone()
    }

    /// Sets the time from which a principal is no longer admitted. It keeps its id, since a reload
    /// may move the time.
    pub fn set_expiry(&self, key: &PrincipalKey, expires: Option<jiff::Timestamp>) {
        if let Some(known) = self.interned.write().by_key.get_mut(key) {
            known.expires = expires;
        }
    }

    /// Removes the principals of a method that have other ids than these.
    pub fn retain(&self, method: &str, ids: &HashSet<u32>) {
        // Only its own, because a reload of the keys must not end the sessions of another method.
        self.interned
            .write()
            .by_key
            .retain(|_, known| known.method != method || ids.contains(&known.principal.id));
    }

    /// Removes the principals of all methods but these.
    pub fn retain_methods(&self, methods: &[&str]) {
        self.interned
            .write()
            .by_key
            .retain(|_, known| methods.contains(&known.method));
    }

    /// Copies the table, to try a change of the config.
    pub fn fork(&self) -> Self {
        let interned = RwLock::new(self.interned.read().clone());
        let people_max = self.people_max.load(Ordering::Relaxed);
        PrincipalTable::of(interned, self.role_sets.clone(), people_max)
    }

    /// Lists the principals of the config in this table and in a later one. Credentials with a new
    /// value and their old name have one entry. Callers without credentials come last.
    pub fn changes_to(&self, later: &PrincipalTable) -> Vec<PrincipalChange> {
        let mut changes = BTreeMap::<_, PrincipalChange>::new();
        for (table, is_later) in [(self, false), (later, true)] {
            let interned = table.interned.read();
            let configured = interned.by_key.values().filter(|known| known.met.is_none());
            for InternedPrincipal {
                principal, method, ..
            } in configured
            {
                let name = (principal.id != Principal::ANONYMOUS).then(|| principal.name.clone());
                let change = changes.entry((name.is_none(), name, *method)).or_default();
                let side = if is_later {
                    &mut change.after
                } else {
                    &mut change.before
                };
                *side = Some(principal.clone());
            }
        }
        changes
            .into_iter()
            .map(|((_, name, _), change)| PrincipalChange { name, ..change })
            .collect()
    }

    /// Returns the time from which the principal of a key is no longer admitted. `None`: it is not
    /// in the table, or does not expire.
    pub fn expiry_of(&self, key: &PrincipalKey) -> Option<jiff::Timestamp> {
        self.interned.read().by_key.get(key)?.expires
    }

    /// Finds a principal by its key.
    pub fn find(&self, key: &PrincipalKey) -> Option<Arc<Principal>> {
        self.interned
            .read()
            .by_key
            .get(key)
            .map(|known| known.principal.clone())
    }

    /// Returns true if the principal is still admitted. The admin listener admits operators, so
    /// they always count here.
    pub fn admits(&self, principal: &Principal) -> bool {
        principal.id == Principal::OPERATOR
            || self
                .interned
                .read()
                .by_key
                .get(&principal.key)
                .is_some_and(|known| *known.principal == *principal && known.is_admitted())
    }

    /// Returns the ids of all principals that are admitted now, and of operators.
    pub fn ids(&self) -> HashSet<u32> {
        let table = self.interned.read();
        let admitted = table.by_key.values().filter(|known| known.is_admitted());
        admitted
            .map(|known| known.principal.id)
            .chain([Principal::OPERATOR])
            .collect()
    }

    /// Returns true if all callers are the same principal.
    pub fn is_single(&self) -> bool {
        let table = self.interned.read();
        table.by_key.len() <= 1 && !table.admits_people
    }

    /// Returns the number of principals.
    pub fn count(&self) -> usize {
        self.interned.read().by_key.len()
    }

    /// Returns all principals.
    pub fn all(&self) -> Vec<Arc<Principal>> {
        self.interned
            .read()
            .by_key
            .values()
            .map(|known| known.principal.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests;
