//! Difference between the desired subscriptions and those that a legacy server has.
//!
//! Owns the order of changes and their retries. Does not send requests
//! (`resource_subscriptions.rs`). Invariant: each resource has at most one request in flight, so
//! the last change wins. A failed request is repeated a few times and no more.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use moongate_jsonrpc::json::ByteString;
use moongate_model::Error;

/// Backoff before each retry of a failed request.
// A server that refuses four times will refuse again, and each attempt costs it a request.
const BACKOFF: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
];

/// Limit of unsubscriptions queued for a retry. Beyond it, they are forgotten.
// A forgotten one costs some needless notifications, which the gateway drops.
const ENDING_MAX: usize = 1024;

/// Subscriptions of one connection.
///
/// Entries exist for desired subscriptions, bounded by `max_subscriptions`, and for changes the
/// server must still learn.
#[derive(Default)]
pub(crate) struct SubscriptionSync {
    state: Mutex<SyncState>,
    pub(crate) changed: Arc<Notify>,
    /// Signalled when an answer came, or other subscriptions are desired.
    progress: watch::Sender<()>,
}

/// Entries of one connection, and the order in which they are sent.
#[derive(Default)]
pub(crate) struct SyncState {
    entries: HashMap<ByteString, SyncEntry>,
    /// Entries to check, in their order.
    pub(crate) queue: BTreeMap<u64, ByteString>,
    /// Last position in that order.
    last: u64,
    /// Failed entries, by the time of their retry.
    retry_queue: BTreeSet<(Instant, ByteString)>,
    /// True while the sync task runs.
    pub(crate) running: bool,
}

#[derive(Default)]
struct SyncEntry {
    desired: bool,
    /// Server's state of the subscription.
    remote: RemoteState,
    /// True while a request is in flight.
    in_flight: bool,
    /// Position in the queue.
    queued: Option<u64>,
    failures: usize,
    retry_at: Option<Instant>,
    /// Error of the server's last answer.
    refusal: Option<Error>,
}

/// State of a subscription at the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum RemoteState {
    #[default]
    No,
    /// A request was sent and got no response.
    Unconfirmed,
    Yes,
}

impl SyncEntry {
    /// Returns true to subscribe, false to unsubscribe, `None` if there is nothing to do.
    fn next_change(&self) -> Option<bool> {
        match (self.desired, self.remote) {
            // One request at a time for each resource: two at once may arrive in the other order.
            _ if self.in_flight || self.retry_at.is_some() || self.failures > BACKOFF.len() => None,
            (true, RemoteState::No | RemoteState::Unconfirmed) => Some(true),
            (false, RemoteState::Yes | RemoteState::Unconfirmed) => Some(false),
            _ => None,
        }
    }

    fn is_unneeded(&self) -> bool {
        !self.desired && !self.in_flight && self.retry_at.is_none() && self.next_change().is_none()
    }
}

/// Request to the server.
#[derive(Debug, PartialEq)]
pub(crate) struct SubscriptionChange {
    pub(crate) uri: ByteString,
    /// True to subscribe, false to unsubscribe.
    pub(crate) subscribe: bool,
}

/// Outcome of such a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ChangeOutcome {
    Granted,
    /// The server will not grant it.
    Refused,
    /// A retry may succeed.
    Failed,
    /// The request ran in a session that is lost.
    StaleSession,
}

/// Next step of the sync task.
#[derive(Debug, PartialEq)]
pub(crate) enum SyncStep {
    Send(SubscriptionChange),
    /// Waits for a change, or until the given time.
    Wait(Option<Instant>),
    /// Ends the task.
    Finished,
}

