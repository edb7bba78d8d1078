//! The resources that a legacy server is subscribed to.
//!
//! Owns what is wanted of it, what it knows of that, and the task that brings it there. Does not know who listens.
//! Invariant: of one resource there is one request at a time, so that the last word counts, and what fails is repeated a
//! few times and no more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::json::{ByteString, JsonObject, RawJson};
use crate::jsonrpc::code;
use crate::revision::legacy::RESOURCE_NOT_FOUND;
use crate::revision::legacy::upstream::{LegacyConnection, WeakConnection};
use crate::revision::negotiate::ConnectError;

/// Requests at once.
const CONCURRENCY_MAX: usize = 8;
/// Pauses before what failed is tried again.
const BACKOFF: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(60)];

/// What is no longer wanted and could not be ended: with more than this, it is forgotten.
const ENDING_MAX: usize = 1024;

/// The subscriptions of one connection. There is an entry for what is wanted, which is bounded by `max_subscriptions`, and
/// for what the server still has to be told.
#[derive(Default)]
pub(super) struct SubscriptionSync {
    state: Mutex<SyncState>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct SyncState {
    entries: HashMap<ByteString, SyncEntry>,
    /// Entries to be looked at, in their order.
    queue: BTreeMap<u64, ByteString>,
    /// The last place in that order.
    last: u64,
    /// Those that failed, by when they are tried again.
    retry_queue: BTreeSet<(Instant, ByteString)>,
    /// Whether the task runs.
    running: bool,
}

#[derive(Default)]
struct SyncEntry {
    desired: bool,
    /// What the server knows.
    remote: RemoteState,
    /// Whether it is being told.
    in_flight: bool,
    /// Its place in the queue.
    queued: Option<u64>,
    failures: usize,
    retry_at: Option<Instant>,
}

/// Whether a server has a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum RemoteState {
    #[default]
    No,
    /// It was told, and did not answer.
    Unconfirmed,
    Yes,
}

impl SyncEntry {
    /// Whether to subscribe or to unsubscribe, if there is anything to do.
    fn next_change(&self) -> Option<bool> {
        match (self.desired, self.remote) {
            _ if self.in_flight || self.retry_at.is_some() || self.failures > BACKOFF.len() => None,
            (true, RemoteState::No | RemoteState::Unconfirmed) => Some(true),
            (false, RemoteState::Yes | RemoteState::Unconfirmed) => Some(false),
            _ => None,
        }
    }
}

/// What the server is told.
#[derive(Debug, PartialEq)]
struct SubscriptionChange {
    uri: ByteString,
    /// Whether it is subscribed.
    subscribe: bool,
}

/// What came of that.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ChangeOutcome {
    Granted,
    /// It will not be granted.
    Refused,
    /// It may be next time.
    Failed,
    /// It was said in a session that is gone.
    StaleSession,
}

/// What there is to do.
#[derive(Debug, PartialEq)]
enum SyncStep {
    Send(SubscriptionChange),
    /// Nothing until something changes, or until then.
    Wait(Option<Instant>),
    /// Nothing.
    Finished,
}

impl SyncState {
    fn set_desired(&mut self, wanted: &[ByteString]) {
        let before: Vec<ByteString> =
            self.entries.iter().filter(|(_, e)| e.desired).map(|(uri, _)| uri.clone()).collect();
        let wanted: BTreeSet<&ByteString> = wanted.iter().collect();
        for uri in before.iter().filter(|uri| !wanted.contains(uri)) {
            self.set_one(uri, false);
        }
        for uri in wanted {
            self.set_one(uri, true);
        }
    }

    fn set_one(&mut self, uri: &ByteString, wanted: bool) {
        let entry = self.entries.entry(uri.clone()).or_default();
        if entry.desired != wanted {
            (entry.desired, entry.failures) = (wanted, 0);
            self.enqueue(uri);
            self.prune(uri);
        }
    }

    /// The server knows of nothing any more.
    fn reset_remote(&mut self) {
        let all: Vec<ByteString> = self.entries.keys().cloned().collect();
        for uri in all {
            if let Some(entry) = self.entries.get_mut(&uri) {
                (entry.remote, entry.failures) = (RemoteState::No, 0);
            }
            self.enqueue(&uri);
        }
    }

    /// Has an entry looked at.
    fn enqueue(&mut self, uri: &ByteString) {
        let Some(entry) = self.entries.get_mut(uri) else { return };
        if let Some(at) = entry.retry_at.take() {
            self.retry_queue.remove(&(at, uri.clone()));
        }
        if entry.queued.is_none() {
            self.last += 1;
            entry.queued = Some(self.last);
            self.queue.insert(self.last, uri.clone());
        }
    }

