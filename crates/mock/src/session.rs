//! Legacy session: the state that an `initialize` opened.
//!
//! Owns the state kept for one client. Does not own its streams. Invariant: an input request takes
//! one response, from the session that got the request.

use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::atomic::{AtomicBool, AtomicU64},
};

use serde_json::Value;
use tokio::{sync::oneshot, task::AbortHandle};

use super::{change_notice::ChangeNotice, revision::Revision};

/// Limits of a session: input requests that wait for a response, and subscribed URIs.
const PENDING_MAX: usize = 1024;
/// Limit of running requests in a session or pipe. More of them get no response.
// The mock also runs in load tests, where a client may never end its requests.
const RUNNING_MAX: usize = 4096;
/// Events stored for `Last-Event-ID` in a session.
const REPLAY_MAX: usize = 256;

/// Response of a client to an input request: a result or an error.
pub(super) type ClientResponse = Result<Value, Value>;

pub(super) struct MockSession {
    pub(super) id: String,
    pub(super) revision: Revision,
    pub(super) capabilities: Value,
    pub(super) client: Value,
    pub(super) ready: AtomicBool,
    pub(super) counter: AtomicU64,
    /// Client's roots, once it answered.
    pub(super) roots: Mutex<Option<Value>>,
    pub(super) log: Mutex<Option<String>>,
    pub(super) subscribed: Mutex<HashSet<String>>,
    pub(super) running: RunningRequests,
    pub(super) replay: Mutex<VecDeque<StoredEvent>>,
    pending_requests: Mutex<HashMap<String, oneshot::Sender<ClientResponse>>>,
}

/// Event for resumption: its stream, its number there, its message, and a mark for the last one.
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
            roots: Mutex::default(),
            log: Mutex::default(),
            subscribed: Mutex::default(),
            running: RunningRequests::default(),
            replay: Mutex::default(),
            pending_requests: Mutex::default(),
        }
    }

    pub(super) fn is_subscribed_to(&self, notice: &ChangeNotice) -> bool {
        match notice {
            // Legacy clients get list changes without a subscription. Only resources have one.
            ChangeNotice::List(_) => true,
            ChangeNotice::Resource(uri) => self.subscribed.lock().contains(uri),
        }
    }

    pub(super) fn subscribe(&self, uri: &str) -> bool {
        let mut all = self.subscribed.lock();
        all.len() < PENDING_MAX && {
            all.insert(uri.to_owned());
            true
        }
    }

    /// Registers an input request by its id. `None` above the limit.
    pub(super) fn expect_response(&self, id: &str) -> Option<oneshot::Receiver<ClientResponse>> {
        let mut pending = self.pending_requests.lock();
        // A call that ended no longer waits, so its entry must not count.
        pending.retain(|_, waiting| !waiting.is_closed());
        if pending.len() >= PENDING_MAX {
            return None;
        }
        let (tx, rx) = oneshot::channel();
        pending.insert(id.to_owned(), tx);
        Some(rx)
    }

    /// Delivers a response. False if no request waits for it.
    pub(super) fn deliver_response(&self, id: &str, reply: ClientResponse) -> bool {
        self.pending_requests
            .lock()
            .remove(id)
            .is_some_and(|waiting| waiting.send(reply).is_ok())
    }

    pub(super) fn store_event(&self, event: StoredEvent) {
        let mut all = self.replay.lock();
        all.push_back(event);
        // The oldest goes: a client that resumes was most likely cut off a moment ago.
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
        let mut all = self.0.lock();
        // Finished tasks do not remove themselves, so they are removed here.
        all.retain(|_, task| !task.is_finished());
        if all.len() >= RUNNING_MAX {
            task.abort();
            return;
        }
        all.insert(id.to_owned(), task);
    }

    /// Cancels a request. False if it is not running.
    pub(super) fn cancel(&self, id: &str) -> bool {
        self.0.lock().remove(id).is_some_and(|task| {
            let running = !task.is_finished();
            task.abort();
            running
        })
    }
}
