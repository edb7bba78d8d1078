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

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::code;
use crate::revision::connect::ConnectError;
use crate::revision::legacy::RESOURCE_NOT_FOUND;
use crate::revision::legacy::back::{LegacyServer, WeakServer};

/// Requests at once.
const AT_ONCE: usize = 8;
/// Pauses before what failed is tried again.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(60)];

/// What is no longer wanted and could not be ended: with more than this, it is forgotten.
const ENDING_MAX: usize = 1024;

/// The subscriptions of one connection. There is an entry for what is wanted, which is bounded by `max_subscriptions`, and
/// for what the server still has to be told.
#[derive(Default)]
pub(super) struct Subscribed {
    state: Mutex<State>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    entries: HashMap<Text, Entry>,
    /// Entries to be looked at, in their order.
    queue: BTreeMap<u64, Text>,
    /// The last place in that order.
    last: u64,
    /// Those that failed, by when they are tried again.
    later: BTreeSet<(Instant, Text)>,
    /// Whether the task runs.
    working: bool,
}

#[derive(Default)]
struct Entry {
    wanted: bool,
    /// What the server knows.
    known: Known,
    /// Whether it is being told.
    busy: bool,
    /// Its place in the queue.
    queued: Option<u64>,
    failures: usize,
    again: Option<Instant>,
}

/// Whether a server has a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Known {
    #[default]
    No,
    /// It was told, and did not answer.
    Perhaps,
    Yes,
}

impl Entry {
    /// Whether to subscribe or to unsubscribe, if there is anything to do.
    fn due(&self) -> Option<bool> {
        match (self.wanted, self.known) {
            _ if self.busy || self.again.is_some() || self.failures > PAUSES.len() => None,
            (true, Known::No | Known::Perhaps) => Some(true),
            (false, Known::Yes | Known::Perhaps) => Some(false),
            _ => None,
        }
    }
}

/// What the server is told.
#[derive(Debug, PartialEq)]
struct Change {
    uri: Text,
    /// Whether it is subscribed.
    more: bool,
}

/// What came of that.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    Granted,
    /// It will not be granted.
    Refused,
    /// It may be next time.
    Failed,
    /// It was said in a session that is gone.
    Former,
}

/// What there is to do.
#[derive(Debug, PartialEq)]
enum Next {
    Tell(Change),
    /// Nothing until something changes, or until then.
    Wait(Option<Instant>),
    /// Nothing.
    Over,
}

impl State {
    fn want(&mut self, wanted: &[Text]) {
        let before: Vec<Text> = self.entries.iter().filter(|(_, e)| e.wanted).map(|(uri, _)| uri.clone()).collect();
        let wanted: BTreeSet<&Text> = wanted.iter().collect();
        for uri in before.iter().filter(|uri| !wanted.contains(uri)) {
            self.set(uri, false);
        }
        for uri in wanted {
            self.set(uri, true);
        }
    }

    fn set(&mut self, uri: &Text, wanted: bool) {
        let entry = self.entries.entry(uri.clone()).or_default();
        if entry.wanted != wanted {
            (entry.wanted, entry.failures) = (wanted, 0);
            self.look(uri);
            self.tidy(uri);
        }
    }

    /// The server knows of nothing any more.
    fn begin_anew(&mut self) {
        let all: Vec<Text> = self.entries.keys().cloned().collect();
        for uri in all {
            if let Some(entry) = self.entries.get_mut(&uri) {
                (entry.known, entry.failures) = (Known::No, 0);
            }
            self.look(&uri);
        }
    }

    /// Has an entry looked at.
    fn look(&mut self, uri: &Text) {
        let Some(entry) = self.entries.get_mut(uri) else { return };
        if let Some(at) = entry.again.take() {
            self.later.remove(&(at, uri.clone()));
        }
        if entry.queued.is_none() {
            self.last += 1;
            entry.queued = Some(self.last);
            self.queue.insert(self.last, uri.clone());
        }
    }

