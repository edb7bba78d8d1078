//! Room for a new session in a full table.
//!
//! Owns the choice of the session that ends for it. Does not count (`open` compares with
//! `limits.sessions`). Invariant: a principal's own sessions go first, then those of the principal
//! with the most. Sleeping sessions go before awake ones.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::Sessions;
use crate::session::Session;
use moongate_jsonrpc::json::ByteString;
use moongate_model::PrincipalKey;

/// Sessions by their ids.
// A client can look up any text, but every id in the table is random, so nobody can choose keys
// that collide.
pub(super) type SessionTable = HashMap<ByteString, Arc<Session>, RandomState>;

impl Sessions {
    /// Evicts one session for another. Returns false if all are in use.
    pub(super) fn make_room(&self, table: &mut SessionTable, principal: &PrincipalKey) -> bool {
        if self.evict_longest_idle(table, principal) {
            return true;
        }
        self.principal_with_most(table).is_some_and(|most| self.evict_longest_idle(table, &most))
            // A session without a client is worth less than one that starts.
            || self.evict_persisted(None)
    }

    /// Finds the principal with the most sessions, sleeping ones included.
    fn principal_with_most(&self, table: &SessionTable) -> Option<PrincipalKey> {
        let mut counts = self.persisted.count_by_principal();
        for session in table.values() {
            *counts.entry(session.identity.principal.key).or_default() += 1;
        }
        counts
            .into_iter()
            .max_by_key(|(key, count)| (*count, *key))
            .map(|(key, _)| key)
    }

    /// Evicts the longest idle session of a principal. Returns false if all of them are in use.
    fn evict_longest_idle(&self, table: &mut SessionTable, principal: &PrincipalKey) -> bool {
        if self.evict_persisted(Some(principal)) {
            return true;
        }
        // A scan of the table is enough. It runs only when a session opens in a full table.
        let theirs = table
            .values()
            .filter(|session| session.identity.principal.key == *principal);
        let idle = theirs.filter(|session| session.lifetime.is_idle());
        let oldest = idle
            .min_by_key(|session| session.lifetime.used_ms())
            .map(|session| session.identity.id.clone());
        let oldest = oldest.and_then(|id| table.remove(&id));
        if let Some(session) = &oldest {
            session.end();
        }
        oldest.is_some()
    }
}