impl SyncState {
    pub(crate) fn set_desired(&mut self, wanted: &[ByteString]) {
        let before: Vec<ByteString> = self
            .entries
            .iter()
            .filter(|(_, e)| e.desired)
            .map(|(uri, _)| uri.clone())
            .collect();
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
            // A changed target starts with fresh attempts.
            (entry.desired, entry.failures, entry.refusal) = (wanted, 0, None);
            self.enqueue(uri);
            self.prune(uri);
        }
    }

    /// Resets the server's state: a new session has no subscriptions.
    pub(crate) fn reset_remote(&mut self) {
        let all: Vec<ByteString> = self.entries.keys().cloned().collect();
        for uri in all {
            if let Some(entry) = self.entries.get_mut(&uri) {
                (entry.remote, entry.failures) = (RemoteState::No, 0);
            }
            self.enqueue(&uri);
        }
    }

    /// Adds an entry to the queue.
    fn enqueue(&mut self, uri: &ByteString) {
        let Some(entry) = self.entries.get_mut(uri) else {
            return;
        };
        if let Some(retry_at) = entry.retry_at.take() {
            self.retry_queue.remove(&(retry_at, uri.clone()));
        }
        if entry.queued.is_none() {
            self.last += 1;
            entry.queued = Some(self.last);
            self.queue.insert(self.last, uri.clone());
        }
    }

    /// Picks the next step. `idle` is true if no request is in flight.
    pub(crate) fn next_due(&mut self, idle: bool) -> SyncStep {
        let now = Instant::now();
        while self
            .retry_queue
            .first()
            .is_some_and(|(retry_at, _)| *retry_at <= now)
        {
            if let Some((_, uri)) = self.retry_queue.pop_first() {
                self.enqueue(&uri);
            }
        }
        while let Some((_, uri)) = self.queue.pop_first() {
            let Some(entry) = self.entries.get_mut(&uri) else {
                continue;
            };
            entry.queued = None;
            if let Some(subscribe) = entry.next_change() {
                entry.in_flight = true;
                return SyncStep::Send(SubscriptionChange { uri, subscribe });
            }
            self.prune(&uri);
        }
        // The flag falls under the same lock that a new wish takes: no wish is left without a task.
        if idle && self.retry_queue.is_empty() {
            self.running = false;
            return SyncStep::Finished;
        }
        SyncStep::Wait(self.retry_queue.first().map(|(retry_at, _)| *retry_at))
    }

    /// Records what came of a request. `refusal`: the error that the server answered.
    pub(crate) fn complete(
        &mut self,
        change: &SubscriptionChange,
        outcome: ChangeOutcome,
        refusal: Option<Error>,
    ) {
        let Some(entry) = self.entries.get_mut(&change.uri) else {
            return;
        };
        (entry.in_flight, entry.refusal) = (false, refusal);
        // The target may have changed while the request was in flight. Its failure then counts for
        // nothing.
        let is_current = entry.desired == change.subscribe;
        match outcome {
            ChangeOutcome::Granted => {
                entry.remote = if change.subscribe {
                    RemoteState::Yes
                } else {
                    RemoteState::No
                };
                entry.failures = 0;
            }
            // The server never had the subscription, or will not have it. A refused unsubscription
            // ends it anyway.
            ChangeOutcome::Refused => {
                entry.remote = RemoteState::No;
                entry.failures = if is_current { BACKOFF.len() + 1 } else { 0 };
            }
            ChangeOutcome::Failed => {
                // The server may have done it before the failure, so either wish must be sent
                // again.
                entry.remote = RemoteState::Unconfirmed;
                entry.failures = if is_current { entry.failures + 1 } else { 0 };
            }
            ChangeOutcome::StaleSession => entry.remote = RemoteState::No,
        }
        if outcome == ChangeOutcome::Failed
            && is_current
            && (change.subscribe || self.retry_queue.len() < ENDING_MAX)
            && let Some(pause) = BACKOFF.get(entry.failures - 1)
        {
            let retry_at = Instant::now() + *pause;
            entry.retry_at = Some(retry_at);
            self.retry_queue.insert((retry_at, change.uri.clone()));
            return;
        }
        if outcome == ChangeOutcome::Failed && is_current {
            entry.failures = BACKOFF.len() + 1;
        }
        self.enqueue(&change.uri);
        self.prune(&change.uri);
    }

    /// Removes an entry that needs nothing.
    fn prune(&mut self, uri: &ByteString) {
        if self.entries.get(uri).is_some_and(SyncEntry::is_unneeded)
            && let Some(queued) = self.entries.remove(uri).and_then(|entry| entry.queued)
        {
            self.queue.remove(&queued);
        }
    }
}

/// Progress of one subscription.
#[derive(Debug)]
pub(crate) enum SubscriptionProgress {
    /// Nobody needs it: not yet, or no longer.
    Unwanted,
    /// The server's answer is on its way.
    Pending,
    /// The server answered.
    Answered(Result<(), Error>),
}

impl SyncEntry {
    fn progress(&self) -> SubscriptionProgress {
        match (self.desired, self.remote) {
            (false, _) => SubscriptionProgress::Unwanted,
            (true, RemoteState::Yes) => SubscriptionProgress::Answered(Ok(())),
            // A request that broke is repeated, and nobody waits for that.
            (true, _) if self.failures > 0 => {
                SubscriptionProgress::Answered(self.refusal.clone().map_or(Ok(()), Err))
            }
            _ => SubscriptionProgress::Pending,
        }
    }
}

