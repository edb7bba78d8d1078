//! Queries of the table of dedicated connections, and their common close. Owns no state of its own. Does not dial or
//! wait for a dial (`dedicated.rs`). Invariant: a connection that is removed here is closed, unless it becomes the
//! shared one or has no session to end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{DedicatedConnection, DedicatedPool, close};
use crate::json::ByteString;
use crate::model::Caller;
use crate::revision::Era;
use crate::upstream::SharingMode;
use crate::upstream::pool::connect_budget::ConnectBudget;
use crate::upstream::pool::dial::UpstreamConnection;
use crate::upstream::pool::isolation;
use crate::upstream::supervisor::backoff::{HEALTHY, ReconnectBackoff};

impl DedicatedPool {
    /// Resets the backoff of a key after an attempt that was a mistake. Another may begin at once.
    pub(in crate::upstream) fn reset_backoff(&self, key: &ByteString) {
        self.lock().backoffs.reset(key);
    }

    /// Returns true if the server refused the last attempt at this connection by an answer.
    pub(in crate::upstream) fn was_refused(&self, key: &ByteString) -> bool {
        self.lock().refused.as_ref() == Some(key)
    }

    /// Removes a connection that stays open. Returns false if it is not in the table.
    pub(in crate::upstream) fn release(&self, key: &ByteString, active: &Arc<UpstreamConnection>) -> bool {
        let mut table = self.lock();
        let is_it =
            |lease: &&mut Arc<DedicatedConnection>| lease.connection().is_some_and(|there| Arc::ptr_eq(there, active));
        let Some(lease) = table.connections.get_mut(key).filter(is_it).cloned() else { return false };
        table.connections.remove(key);
        lease.released.cancel();
        true
    }

    /// Returns the open connections that clients of one era share.
    pub(in crate::upstream) fn shared_by_era(&self) -> Vec<Arc<UpstreamConnection>> {
        let table = self.lock();
        let keys = [Era::Modern, Era::Legacy].map(isolation::era_key);
        keys.iter().filter_map(|key| table.connections.get(key)?.connection().cloned()).collect()
    }

    /// Returns the caller's connection, if there is one.
    pub(in crate::upstream) fn find(
        &self,
        share: SharingMode,
        caller: &Caller,
        other: Option<Era>,
    ) -> Option<Arc<UpstreamConnection>> {
        let key =
            isolation::key(share, caller, other).or_else(|| caller.session.as_ref().map(isolation::session_key))?;
        self.lock().connections.get(&key)?.connection().cloned()
    }

    /// Returns true if the caller's session left the shared connection for a dedicated one.
    pub(in crate::upstream) fn has_dedicated(&self, caller: &Caller) -> bool {
        caller
            .session
            .as_ref()
            .is_some_and(|session| self.lock().connections.contains_key(&isolation::session_key(session)))
    }

    /// Returns the budget of attempts of all connections of the server.
    pub(in crate::upstream) fn attempts(&self) -> ConnectBudget {
        self.lock().attempts.clone()
    }

    /// Returns true if a session has a dedicated connection.
    pub(in crate::upstream) fn has_session_connection(&self, session: &ByteString) -> bool {
        let table = self.lock();
        table.connections.contains_key(session) || table.connections.contains_key(&isolation::session_key(session))
    }

    /// Returns the number of connections.
    pub(in crate::upstream) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// Closes the connections of revoked principals. Those of sessions close with their sessions.
    pub(in crate::upstream) async fn revoke_principals(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        // The format is that of `isolation::key` and `isolation::principal_key`.
        let theirs = |key: &ByteString| {
            let id = key.strip_prefix("principal ").and_then(|rest| rest.split(',').next()?.parse().ok());
            id.is_some_and(gone)
        };
        let all: Vec<Arc<DedicatedConnection>> =
            self.lock().connections.extract_if(|key, _| theirs(key)).map(|(_, lease)| lease).collect();
        for lease in &all {
            // Cancels a pending dial as well.
            lease.evicted.cancel();
        }
        close(&all).await;
    }

    /// Discards persisted sessions: their servers learn of the end, although the next process could have resumed
    /// them.
    pub(in crate::upstream) fn discard_persisted(&self) {
        for active in self.lock().connections.values().filter_map(|lease| lease.connection()) {
            active.is_persisted.store(false, Ordering::Relaxed);
        }
    }

    /// Removes a connection that ended. A loss counts, with its uptime, its backoff and the patience of waiting
    /// calls.
    pub(super) fn remove_ended(
        &self,
        key: &ByteString,
        lease: &Arc<DedicatedConnection>,
        lost: Option<&str>,
        (pace, lived, patience): (ReconnectBackoff, Duration, Duration),
    ) {
        let mut table = self.lock();
        table.remove(key, lease);
        match (lease.take_attempt(), lost) {
            (Some(attempt), Some(_)) => attempt.fail(),
            (None, Some(_)) if lived < HEALTHY => table.attempts.record_loss(Instant::now()),
            _ => {}
        }
        // A connection that was closed on purpose gets no backoff.
        if let (Some(reason), false) = (lost, lease.evicted.is_cancelled()) {
            table.backoffs.on_loss(key, pace, lived, reason, patience);
        }
    }

    /// Closes all connections.
    pub(in crate::upstream) async fn close_all(&self) {
        let all: Vec<Arc<DedicatedConnection>> = self.lock().connections.drain().map(|(_, lease)| lease).collect();
        // Detached before the close, which would end a resumable session at the server.
        for active in all.iter().filter_map(|lease| lease.connection()) {
            if !active.is_persisted.load(Ordering::Relaxed) {
                continue;
            }
            active.server.detach();
        }
        close(&all).await;
    }
}
