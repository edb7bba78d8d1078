//! Table of dedicated connections: one entry for each, from the start of its dial. Owns the limit,
//! the use counts and the closing of all. Does not dial (`lifecycle.rs`). Invariant: a removed
//! connection is closed, unless it becomes the shared one.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::UpstreamConnection;
use crate::connection::dial::ConnectIdentity;
use crate::connection::idle_tracker::IdleTracker;
use crate::connection::reconnect_backoff::{HEALTHY, ReconnectBackoff};
use crate::connection::roots_departure::LOOK_PAUSE;
use crate::connection_owner::ConnectionOwner;
use crate::pool::connect_budget::{BudgetDenied, ConnectBudget, CountedAttempt};
use crate::pool::dedicated::backoff_table::{BackoffTable, ConnectCooldown};
use crate::pool::isolation::{self, ConnectionLifetime};
use crate::supervision_options::BackoffSettings;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, Error, Notification, SharingMode, TaskState};
use moongate_protocol::Era;
use moongate_telemetry::Metrics;

/// Request for a dedicated connection.
pub(crate) struct DedicatedRequest {
    /// Key in the table.
    pub(crate) key: ByteString,
    /// Parameters of the handshake.
    pub(crate) connect_identity: ConnectIdentity,
    /// Lifetime of the connection.
    pub(crate) lifetime: ConnectionLifetime,
    /// Clients that the connection belongs to.
    pub(crate) owner: ConnectionOwner,
}

/// Dedicated connections of one server.
#[derive(Clone, Default)]
pub(crate) struct DedicatedPool(Arc<Mutex<DedicatedTable>>);

/// Entries of the pool, and the backoff of connections that ended.
#[derive(Default)]
pub(super) struct DedicatedTable {
    connections: HashMap<ByteString, Arc<DedicatedEntry>>,
    /// Backoff of connections that could not be opened, or broke.
    pub(super) backoffs: BackoffTable,
    /// Key of the connection whose last dial the server refused by an answer.
    pub(super) refused: Option<ByteString>,
    /// Attempts of all connections of the server.
    connect_budget: ConnectBudget,
}

/// Entry of one connection, from the start of its dial.
pub(super) struct DedicatedEntry {
    /// Result of the dial.
    pub(super) opened: OnceLock<Result<Arc<UpstreamConnection>, Error>>,
    /// Cancelled once the result is known.
    pub(super) settled: CancellationToken,
    /// Calls that have it, or wait for it. Changes from 0 only under the lock of the table.
    use_count: AtomicUsize,
    /// Time of the last call, and the tasks that run on the connection.
    activity: IdleTracker,
    /// Attempt that counts until a call on the connection was answered, or the connection lasts.
    attempt: Mutex<Option<CountedAttempt>>,
    /// True while a notification of its client waits for the dial.
    notifies: AtomicBool,
    /// Cancelled when another client gets the place, or the principal was revoked.
    pub(super) evicted: CancellationToken,
    /// Cancelled when the connection becomes the shared one.
    pub(super) released: CancellationToken,
}

/// Guard of one use. The connection is in use until it is dropped.
pub(crate) struct UseGuard(pub(super) Arc<DedicatedEntry>);

/// Result of a lookup in the table.
pub(super) enum DedicatedLookup {
    /// A connection, or a pending dial.
    Existing(UseGuard),
    /// A new entry, for which the caller must start the dial.
    New(UseGuard, ReconnectBackoff),
    /// Too many dials are pending. The time says when to look again at the latest.
    Busy(Instant),
    /// The backoff forbids a dial for now.
    CoolingDown(ConnectCooldown),
    /// The limit is reached and every connection is in use.
    Full,
}

impl DedicatedPool {
    /// Returns the connection of this key, if it is open.
    pub(super) fn try_get(&self, key: &ByteString) -> Option<(Arc<UpstreamConnection>, UseGuard)> {
        let table = self.lock();
        let entry = table.connections.get(key)?;
        let connection = entry.connection()?.clone();
        Some((connection, UseGuard::begin(entry)))
    }