impl SubscriptionSync {
    /// Returns the progress of the subscription of a resource.
    pub(crate) fn progress_of(&self, uri: &ByteString) -> SubscriptionProgress {
        self.lock()
            .entries
            .get(uri)
            .map_or(SubscriptionProgress::Unwanted, SyncEntry::progress)
    }

    /// Returns a receiver of the progress.
    pub(crate) fn watch_progress(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }

    /// Signals the progress.
    pub(crate) fn report_progress(&self) {
        self.progress.send_replace(());
    }

    /// Records that the server has a subscription already, which is desired from now on.
    pub(crate) fn note_granted(&self, uri: &ByteString) {
        self.lock().entries.entry(uri.clone()).or_default().remote = RemoteState::Yes;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uris(names: &[&str]) -> Vec<ByteString> {
        names.iter().map(|name| ByteString::from(*name)).collect()
    }

    fn next_request(state: &mut SyncState) -> Option<(String, bool)> {
        match state.next_due(false) {
            SyncStep::Send(SubscriptionChange {
                uri,
                subscribe: more,
            }) => Some((uri.to_string(), more)),
            _ => None,
        }
    }

    fn complete(state: &mut SyncState, (uri, more): (String, bool), outcome: ChangeOutcome) {
        state.complete(
            &SubscriptionChange {
                uri: ByteString::from(uri.as_str()),
                subscribe: more,
            },
            outcome,
            None,
        );
    }

    #[tokio::test(start_paused = true)]
    async fn ended_subscriptions_leave_no_entry() {
        let mut state = SyncState::default();
        for n in 0..10_000 {
            state.set_desired(&uris(&["a", &format!("x:{n}")]));
        }
        assert_eq!(state.entries.len(), 2, "what was never told needs no end");
        assert_eq!(state.queue.len(), 2, "what was never told needs no end");
        state.set_desired(&[]);
        assert!(state.entries.is_empty() && state.queue.is_empty());
        // The bound holds as well for a server that answers none of these requests.
        for n in 0..2 * ENDING_MAX {
            let uri = format!("x:{n}");
            state.set_desired(&uris(&[&uri]));
            complete(&mut state, (uri.clone(), true), ChangeOutcome::Failed);
            state.set_desired(&[]);
            let change = next_request(&mut state).unwrap();
            assert_eq!(change, (uri, false));
            complete(&mut state, change, ChangeOutcome::Failed);
        }
        assert!(
            state.entries.len() <= ENDING_MAX && state.retry_queue.len() <= ENDING_MAX,
            "{}",
            state.entries.len()
        );
        for pause in BACKOFF.into_iter().chain(BACKOFF) {
            tokio::time::advance(pause).await;
            while let Some(change) = next_request(&mut state) {
                complete(&mut state, change, ChangeOutcome::Failed);
            }
        }
        assert_eq!(state.next_due(true), SyncStep::Finished);
        assert!(state.entries.is_empty() && state.retry_queue.is_empty() && state.queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_update_during_a_subscribe_is_delivered_afterwards() {
        let mut state = SyncState::default();
        state.set_desired(&uris(&["a"]));
        let subscribing = next_request(&mut state).unwrap();
        state.set_desired(&[]);
        assert_eq!(next_request(&mut state), None, "one request at a time");
        complete(&mut state, subscribing, ChangeOutcome::Granted);
        let ending = next_request(&mut state).unwrap();
        assert_eq!(ending, ("a".to_owned(), false));
        state.set_desired(&uris(&["a"]));
        complete(&mut state, ending, ChangeOutcome::Failed);
        let again = next_request(&mut state).unwrap();
        assert_eq!(
            again,
            ("a".to_owned(), true),
            "the server may have taken it"
        );
        // After a session change, the outcome of an older request counts for nothing.
        state.reset_remote();
        complete(&mut state, again.clone(), ChangeOutcome::StaleSession);
        assert_eq!(next_request(&mut state), Some(again.clone()));
        complete(&mut state, again, ChangeOutcome::Refused);
        assert_eq!(
            state.next_due(true),
            SyncStep::Finished,
            "it is not asked again for what it does not have"
        );
        state.reset_remote();
        assert_eq!(
            next_request(&mut state),
            Some(("a".to_owned(), true)),
            "but in the next session"
        );
    }
}