    /// `idle`: nothing is being told.
    fn next_due(&mut self, idle: bool) -> SyncStep {
        let now = Instant::now();
        while self.retry_queue.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, uri)) = self.retry_queue.pop_first() {
                self.enqueue(&uri);
            }
        }
        while let Some((_, uri)) = self.queue.pop_first() {
            let Some(entry) = self.entries.get_mut(&uri) else { continue };
            entry.queued = None;
            if let Some(more) = entry.next_change() {
                entry.in_flight = true;
                return SyncStep::Send(SubscriptionChange { uri, subscribe: more });
            }
            self.prune(&uri);
        }
        if idle && self.retry_queue.is_empty() {
            self.running = false;
            return SyncStep::Finished;
        }
        SyncStep::Wait(self.retry_queue.first().map(|(at, _)| *at))
    }

    fn complete(&mut self, change: &SubscriptionChange, came: ChangeOutcome) {
        let Some(entry) = self.entries.get_mut(&change.uri) else { return };
        entry.in_flight = false;
        let meant = entry.desired == change.subscribe;
        match came {
            ChangeOutcome::Granted => {
                entry.remote = if change.subscribe { RemoteState::Yes } else { RemoteState::No };
                entry.failures = 0;
            }
            // One that it never had, or will not have: what it refuses to end is nobody's either.
            ChangeOutcome::Refused => {
                entry.remote = RemoteState::No;
                entry.failures = if meant { BACKOFF.len() + 1 } else { 0 };
            }
            ChangeOutcome::Failed => {
                entry.remote = RemoteState::Unconfirmed;
                entry.failures = if meant { entry.failures + 1 } else { 0 };
            }
            ChangeOutcome::StaleSession => entry.remote = RemoteState::No,
        }
        if came == ChangeOutcome::Failed
            && meant
            && (change.subscribe || self.retry_queue.len() < ENDING_MAX)
            && let Some(pause) = BACKOFF.get(entry.failures - 1)
        {
            let at = Instant::now() + *pause;
            entry.retry_at = Some(at);
            self.retry_queue.insert((at, change.uri.clone()));
            return;
        }
        if came == ChangeOutcome::Failed && meant {
            entry.failures = BACKOFF.len() + 1;
        }
        self.enqueue(&change.uri);
        self.prune(&change.uri);
    }

    /// Forgets what needs nothing.
    fn prune(&mut self, uri: &ByteString) {
        let over = |e: &SyncEntry| !e.desired && !e.in_flight && e.retry_at.is_none() && e.next_change().is_none();
        if self.entries.get(uri).is_some_and(over)
            && let Some(place) = self.entries.remove(uri).and_then(|entry| entry.queued)
        {
            self.queue.remove(&place);
        }
    }
}

impl SubscriptionSync {
    /// Notes that the server has a subscription already, which is wanted from now on.
    pub(super) fn note_granted(&self, uri: &ByteString) {
        self.lock().entries.entry(uri.clone()).or_default().remote = RemoteState::Yes;
    }

