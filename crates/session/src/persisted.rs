//! Sessions that outlive the process: how they are persisted and restored.
//!
//! Owns their rows in the store, and the table of sessions that wait for their clients after a
//! restart or sleep (`sleeping.rs`). Does not know session ids: a row is found by the digest of the
//! id that a client presents. Invariant: a session is restored only for its own credentials and
//! endpoint, and only before it expires.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::session::Session;
use crate::session_row::{SessionDigest, digest, remove_row};
use crate::sleep_state::SleepState;
use crate::store::{StateStore, StoreTable, StoredState, unix_now};
use crate::{SessionOrigin, Sessions};
use moongate_jsonrpc::json::{ByteString, RawJson};
use moongate_jsonrpc::message::RequestId;
use moongate_model::{Caller, LogFilter, LogLevel, Principal, PrincipalKey, PrincipalStanding};

/// Persisted form of a session. Has no id, no headers, and no message of its client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionRecord {
    owner: PrincipalKey,
    /// End of the owner's logins, in seconds since 1970. Keys have none, nor have rows of earlier
    /// versions.
    login_end: Option<u64>,
    scope: String,
    /// Last use, in seconds since 1970.
    used: u64,
    /// Beginning, in milliseconds since 1970. Rows of earlier versions lack it.
    began: Option<u64>,
    /// Revision of the client.
    pub revision: String,
    /// Capabilities that the client declared.
    pub capabilities: RawJson,
    /// Name and version of the client.
    pub info: Option<RawJson>,
    /// Log level that the client asked for.
    log: Option<String>,
    /// Resources that the session is subscribed to.
    pub subscriptions: Vec<String>,
    /// Tasks that the session made.
    tasks: Vec<String>,
    /// Streams with a response still to come: their numbers, and the ids of the requests.
    #[serde(rename = "owed")]
    unanswered: Vec<(u64, RawJson)>,
}

impl SessionRecord {
    /// Returns the client's log filter.
    pub fn log(&self) -> LogFilter {
        let level = self.log.as_deref().and_then(LogLevel::from_name);
        level.map_or(LogFilter::ServerDecides, LogFilter::AtLeast)
    }

    /// Returns the beginning, in milliseconds since 1970. Without it, the last use: it started then
    /// at the latest.
    pub(super) fn began(&self) -> u64 {
        self.began.unwrap_or(self.used.saturating_mul(1000))
    }

    fn is_expired(&self, idle: Duration) -> bool {
        unix_now().saturating_sub(self.used) >= idle.as_secs().max(1)
    }

    /// Returns the bytes of the smaller parts on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        let tasks: usize = self
            .tasks
            .iter()
            .map(|task| task.len() + size_of::<String>())
            .sum();
        let unanswered: usize = self
            .unanswered
            .iter()
            .map(|(_, id)| id.bytes().len() + size_of::<(u64, RawJson)>())
            .sum();
        self.scope.len()
            + self.revision.len()
            + self.log.as_ref().map_or(0, String::len)
            + tasks
            + unanswered
    }
}

/// Entry of one session in the table.
#[derive(Clone, Debug)]
pub(super) struct PersistedEntry {
    pub(super) record: SessionRecord,
    /// State of a sleeping session. A session of a previous process has only the record.
    pub(super) sleep_state: Option<Box<SleepState>>,
}

impl PersistedEntry {
    fn is_expired(&self, idle: Duration, now_ms: u64) -> bool {
        match &self.sleep_state {
            Some(sleep_state) => {
                Duration::from_millis(now_ms.saturating_sub(sleep_state.used_ms)) >= idle
            }
            None => self.record.is_expired(idle),
        }
    }

    /// Cancels the token that signals the session's end.
    fn close(&self) {
        if let Some(sleep_state) = &self.sleep_state {
            sleep_state.ended.cancel();
        }
    }
}

/// Source of a restored session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoredFrom {
    /// Table of active sessions: another request restored it first.
    AlreadyActive,
    /// Memory: the session was asleep.
    FromMemory,
    /// Store: a previous process left the session.
    FromPreviousProcess,
}

/// Sessions that wait for their clients.
pub(super) struct PersistedSessionTable {
    table: Mutex<HashMap<SessionDigest, PersistedEntry>>,
    process_number: AtomicU64,
    restored: watch::Sender<bool>,
}