    /// `idle`: nothing is being told.
    fn next(&mut self, idle: bool) -> Next {
        let now = Instant::now();
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, uri)) = self.later.pop_first() {
                self.look(&uri);
            }
        }
        while let Some((_, uri)) = self.queue.pop_first() {
            let Some(entry) = self.entries.get_mut(&uri) else { continue };
            entry.queued = None;
            if let Some(more) = entry.due() {
                entry.busy = true;
                return Next::Tell(Change { uri, more });
            }
            self.tidy(&uri);
        }
        if idle && self.later.is_empty() {
            self.working = false;
            return Next::Over;
        }
        Next::Wait(self.later.first().map(|(at, _)| *at))
    }

    fn came(&mut self, change: &Change, came: Came) {
        let Some(entry) = self.entries.get_mut(&change.uri) else { return };
        entry.busy = false;
        let meant = entry.wanted == change.more;
        match came {
            Came::Granted => {
                entry.known = if change.more { Known::Yes } else { Known::No };
                entry.failures = 0;
            }
            // One that it never had, or will not have: what it refuses to end is nobody's either.
            Came::Refused => {
                entry.known = Known::No;
                entry.failures = if meant { PAUSES.len() + 1 } else { 0 };
            }
            Came::Failed => {
                entry.known = Known::Perhaps;
                entry.failures = if meant { entry.failures + 1 } else { 0 };
            }
            Came::Former => entry.known = Known::No,
        }
        if came == Came::Failed
            && meant
            && (change.more || self.later.len() < ENDING_MAX)
            && let Some(pause) = PAUSES.get(entry.failures - 1)
        {
            let at = Instant::now() + *pause;
            entry.again = Some(at);
            self.later.insert((at, change.uri.clone()));
            return;
        }
        if came == Came::Failed && meant {
            entry.failures = PAUSES.len() + 1;
        }
        self.look(&change.uri);
        self.tidy(&change.uri);
    }

    /// Forgets what needs nothing.
    fn tidy(&mut self, uri: &Text) {
        let over = |e: &Entry| !e.wanted && !e.busy && e.again.is_none() && e.due().is_none();
        if self.entries.get(uri).is_some_and(over)
            && let Some(place) = self.entries.remove(uri).and_then(|entry| entry.queued)
        {
            self.queue.remove(&place);
        }
    }
}