    /// Takes the connection of this key into use. At the limit, the one that was unused longest is
    /// evicted.
    pub(super) fn look_up(
        &self,
        request: &DedicatedRequest,
        max: usize,
        backoff: BackoffSettings,
    ) -> DedicatedLookup {
        let key = &request.key;
        let mut table = self.lock();
        if let Some(entry) = table.connections.get(key) {
            return DedicatedLookup::Existing(UseGuard::begin(entry));
        }
        // Chosen before the budget is asked, so that a full table costs no attempt.
        let oldest = if table.connections.len() >= max {
            let unused = table
                .connections
                .iter()
                .filter(|(_, entry)| entry.is_unused());
            let oldest = unused
                .min_by_key(|(_, entry)| entry.activity.last_active())
                .map(|(key, _)| key.clone());
            if oldest.is_none() {
                return DedicatedLookup::Full;
            }
            oldest
        } else {
            None
        };
        // The budget concerns the whole server, the backoff below only this key.
        let attempt = match table.connect_budget.try_begin(Instant::now()) {
            Ok(attempt) => attempt,
            Err(BudgetDenied::Pending(until)) => return DedicatedLookup::Busy(until),
            Err(BudgetDenied::Failed(until)) => {
                return DedicatedLookup::CoolingDown(table.backoffs.over_budget(until));
            }
        };
        let reconnect_backoff = match table.backoffs.try_begin(key, backoff, Instant::now()) {
            Ok(reconnect_backoff) => reconnect_backoff,
            Err(cooldown) => return DedicatedLookup::CoolingDown(cooldown),
        };
        // Evicted only now, when nothing can refuse the new connection any more.
        if let Some(entry) = oldest.and_then(|oldest| table.connections.remove(&oldest)) {
            entry.evicted.cancel();
        }
        let entry = Arc::new(DedicatedEntry::new(attempt));
        let use_guard = UseGuard::begin(&entry);
        table.connections.insert(key.clone(), entry);
        DedicatedLookup::New(use_guard, reconnect_backoff)
    }

    /// Waits until a connection was unused for this time, and takes it out of the table.
    /// `is_needed`: true while something else needs it.
    pub(super) async fn evict_when_unused(
        &self,
        key: &ByteString,
        entry: &Arc<DedicatedEntry>,
        time: Duration,
        is_needed: impl Fn() -> bool,
    ) {
        loop {
            entry
                .activity
                .wait_idle_for(time, || {
                    entry.use_count.load(Ordering::Acquire) > 0 || is_needed()
                })
                .await;
            let mut table = self.lock();
            // A caller may have checked it out a moment ago.
            if entry.use_count.load(Ordering::Acquire) == 0 {
                table.remove(key, entry);
                return;
            }
        }
    }

