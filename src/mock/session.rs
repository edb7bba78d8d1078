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

use super::{record::lock, revision::Revision, server::Notice};

/// Asks that wait for an answer, and URIs subscribed, a session.
const KEPT: usize = 1024;
/// Requests running at once, a session or pipe; more are not answered.
const RUNNING: usize = 4096;
/// Events kept for `Last-Event-ID`, a session.
const REPLAY: usize = 256;

/// An answer to an ask: a result or an error.
pub(super) type Reply = Result<Value, Value>;

pub(super) struct Session {
    pub(super) id: String,
    pub(super) revision: Revision,
    pub(super) caps: Value,
    pub(super) client: Value,
    pub(super) ready: AtomicBool,
    pub(super) counter: AtomicU64,
    pub(super) log: Mutex<Option<String>>,
    pub(super) subscribed: Mutex<HashSet<String>>,
    pub(super) running: Running,
    pub(super) replay: Mutex<VecDeque<Event>>,
    asks: Mutex<HashMap<String, oneshot::Sender<Reply>>>,
}

/// An event that may be asked for again: the stream it belongs to, its number there, the message, whether it ends it.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) stream: u64,
    pub(super) number: u64,
    pub(super) message: String,
    pub(super) last: bool,
}

impl Session {
    pub(super) fn new(id: String, revision: Revision, params: &Value) -> Self {
        Self {
            id,
            revision,
            caps: params["capabilities"].clone(),
            client: params["clientInfo"].clone(),
            ready: AtomicBool::new(false),
            counter: AtomicU64::new(0),
            log: Mutex::default(),
            subscribed: Mutex::default(),
            running: Running::default(),
            replay: Mutex::default(),
            asks: Mutex::default(),
        }
    }

    pub(super) fn wants(&self, notice: &Notice) -> bool {
        match notice {
            Notice::List(_) => true,
            Notice::Resource(uri) => lock(&self.subscribed).contains(uri),
        }
    }

    pub(super) fn subscribe(&self, uri: &str) -> bool {
        let mut all = lock(&self.subscribed);
        all.len() < KEPT && {
            all.insert(uri.to_owned());
            true
        }
    }

    /// Expects an answer to the ask of this id.
    pub(super) fn expect(&self, id: &str) -> Option<oneshot::Receiver<Reply>> {
        let mut asks = lock(&self.asks);
        asks.retain(|_, waiting| !waiting.is_closed());
        if asks.len() >= KEPT {
            return None;
        }
        let (tx, rx) = oneshot::channel();
        asks.insert(id.to_owned(), tx);
        Some(rx)
    }

    /// Hands over an answer; false when nobody asked.
    pub(super) fn answer(&self, id: &str, reply: Reply) -> bool {
        lock(&self.asks).remove(id).is_some_and(|waiting| waiting.send(reply).is_ok())
    }

    pub(super) fn remember(&self, event: Event) {
        let mut all = lock(&self.replay);
        all.push_back(event);
        if all.len() > REPLAY {
            all.pop_front();
        }
    }
}

/// Requests that are being answered, by id, so that they can be cancelled.
#[derive(Default)]
pub(super) struct Running(Mutex<HashMap<String, AbortHandle>>);

impl Running {
    pub(super) fn add(&self, id: &str, task: AbortHandle) {
        let mut all = lock(&self.0);
        all.retain(|_, task| !task.is_finished());
        if all.len() >= RUNNING {
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