impl PersistedSessionTable {
    /// Creates an empty table. `waits` is true if sessions of a previous process are still to be
    /// loaded.
    pub(super) fn new(waits: bool) -> Self {
        let restored = watch::Sender::new(!waits);
        PersistedSessionTable {
            table: Mutex::default(),
            process_number: AtomicU64::new(0),
            restored,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().len()
    }

    pub(super) fn process_number(&self) -> u64 {
        self.process_number.load(Ordering::Relaxed)
    }

    /// Counts the waiting sessions of each principal, by its key.
    pub(super) fn count_by_principal(&self) -> HashMap<PrincipalKey, usize> {
        let mut counts = HashMap::new();
        for entry in self.table.lock().values() {
            *counts.entry(entry.record.owner).or_default() += 1;
        }
        counts
    }

    /// Adds a sleeping session.
    pub(super) fn add(&self, digest: SessionDigest, entry: PersistedEntry) {
        self.table.lock().insert(digest, entry);
    }

    /// Removes expired sessions. Returns their number.
    pub(super) fn expire(&self, idle: Duration, now_ms: u64, store: &StateStore) -> usize {
        let mut table = self.table.lock();
        let expired: Vec<(SessionDigest, PersistedEntry)> = table
            .extract_if(|_, entry| entry.is_expired(idle, now_ms))
            .collect();
        for (digest, entry) in &expired {
            entry.close();
            remove_row(digest, store);
        }
        // A hash table keeps its capacity after removals, so the memory is returned here.
        if !expired.is_empty() {
            table.shrink_to_fit();
        }
        expired.len()
    }
}

impl Sessions {
    /// Loads the sessions of a previous process, within the limits of this one. `admits` returns
    /// true for a principal whose sessions may be restored. It gets the end of the principal's
    /// logins, too, in seconds since 1970.
    pub fn load_persisted(
        &self,
        contents: &mut StoredState,
        admits: impl Fn(&PrincipalKey, Option<u64>) -> bool,
    ) {
        self.persisted
            .process_number
            .store(contents.run, Ordering::Relaxed);
        let mut records = Vec::new();
        let mut unreadable = 0;
        let settings = self.settings.load_full();
        for (key, row) in contents.take(StoreTable::Sessions) {
            let digest = SessionDigest::try_from(&key[..]).ok();
            let record = serde_json::from_slice::<SessionRecord>(&row).ok();
            unreadable += usize::from(digest.is_none() || record.is_none());
            // Expired sessions, and those of removed keys, can never be restored.
            let record =
                record.filter(|r| !r.is_expired(settings.idle) && admits(&r.owner, r.login_end));
            match digest.zip(record) {
                Some(found) => records.push(found),
                None => self.store.remove(StoreTable::Sessions, key),
            }
        }
        if unreadable > 0 {
            tracing::warn!(
                sessions_lost = unreadable,
                "sessions of the previous process cannot be read"
            );
        }
        // Most recently used first: the limit cuts off the oldest.
        records.sort_by_key(|(_, record)| std::cmp::Reverse(record.used));
        let table = self.table.lock();
        let room = settings
            .max
            .saturating_sub(table.len() + self.persisted.len());
        for (digest, _) in records.drain(room.min(records.len())..) {
            remove_row(&digest, &self.store);
        }
        tracing::debug!(
            sessions = records.len(),
            "sessions of the previous process restored"
        );
        let entries = records.into_iter().map(|(digest, record)| {
            (
                digest,
                PersistedEntry {
                    record,
                    sleep_state: None,
                },
            )
        });
        self.persisted.table.lock().extend(entries);
        self.record_counts(&table);
    }

    /// Marks loading as done. From now on an unknown session does not exist.
    pub fn mark_restored(&self) {
        self.persisted.restored.send_replace(true);
    }

    /// Returns true if an unknown session does not exist. Until then a previous process may have
    /// left it.
    pub fn is_restored(&self) -> bool {
        *self.persisted.restored.borrow()
    }

    /// Waits until [`is_restored`](Self::is_restored) holds.
    pub async fn until_restored(&self) {
        // Fails only without a sender, which `self` owns.
        let _ = self
            .persisted
            .restored
            .subscribe()
            .wait_for(|restored| *restored)
            .await;
    }

    /// Returns the record of a persisted or sleeping session. Another principal or endpoint gets
    /// `None`.
    pub fn persisted_record(
        &self,
        id: &str,
        principal: &Principal,
        scope: &ByteString,
    ) -> Option<SessionRecord> {
        let table = self.persisted.table.lock();
        // Usually no session waits: this saves the digest.
        if table.is_empty() {
            return None;
        }
        let idle = self.settings.load().idle;
        let now = self.clock.now_ms();
        let record = &table
            .get(&digest(id))
            .filter(|entry| !entry.is_expired(idle, now))?
            .record;
        (record.owner == principal.key && record.scope == scope.as_str()).then(|| record.clone())
    }