impl Subscribed {
    /// Notes that the server has a subscription already, which is wanted from now on.
    pub(super) fn note_granted(&self, uri: &Text) {
        self.lock().entries.entry(uri.clone()).or_default().known = Known::Yes;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LegacyServer {
    /// Makes the server's subscriptions these.
    pub(super) fn subscribe(self: &Arc<Self>, wanted: &[Text]) {
        self.subscribed.lock().want(wanted);
        self.tell_subscriptions();
    }

    /// It is another session, which knows of none.
    pub(super) fn subscribe_anew(self: &Arc<Self>) {
        self.subscribed.lock().begin_anew();
        self.tell_subscriptions();
    }

    fn tell_subscriptions(self: &Arc<Self>) {
        let mut state = self.subscribed.lock();
        if state.queue.is_empty() {
            return;
        }
        if std::mem::replace(&mut state.working, true) {
            self.subscribed.changed.notify_one();
            return;
        }
        let work = work(Arc::downgrade(self), self.subscribed.changed.clone());
        tokio::spawn(self.gone.clone().run_until_cancelled_owned(work));
    }

    async fn tell_subscription(self: Arc<Self>, change: Change) {
        let session = self.generation();
        let method = if change.more { "resources/subscribe" } else { "resources/unsubscribe" };
        let answer = self.own_request(method, &uri_params(&change.uri)).await;
        match &answer {
            Ok(_) if change.more => self.trial.serves(),
            Err(ConnectError::Answered(error)) if change.more && error.code == code::METHOD_NOT_FOUND => {
                self.trial.refuses();
            }
            _ => {}
        }
        let came = match answer {
            _ if self.generation() != session => Came::Former,
            Ok(_) => Came::Granted,
            Err(ConnectError::Answered(error)) if is_final(error.code) => Came::Refused,
            Err(_) => Came::Failed,
        };
        self.subscribed.lock().came(&change, came);
    }
}

/// Brings the server to what is wanted.
async fn work(server: WeakServer, changed: Arc<Notify>) {
    let mut telling = FuturesUnordered::new();
    loop {
        let until = loop {
            let Some(server) = server.upgrade() else { return };
            if telling.len() >= AT_ONCE {
                break None;
            }
            let next = server.subscribed.lock().next(telling.is_empty());
            match next {
                Next::Tell(change) => telling.push(server.tell_subscription(change)),
                Next::Wait(until) => break until,
                Next::Over => return,
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

pub(super) fn uri_params(uri: &Text) -> Object {
    Object::new().with("uri", Raw::string(uri))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uris(names: &[&str]) -> Vec<Text> {
        names.iter().map(|name| Text::from(*name)).collect()
    }

    fn told(state: &mut State) -> Option<(String, bool)> {
        match state.next(false) {
            Next::Tell(Change { uri, more }) => Some((uri.to_string(), more)),
            _ => None,
        }
    }

    fn came(state: &mut State, (uri, more): (String, bool), came: Came) {
        state.came(&Change { uri: Text::from(uri.as_str()), more }, came);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_what_is_wanted_no_more() {
        let mut state = State::default();
        for n in 0..10_000 {
            state.want(&uris(&["a", &format!("x:{n}")]));
        }
        assert_eq!((state.entries.len(), state.queue.len()), (2, 2), "what was never told needs no end");
        state.want(&[]);
        assert!(state.entries.is_empty() && state.queue.is_empty());
        // Nor where the server takes no word of it.
        for n in 0..2 * ENDING_MAX {
            let uri = format!("x:{n}");
            state.want(&uris(&[&uri]));
            came(&mut state, (uri.clone(), true), Came::Failed);
            state.want(&[]);
            let change = told(&mut state).unwrap();
            assert_eq!(change, (uri, false));
            came(&mut state, change, Came::Failed);
        }
        assert!(state.entries.len() <= ENDING_MAX && state.later.len() <= ENDING_MAX, "{}", state.entries.len());
        for pause in PAUSES.into_iter().chain(PAUSES) {
            tokio::time::advance(pause).await;
            while let Some(change) = told(&mut state) {
                came(&mut state, change, Came::Failed);
            }
        }
        assert_eq!(state.next(true), Next::Over);
        assert!(state.entries.is_empty() && state.later.is_empty() && state.queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_resource_is_meanwhile_is_told_afterwards() {
        let mut state = State::default();
        state.want(&uris(&["a"]));
        let subscribing = told(&mut state).unwrap();
        state.want(&[]);
        assert_eq!(told(&mut state), None, "one word at a time");
        came(&mut state, subscribing, Came::Granted);
        let ending = told(&mut state).unwrap();
        assert_eq!(ending, ("a".to_owned(), false));
        state.want(&uris(&["a"]));
        came(&mut state, ending, Came::Failed);
        let again = told(&mut state).unwrap();
        assert_eq!(again, ("a".to_owned(), true), "the server may have taken it");
        // A new session meanwhile: what was said counts for nothing.
        state.begin_anew();
        came(&mut state, again.clone(), Came::Former);
        assert_eq!(told(&mut state), Some(again.clone()));
        came(&mut state, again, Came::Refused);
        assert_eq!(state.next(true), Next::Over, "it is not asked again for what it does not have");
        state.begin_anew();
        assert_eq!(told(&mut state), Some(("a".to_owned(), true)), "but in the next session");
    }
}
