//! Looks at the table of connections beside the main one, and their common end.
//!
//! Opens none and waits for none (`lease`). Invariant: whatever is taken out of the table here is closed, or stays open as
//! the main connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{DedicatedConnection, DedicatedPool, close};
use crate::json::ByteString;
use crate::model::Caller;
use crate::revision::Era;
use crate::upstream::backoff::{HEALTHY, ReconnectBackoff};
use crate::upstream::connect_budget::ConnectBudget;
use crate::upstream::dial::UpstreamConnection;
use crate::upstream::{SharingMode, isolation};

impl DedicatedPool {
    /// The attempt at this connection was a mistake: another may be made at once.
    pub(in crate::upstream) fn reset_backoff(&self, key: &ByteString) {
        self.lock().backoffs.reset(key);
    }

    /// Whether the server answered the last attempt at this connection, and refused it.
    pub(in crate::upstream) fn was_refused(&self, key: &ByteString) -> bool {
        self.lock().refused.as_ref() == Some(key)
    }

    /// Lets go of a connection that stays open; false: it is not there.
    pub(in crate::upstream) fn release(&self, key: &ByteString, active: &Arc<UpstreamConnection>) -> bool {
        let mut table = self.lock();
        let is_it =
            |lease: &&mut Arc<DedicatedConnection>| lease.connection().is_some_and(|there| Arc::ptr_eq(there, active));
        let Some(lease) = table.connections.get_mut(key).filter(is_it).cloned() else { return false };
        table.connections.remove(key);
        lease.released.cancel();
        true
    }

    /// The open connections that clients of one era share.
    pub(in crate::upstream) fn shared_by_era(&self) -> Vec<Arc<UpstreamConnection>> {
        let table = self.lock();
        let keys = [Era::Modern, Era::Legacy].map(isolation::era_key);
        keys.iter().filter_map(|key| table.connections.get(key)?.connection().cloned()).collect()
    }

    /// The caller's connection, if there is one.
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

    /// Whether the caller's session left the shared connection for one of its own.
    pub(in crate::upstream) fn has_dedicated(&self, caller: &Caller) -> bool {
        caller
            .session
            .as_ref()
            .is_some_and(|session| self.lock().connections.contains_key(&isolation::session_key(session)))
    }

    /// The attempts of all connections of the server.
    pub(in crate::upstream) fn attempts(&self) -> ConnectBudget {
        self.lock().attempts.clone()
    }

    /// Whether a session has one of its own.
    pub(in crate::upstream) fn has_session_connection(&self, session: &ByteString) -> bool {
        let table = self.lock();
        table.connections.contains_key(session) || table.connections.contains_key(&isolation::session_key(session))
    }

    /// How many there are.
    pub(in crate::upstream) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// Closes those of principals that are gone; those of sessions go with their sessions.
    pub(in crate::upstream) async fn revoke_principals(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        let theirs = |key: &ByteString| {
            let id = key.strip_prefix("principal ").and_then(|rest| rest.split(',').next()?.parse().ok());
            id.is_some_and(gone)
        };
        let all: Vec<Arc<DedicatedConnection>> =
            self.lock().connections.extract_if(|key, _| theirs(key)).map(|(_, lease)| lease).collect();
        for lease in &all {
            // Ends an attempt as well.
            lease.evicted.cancel();
        }
        close(&all).await;
    }

    /// From now on their servers hear that their sessions end, even where another run could have gone on with them.
    pub(in crate::upstream) fn discard_persisted(&self) {
        for active in self.lock().connections.values().filter_map(|lease| lease.connection()) {
            active.is_persisted.store(false, Ordering::Relaxed);
        }
    }

    /// Takes out a connection that ended, and counts its end where it was `lost`: after how long with which pace, and for
    /// how long calls wait for another.
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
        // Not where it was closed because it was no longer wanted.
        if let (Some(reason), false) = (lost, lease.evicted.is_cancelled()) {
            table.backoffs.on_loss(key, pace, lived, reason, patience);
        }
    }

    /// Closes all.
    pub(in crate::upstream) async fn close_all(&self) {
        let all: Vec<Arc<DedicatedConnection>> = self.lock().connections.drain().map(|(_, lease)| lease).collect();
        for active in all.iter().filter_map(|lease| lease.connection()) {
            if !active.is_persisted.load(Ordering::Relaxed) {
                continue;
            }
            active.server.detach();
        }
        close(&all).await;
    }
}