    /// Takes a connection out of the table, and waits for the calls that have it.
    pub(super) async fn remove_and_wait(&self, key: &ByteString, entry: &Arc<DedicatedEntry>) {
        self.lock().remove(key, entry);
        while entry.use_count.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    pub(super) fn publish_count(&self, server: &str, metrics: &Metrics) {
        let connections = i64::try_from(self.len()).unwrap_or(i64::MAX);
        metrics.servers.connections.series(server).set(connections);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DedicatedTable> {
        self.0.lock()
    }

    /// Resets the backoff of a key after an attempt that was a mistake. Another may start at once.
    pub(crate) fn reset_backoff(&self, key: &ByteString) {
        self.lock().backoffs.reset(key);
    }

    /// Returns true if the server refused the last attempt at this connection by an answer.
    pub(crate) fn was_refused(&self, key: &ByteString) -> bool {
        self.lock().refused.as_ref() == Some(key)
    }

    /// Removes a connection that stays open. Returns false if it is not in the table.
    pub(crate) fn release(&self, key: &ByteString, connection: &Arc<UpstreamConnection>) -> bool {
        let mut table = self.lock();
        let found = table.connections.get(key);
        let Some(entry) = found
            .filter(|entry| entry.has_connection(connection))
            .cloned()
        else {
            return false;
        };
        table.connections.remove(key);
        entry.released.cancel();
        true
    }

    /// Returns the open connections that clients of one era share.
    pub(crate) fn shared_by_era(&self) -> Vec<Arc<UpstreamConnection>> {
        let table = self.lock();
        let keys = [Era::Modern, Era::Legacy].map(isolation::era_key);
        keys.iter()
            .filter_map(|key| table.connections.get(key)?.connection().cloned())
            .collect()
    }

    /// Returns the entry of the caller's connection, if there is one.
    fn find_entry(
        &self,
        share: SharingMode,
        caller: &Caller,
        other_era: Option<Era>,
    ) -> Option<Arc<DedicatedEntry>> {
        let key = isolation::dedicated_key(share, caller, other_era)
            .or_else(|| caller.session.as_ref().map(isolation::session_key))?;
        self.lock().connections.get(&key).cloned()
    }

    /// Returns the caller's connection, if it is open.
    pub(crate) fn find(
        &self,
        share: SharingMode,
        caller: &Caller,
        other_era: Option<Era>,
    ) -> Option<Arc<UpstreamConnection>> {
        self.find_entry(share, caller, other_era)?
            .connection()
            .cloned()
    }

    /// Sends a notification of the caller on its connection, once that is open.
    pub(crate) fn notify(
        &self,
        (share, other_era): (SharingMode, Option<Era>),
        caller: &Arc<Caller>,
        notification: &Notification,
    ) {
        let Some(entry) = self.find_entry(share, caller, other_era) else {
            return;
        };
        if let Some(connection) = entry.connection() {
            return connection.server.notify(caller, notification.clone());
        }
        // One that waits says what all others would say.
        if entry.notifies.swap(true, Ordering::AcqRel) {
            return;
        }
        let caller = caller.clone();
        let notification = notification.clone();
        tokio::spawn(async move {
            entry.settled.cancelled().await;
            entry.notifies.store(false, Ordering::Release);
            if let Some(connection) = entry.connection() {
                connection.server.notify(&caller, notification);
            }
        });
    }

    /// Returns true if the caller's session left the shared connection for a dedicated one.
    pub(crate) fn has_dedicated(&self, caller: &Caller) -> bool {
        caller.session.as_ref().is_some_and(|session| {
            self.lock()
                .connections
                .contains_key(&isolation::session_key(session))
        })
    }

    /// Returns true if a connection that belongs to the caller alone, or to its principal, is open.
    pub(crate) fn has_open(&self, share: SharingMode, caller: &Caller) -> bool {
        self.find(share, caller, None).is_some()
    }

    /// Returns the budget of attempts of all connections of the server.
    pub(crate) fn connect_budget(&self) -> ConnectBudget {
        self.lock().connect_budget.clone()
    }

    /// Returns true if a session has a dedicated connection.
    pub(crate) fn has_session_connection(&self, session: &ByteString) -> bool {
        let table = self.lock();
        table.connections.contains_key(session)
            || table
                .connections
                .contains_key(&isolation::session_key(session))
    }

    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// Closes the connections of revoked principals. Those of sessions close with their sessions.
    pub(crate) async fn revoke_principals(&self, revoked: &(dyn Fn(u32) -> bool + Sync)) {
        let all: Vec<Arc<DedicatedEntry>> = self
            .lock()
            .connections
            .extract_if(|key, _| isolation::principal_of_key(key).is_some_and(revoked))
            .map(|(_, entry)| entry)
            .collect();
        for entry in &all {
            // Cancels a pending dial as well.
            entry.evicted.cancel();
        }
        close(&all).await;
    }

    /// Discards persisted sessions: their servers learn of the end, although the next process could
    /// have resumed them.
    pub(crate) fn discard_persisted(&self) {
        for connection in self
            .lock()
            .connections
            .values()
            .filter_map(|entry| entry.connection())
        {
            connection.is_persisted.store(false, Ordering::Relaxed);
        }
    }

    /// Removes a connection that ended. A loss counts, with its uptime, its backoff and the
    /// patience of waiting calls.
    pub(super) fn remove_ended(
        &self,
        key: &ByteString,
        entry: &Arc<DedicatedEntry>,
        lost: Option<&str>,
        (reconnect_backoff, uptime, grace): (ReconnectBackoff, Duration, Duration),
    ) {
        let mut table = self.lock();
        table.remove(key, entry);
        match (entry.take_attempt(), lost) {
            (Some(attempt), Some(_)) => attempt.fail(),
            (None, Some(_)) if uptime < HEALTHY => table.connect_budget.record_loss(Instant::now()),
            _ => {}
        }
        // A connection that was closed on purpose gets no backoff.
        if let (Some(reason), false) = (lost, entry.evicted.is_cancelled()) {
            table
                .backoffs
                .on_loss(key, reconnect_backoff, uptime, reason, grace);
        }
    }

    /// Closes all connections.
    pub(crate) async fn close_all(&self) {
        let all: Vec<Arc<DedicatedEntry>> = self
            .lock()
            .connections
            .drain()
            .map(|(_, entry)| entry)
            .collect();
        // Detached before the close, which would end a resumable session at the server.
        for connection in all.iter().filter_map(|entry| entry.connection()) {
            if !connection.is_persisted.load(Ordering::Relaxed) {
                continue;
            }
            connection.server.detach();
        }
        close(&all).await;
    }
}

impl DedicatedTable {
    /// Removes a connection, unless another one took its place meanwhile.
    pub(super) fn remove(&mut self, key: &ByteString, entry: &Arc<DedicatedEntry>) {
        if self
            .connections
            .get(key)
            .is_some_and(|current| Arc::ptr_eq(current, entry))
        {
            self.connections.remove(key);
        }
    }
}

impl DedicatedEntry {
    fn new(attempt: CountedAttempt) -> Self {
        DedicatedEntry {
            opened: OnceLock::new(),
            settled: CancellationToken::new(),
            use_count: AtomicUsize::new(0),
            activity: IdleTracker::default(),
            attempt: Mutex::new(Some(attempt)),
            notifies: AtomicBool::new(false),
            evicted: CancellationToken::new(),
            released: CancellationToken::new(),
        }
    }

    /// Returns true if no call and no task uses the connection, so that it may be evicted.
    fn is_unused(&self) -> bool {
        self.use_count.load(Ordering::Acquire) == 0 && !self.has_tasks()
    }

    /// Returns true if a task runs on the connection, as far as is known.
    pub(super) fn has_tasks(&self) -> bool {
        self.activity.has_tasks()
    }

    /// Takes the attempt that opened the connection, if it still counts.
    pub(super) fn take_attempt(&self) -> Option<CountedAttempt> {
        self.attempt.lock().take()
    }

    /// Returns true if this is the entry of an open connection.
    fn has_connection(&self, connection: &Arc<UpstreamConnection>) -> bool {
        self.connection()
            .is_some_and(|open| Arc::ptr_eq(open, connection))
    }

    /// Returns the connection, while it is open.
    pub(super) fn connection(&self) -> Option<&Arc<UpstreamConnection>> {
        self.opened.get()?.as_ref().ok()
    }
}

impl UseGuard {
    /// Takes the connection into use. Call it under the lock of the table.
    fn begin(entry: &Arc<DedicatedEntry>) -> Self {
        entry.use_count.fetch_add(1, Ordering::AcqRel);
        UseGuard(entry.clone())
    }

    /// Records what a call on the connection showed of a task.
    pub(crate) fn track_task(&self, task: &TaskState) {
        self.0.activity.track_task(task);
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        // Marked active before the count falls, so that an eviction sees the time of this use.
        self.0.activity.mark_active();
        // An answered call proves the connection.
        if self
            .0
            .connection()
            .is_some_and(|connection| connection.calls.was_answered())
            && let Some(attempt) = self.0.take_attempt()
        {
            attempt.succeed();
        }
        self.0.use_count.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn close(entries: &[Arc<DedicatedEntry>]) {
    let open = entries.iter().filter_map(|entry| entry.connection());
    futures_util::future::join_all(open.map(|connection| connection.link.close(Vec::new()))).await;
}
