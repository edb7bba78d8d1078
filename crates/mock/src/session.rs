//! A legacy session: what an `initialize` opened.
//!
//! Owns what the server remembers of one client. Does not own its streams. Invariant: an ask has one answer, from the
//! session that was asked.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
};

use serde_json::Value;
use tokio::{sync::oneshot, task::AbortHandle};

use super::{record::lock, revision::Revision, server::ChangeNotice};

/// Asks that wait for an answer, and URIs subscribed, a session.
const PENDING_MAX: usize = 1024;
/// Requests running at once, a session or pipe; more are not answered.
const RUNNING_MAX: usize = 4096;
/// Events kept for `Last-Event-ID`, a session.
const REPLAY_MAX: usize = 256;

/// An answer to an ask: a result or an error.
pub(super) type ClientResponse = Result<Value, Value>;

pub(super) struct MockSession {
    pub(super) id: String,
    pub(super) revision: Revision,
    pub(super) capabilities: Value,
    pub(super) client: Value,
    pub(super) ready: AtomicBool,
    pub(super) counter: AtomicU64,
    pub(super) log: Mutex<Option<String>>,
    pub(super) subscribed: Mutex<HashSet<String>>,
    pub(super) running: RunningRequests,
    pub(super) replay: Mutex<VecDeque<StoredEvent>>,
    pending_requests: Mutex<HashMap<String, oneshot::Sender<ClientResponse>>>,
}

/// An event that may be asked for again: the stream it belongs to, its number there, the message, whether it ends it.
#[derive(Debug, Clone)]
pub(super) struct StoredEvent {
    pub(super) stream: u64,
    pub(super) number: u64,
    pub(super) message: String,
    pub(super) last: bool,
}

impl MockSession {
    pub(super) fn new(id: String, revision: Revision, params: &Value) -> Self {
        Self {
            id,
            revision,
            capabilities: params["capabilities"].clone(),
            client: params["clientInfo"].clone(),
            ready: AtomicBool::new(false),
            counter: AtomicU64::new(0),
            log: Mutex::default(),
            subscribed: Mutex::default(),
            running: RunningRequests::default(),
            replay: Mutex::default(),
            pending_requests: Mutex::default(),
        }
    }

    pub(super) fn is_subscribed_to(&self, notice: &ChangeNotice) -> bool {
        match notice {
            ChangeNotice::List(_) => true,
            ChangeNotice::Resource(uri) => lock(&self.subscribed).contains(uri),
        }
    }

    pub(super) fn subscribe(&self, uri: &str) -> bool {
        let mut all = lock(&self.subscribed);
        all.len() < PENDING_MAX && {
            all.insert(uri.to_owned());
            true
        }
    }

    /// Expects an answer to the ask of this id.
    pub(super) fn expect_response(&self, id: &str) -> Option<oneshot::Receiver<ClientResponse>> {
        let mut asks = lock(&self.pending_requests);
        asks.retain(|_, waiting| !waiting.is_closed());
        if asks.len() >= PENDING_MAX {
            return None;
        }
        let (tx, rx) = oneshot::channel();
        asks.insert(id.to_owned(), tx);
        Some(rx)
    }

    /// Hands over an answer; false when nobody asked.
    pub(super) fn deliver_response(&self, id: &str, reply: ClientResponse) -> bool {
        lock(&self.pending_requests).remove(id).is_some_and(|waiting| waiting.send(reply).is_ok())
    }

    pub(super) fn store_event(&self, event: StoredEvent) {
        let mut all = lock(&self.replay);
        all.push_back(event);
        if all.len() > REPLAY_MAX {
            all.pop_front();
        }
    }
}

/// Requests that are being answered, by id, so that they can be cancelled.
#[derive(Default)]
pub(super) struct RunningRequests(Mutex<HashMap<String, AbortHandle>>);

impl RunningRequests {
    pub(super) fn add(&self, id: &str, task: AbortHandle) {
        let mut all = lock(&self.0);
        all.retain(|_, task| !task.is_finished());
        if all.len() >= RUNNING_MAX {
            task.abort();
            return;
        }
        all.insert(id.to_owned(), task);
    }

    /// Stops a request; false when it is not running.
    pub(super) fn cancel(&self, id: &str) -> bool {
        lock(&self.0).remove(id).is_some_and(|task| {
            let running = !task.is_finished();
            task.abort();
            running
        })
    }
}