    fn lock(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LegacyConnection {
    /// Makes the server's subscriptions these.
    pub(super) fn sync_subscriptions(self: &Arc<Self>, wanted: &[ByteString]) {
        self.subscriptions.lock().set_desired(wanted);
        self.spawn_sync();
    }

    /// It is another session, which knows of none.
    pub(super) fn resync_subscriptions(self: &Arc<Self>) {
        self.subscriptions.lock().reset_remote();
        self.spawn_sync();
    }

    fn spawn_sync(self: &Arc<Self>) {
        let mut state = self.subscriptions.lock();
        if state.queue.is_empty() {
            return;
        }
        if std::mem::replace(&mut state.running, true) {
            self.subscriptions.changed.notify_one();
            return;
        }
        let work = run_sync(Arc::downgrade(self), self.subscriptions.changed.clone());
        tokio::spawn(self.closing.clone().run_until_cancelled_owned(work));
    }

    async fn send_change(self: Arc<Self>, change: SubscriptionChange) {
        let session = self.session_generation();
        let method = if change.subscribe { "resources/subscribe" } else { "resources/unsubscribe" };
        let answer = self.gateway_request(method, &uri_params(&change.uri)).await;
        match &answer {
            Ok(_) if change.subscribe => self.trial.serves(),
            Err(ConnectError::Answered(error)) if change.subscribe && error.code == code::METHOD_NOT_FOUND => {
                self.trial.refuses();
            }
            _ => {}
        }
        let came = match answer {
            _ if self.session_generation() != session => ChangeOutcome::StaleSession,
            Ok(_) => ChangeOutcome::Granted,
            Err(ConnectError::Answered(error)) if is_final(error.code) => ChangeOutcome::Refused,
            Err(_) => ChangeOutcome::Failed,
        };
        self.subscriptions.lock().complete(&change, came);
    }
}

/// Brings the server to what is wanted.
async fn run_sync(server: WeakConnection, changed: Arc<Notify>) {
    let mut telling = FuturesUnordered::new();
    loop {
        let until = loop {
            let Some(server) = server.upgrade() else { return };
            if telling.len() >= CONCURRENCY_MAX {
                break None;
            }
            let next = server.subscriptions.lock().next_due(telling.is_empty());
            match next {
                SyncStep::Send(change) => telling.push(server.send_change(change)),
                SyncStep::Wait(until) => break until,
                SyncStep::Finished => return,
            }
        };
        let pause = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(()) = telling.next(), if !telling.is_empty() => {}
            () = pause => {}
            () = changed.notified() => {}
        }
    }
}

/// Whether asking again would have the same answer.
fn is_final(code: i64) -> bool {
    matches!(code, code::METHOD_NOT_FOUND | code::INVALID_PARAMS | RESOURCE_NOT_FOUND)
}

pub(super) fn uri_params(uri: &ByteString) -> JsonObject {
    JsonObject::new().with("uri", RawJson::string(uri))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uris(names: &[&str]) -> Vec<ByteString> {
        names.iter().map(|name| ByteString::from(*name)).collect()
    }

    fn told(state: &mut SyncState) -> Option<(String, bool)> {
        match state.next_due(false) {
            SyncStep::Send(SubscriptionChange { uri, subscribe: more }) => Some((uri.to_string(), more)),
            _ => None,
        }
    }

    fn came(state: &mut SyncState, (uri, more): (String, bool), came: ChangeOutcome) {
        state.complete(&SubscriptionChange { uri: ByteString::from(uri.as_str()), subscribe: more }, came);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_what_is_wanted_no_more() {
        let mut state = SyncState::default();
        for n in 0..10_000 {
            state.set_desired(&uris(&["a", &format!("x:{n}")]));
        }
        assert_eq!((state.entries.len(), state.queue.len()), (2, 2), "what was never told needs no end");
        state.set_desired(&[]);
        assert!(state.entries.is_empty() && state.queue.is_empty());
        // Nor where the server takes no word of it.
        for n in 0..2 * ENDING_MAX {
            let uri = format!("x:{n}");
            state.set_desired(&uris(&[&uri]));
            came(&mut state, (uri.clone(), true), ChangeOutcome::Failed);
            state.set_desired(&[]);
            let change = told(&mut state).unwrap();
            assert_eq!(change, (uri, false));
            came(&mut state, change, ChangeOutcome::Failed);
        }
        assert!(state.entries.len() <= ENDING_MAX && state.retry_queue.len() <= ENDING_MAX, "{}", state.entries.len());
        for pause in BACKOFF.into_iter().chain(BACKOFF) {
            tokio::time::advance(pause).await;
            while let Some(change) = told(&mut state) {
                came(&mut state, change, ChangeOutcome::Failed);
            }
        }
        assert_eq!(state.next_due(true), SyncStep::Finished);
        assert!(state.entries.is_empty() && state.retry_queue.is_empty() && state.queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_resource_is_meanwhile_is_told_afterwards() {
        let mut state = SyncState::default();
        state.set_desired(&uris(&["a"]));
        let subscribing = told(&mut state).unwrap();
        state.set_desired(&[]);
        assert_eq!(told(&mut state), None, "one word at a time");
        came(&mut state, subscribing, ChangeOutcome::Granted);
        let ending = told(&mut state).unwrap();
        assert_eq!(ending, ("a".to_owned(), false));
        state.set_desired(&uris(&["a"]));
        came(&mut state, ending, ChangeOutcome::Failed);
        let again = told(&mut state).unwrap();
        assert_eq!(again, ("a".to_owned(), true), "the server may have taken it");
        // A new session meanwhile: what was said counts for nothing.
        state.reset_remote();
        came(&mut state, again.clone(), ChangeOutcome::StaleSession);
        assert_eq!(told(&mut state), Some(again.clone()));
        came(&mut state, again, ChangeOutcome::Refused);
        assert_eq!(state.next_due(true), SyncStep::Finished, "it is not asked again for what it does not have");
        state.reset_remote();
        assert_eq!(told(&mut state), Some(("a".to_owned(), true)), "but in the next session");
    }
}
