//! Looks at the table of connections beside the main one, and their common end.
//!
//! Opens none and waits for none (`lease`). Invariant: whatever is taken out of the table here is closed, or stays open as
//! the main connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{Lease, Leases, close};
use crate::json::Text;
use crate::model::Caller;
use crate::revision::Era;
use crate::upstream::attempts::Attempts;
use crate::upstream::connect::Active;
use crate::upstream::pace::{HEALTHY, Pace};
use crate::upstream::{Share, sharing};

impl Leases {
    /// The attempt at this connection was a mistake: another may be made at once.
    pub(in crate::upstream) fn forgive(&self, key: &Text) {
        self.lock().paces.forgive(key);
    }

    /// Whether the server answered the last attempt at this connection, and refused it.
    pub(in crate::upstream) fn was_refused(&self, key: &Text) -> bool {
        self.lock().refused.as_ref() == Some(key)
    }

    /// Lets go of a connection that stays open; false: it is not there.
    pub(in crate::upstream) fn release(&self, key: &Text, active: &Arc<Active>) -> bool {
        let mut table = self.lock();
        let is_it = |lease: &&mut Arc<Lease>| lease.active().is_some_and(|there| Arc::ptr_eq(there, active));
        let Some(lease) = table.leases.get_mut(key).filter(is_it).cloned() else { return false };
        table.leases.remove(key);
        lease.released.cancel();
        true
    }

    /// The open connections that clients of one era share.
    pub(in crate::upstream) fn of_eras(&self) -> Vec<Arc<Active>> {
        let table = self.lock();
        let keys = [Era::Modern, Era::Legacy].map(sharing::era_key);
        keys.iter().filter_map(|key| table.leases.get(key)?.active().cloned()).collect()
    }

    /// The caller's connection, if there is one.
    pub(in crate::upstream) fn find(&self, share: Share, caller: &Caller, other: Option<Era>) -> Option<Arc<Active>> {
        let key = sharing::key(share, caller, other).or_else(|| caller.session.as_ref().map(sharing::session_key))?;
        self.lock().leases.get(&key)?.active().cloned()
    }

    /// Whether the caller's session left the shared connection for one of its own.
    pub(in crate::upstream) fn has_own(&self, caller: &Caller) -> bool {
        caller.session.as_ref().is_some_and(|session| self.lock().leases.contains_key(&sharing::session_key(session)))
    }

    /// The attempts of all connections of the server.
    pub(in crate::upstream) fn attempts(&self) -> Attempts {
        self.lock().attempts.clone()
    }

    /// Whether a session has one of its own.
    pub(in crate::upstream) fn serves(&self, session: &Text) -> bool {
        let table = self.lock();
        table.leases.contains_key(session) || table.leases.contains_key(&sharing::session_key(session))
    }

    /// How many there are.
    pub(in crate::upstream) fn len(&self) -> usize {
        self.lock().leases.len()
    }

    /// Closes those of principals that are gone; those of sessions go with their sessions.
    pub(in crate::upstream) async fn close_of(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        let theirs = |key: &Text| {
            let id = key.strip_prefix("principal ").and_then(|rest| rest.split(',').next()?.parse().ok());
            id.is_some_and(gone)
        };
        let all: Vec<Arc<Lease>> =
            self.lock().leases.extract_if(|key, _| theirs(key)).map(|(_, lease)| lease).collect();
        for lease in &all {
            // Ends an attempt as well.
            lease.evicted.cancel();
        }
        close(&all).await;
    }

    /// From now on their servers hear that their sessions end, even where another run could have gone on with them.
    pub(in crate::upstream) fn keep_none(&self) {
        for active in self.lock().leases.values().filter_map(|lease| lease.active()) {
            active.is_kept.store(false, Ordering::Relaxed);
        }
    }

    /// Takes out a connection that ended, and counts its end where it was `lost`: after how long with which pace, and for
    /// how long calls wait for another.
    pub(super) fn take_out(
        &self,
        key: &Text,
        lease: &Arc<Lease>,
        lost: Option<&str>,
        (pace, lived, patience): (Pace, Duration, Duration),
    ) {
        let mut table = self.lock();
        table.remove(key, lease);
        match (lease.take_attempt(), lost) {
            (Some(attempt), Some(_)) => attempt.fail(),
            (None, Some(_)) if lived < HEALTHY => table.attempts.count_loss(Instant::now()),
            _ => {}
        }
        // Not where it was closed because it was no longer wanted.
        if let (Some(reason), false) = (lost, lease.evicted.is_cancelled()) {
            table.paces.lost(key, pace, lived, reason, patience);
        }
    }

    /// Closes all.
    pub(in crate::upstream) async fn close_all(&self) {
        let all: Vec<Arc<Lease>> = self.lock().leases.drain().map(|(_, lease)| lease).collect();
        for active in all.iter().filter_map(|lease| lease.active()) {
            if !active.is_kept.load(Ordering::Relaxed) {
                continue;
            }
            active.server.let_go();
        }
        close(&all).await;
    }
}
