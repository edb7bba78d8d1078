//! Room for a new session where the table is full.
//!
//! Owns the choice of the session that ends for it. Does not count (`limits.sessions` is looked at in `open`). Invariant: a
//! principal's own sessions give way first, then those of whoever has the most; sleeping ones before those that are awake.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::json::ByteString;
use crate::session::{Session, Sessions};

type SessionTable = HashMap<ByteString, Arc<Session>>;

impl Sessions {
    /// Ends one session for another; false: all are in use.
    pub(super) fn make_room(&self, table: &mut SessionTable, principal: u32) -> bool {
        if self.evict_longest_idle(table, principal) {
            return true;
        }
        self.principal_with_most(table).is_some_and(|most| self.evict_longest_idle(table, most))
            || self.evict_persisted(None)
    }

    /// The principal with the most sessions, sleeping ones included.
    fn principal_with_most(&self, table: &SessionTable) -> Option<u32> {
        let mut counts = self.persisted.count_by_principal();
        for session in table.values() {
            *counts.entry(session.principal.id).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(id, count)| (*count, *id)).map(|(id, _)| id)
    }

    /// Ends the longest unused session of a principal; false: all of them are in use.
    fn evict_longest_idle(&self, table: &mut SessionTable, principal: u32) -> bool {
        if self.evict_persisted(Some(principal)) {
            return true;
        }
        let idle = table.values().filter(|session| session.principal.id == principal && session.is_idle());
        let oldest =
            idle.min_by_key(|session| session.used_ms.load(Ordering::Relaxed)).map(|session| session.id.clone());
        let oldest = oldest.and_then(|id| table.remove(&id));
        if let Some(session) = &oldest {
            session.end();
        }
        oldest.is_some()
    }
}