    /// Restores a session that sleeps, or that a previous process left.
    pub fn restore_session(
        &self,
        id: &str,
        caller: Caller,
        scope: ByteString,
        record: &SessionRecord,
    ) -> Option<(Arc<Session>, RestoredFrom)> {
        // Always the table of sessions first, then the waiting ones. The other order could deadlock
        // with `open`.
        let mut table = self.table.lock();
        // Another request of the same client may have been first.
        if let Some(session) = table.get(id.as_bytes()) {
            return Some((session.clone(), RestoredFrom::AlreadyActive));
        }
        let entry = self.persisted.table.lock().remove(&digest(id))?;
        let session = self.build_session(
            ByteString::from(id),
            caller,
            scope,
            None,
            SessionOrigin::Persisted(&entry),
        );
        record
            .tasks
            .iter()
            .for_each(|task| drop(session.tasks.add(task)));
        let lost = record
            .unanswered
            .iter()
            .filter_map(|(number, id)| Some((*number, RequestId::from_raw(id.clone())?)));
        session.missed.add_lost(lost);
        table.insert(session.identity.id.clone(), session.clone());
        drop(table);
        let restored_from = if entry.sleep_state.is_some() {
            RestoredFrom::FromMemory
        } else {
            RestoredFrom::FromPreviousProcess
        };
        // Nobody saw the changes between the two processes.
        if restored_from == RestoredFrom::FromPreviousProcess {
            session.missed.require_catch_up();
        }
        Some((session, restored_from))
    }

    /// Evicts the longest idle waiting session, of one principal or of all. Returns false if there
    /// is none.
    pub(super) fn evict_persisted(&self, owner: Option<&PrincipalKey>) -> bool {
        let mut table = self.persisted.table.lock();
        let candidates = table
            .iter()
            .filter(|(_, entry)| owner.is_none_or(|owner| entry.record.owner == *owner));
        let oldest = candidates
            .min_by_key(|(_, entry)| entry.record.used)
            .map(|(digest, _)| *digest);
        let Some(digest) = oldest else { return false };
        if let Some(entry) = table.remove(&digest) {
            entry.close();
        }
        remove_row(&digest, &self.store);
        true
    }

    /// Removes the waiting sessions whose principal or endpoint is no longer allowed. Returns their
    /// number.
    pub(super) fn retain_persisted(
        &self,
        standing: impl Fn(&PrincipalKey) -> PrincipalStanding,
        allowed: impl Fn(&Principal, &str) -> bool,
    ) -> usize {
        let mut table = self.persisted.table.lock();
        let removed = table.extract_if(|_, entry| match standing(&entry.record.owner) {
            PrincipalStanding::Seen(principal) => !allowed(&principal, &entry.record.scope),
            // Its roles are known once it comes, and its endpoint is checked then.
            PrincipalStanding::Unseen => false,
            PrincipalStanding::Unknown => true,
        });
        let removed: Vec<(SessionDigest, PersistedEntry)> = removed.collect();
        drop(table);
        for (digest, entry) in &removed {
            entry.close();
            remove_row(digest, &self.store);
        }
        removed.len()
    }

    /// Persists the current state of all sessions.
    pub fn persist_all(&self) {
        for session in self.table.lock().values() {
            session.persist();
        }
    }

    /// Returns true if a previous process left a session with this digest.
    pub fn is_persisted(&self, digest: &SessionDigest) -> bool {
        self.persisted.table.lock().contains_key(digest)
    }
}

impl Session {
    /// Queues a write of the session's current state.
    pub fn persist(&self) {
        let Some(row) = self
            .row
            .as_ref()
            .filter(|row| row.is_persistent() && !self.is_ended())
        else {
            return;
        };
        let record = self.record();
        row.write(&record, record.used);
    }

    /// Returns the session's current state in its persisted form.
    pub(super) fn record(&self) -> SessionRecord {
        let caller = self.identity.caller();
        SessionRecord {
            owner: self.identity.principal.key,
            login_end: self.identity.principal.login_end(),
            scope: self.identity.scope.to_string(),
            used: self.last_use(),
            began: Some(self.lifetime.began()),
            revision: caller.revision.to_owned(),
            capabilities: caller.declared_capabilities.clone(),
            info: caller.client_info.clone(),
            log: match caller.log_filter {
                LogFilter::AtLeast(level) => Some(level.name().to_owned()),
                LogFilter::ServerDecides | LogFilter::Nothing => None,
            },
            subscriptions: self
                .subscriptions
                .uris()
                .iter()
                .map(ByteString::to_string)
                .collect(),
            tasks: self.tasks.texts(),
            // Their ids let the next process answer with an error. A client would otherwise wait
            // until its own timeout.
            unanswered: self
                .resumption
                .unanswered()
                .into_iter()
                .map(|(number, id)| (number, id.raw().clone()))
                .collect(),
        }
    }

    /// Persists the last use, unless the stored one is recent enough: within an eighth of the idle
    /// time.
    pub(super) fn persist_last_use(&self, idle: Duration) {
        let Some(row) = &self.row else { return };
        if self.last_use().saturating_sub(row.written()) > idle.as_secs() / 8 {
            self.persist();
        }
    }

    /// Returns the last use, in seconds since 1970. The wall clock, since the next process has
    /// another epoch.
    fn last_use(&self) -> u64 {
        unix_now().saturating_sub(self.lifetime.idle_time().as_secs())
    }
}

#[cfg(test)]
mod tests;
