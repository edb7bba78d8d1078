//! Room for a new session where the table is full.
//!
//! Owns the choice of the session that ends for it. Does not count (`limits.sessions` is looked at in `open`). Invariant: a
//! principal's own sessions give way first, then those of whoever has the most; sleeping ones before those that are awake.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::json::Text;
use crate::session::{Session, Sessions};

type Table = HashMap<Text, Arc<Session>>;

impl Sessions {
    /// Ends one session for another; false: all are in use.
    pub(super) fn make_room(&self, table: &mut Table, principal: u32) -> bool {
        if self.end_one_of(table, principal) {
            return true;
        }
        self.has_most(table).is_some_and(|most| self.end_one_of(table, most)) || self.forget_dormant(None)
    }

    /// The principal with the most sessions, sleeping ones included.
    fn has_most(&self, table: &Table) -> Option<u32> {
        let mut counts = self.dormant.counts();
        for session in table.values() {
            *counts.entry(session.principal.id).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(id, count)| (*count, *id)).map(|(id, _)| id)
    }

    /// Ends the longest unused session of a principal; false: all of them are in use.
    fn end_one_of(&self, table: &mut Table, principal: u32) -> bool {
        if self.forget_dormant(Some(principal)) {
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
