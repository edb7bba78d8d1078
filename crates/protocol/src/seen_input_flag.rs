//! What a server asks its clients for, as far as it was seen. Shared by all its connections.
//!
//! Owns the record and the wake-up for what is new in it. Does not read messages
//! (`correlation.rs`). Invariant: a server that asked once counts as asking forever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// Record of what a server asks its clients for. Clones share it.
#[derive(Clone, Default)]
pub struct SeenInputFlag(Arc<SeenInputFlagState>);

#[derive(Default)]
struct SeenInputFlagState {
    seen: AtomicBool,
    roots: AtomicBool,
    extensions: AtomicBool,
    roots_tried: AtomicBool,
    learned: Notify,
}

/// Input requests that a server was seen to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenRequests {
    /// Input requests in the middle of calls.
    pub input: bool,
    /// Requests for the client's roots.
    pub roots: bool,
    /// Requests of extensions in the middle of calls.
    pub extensions: bool,
}

impl SeenInputFlag {
    /// Sets the flag, for an input request in the middle of a call.
    pub fn set(&self) {
        self.learn(&self.0.seen);
    }

    /// Records a request of an extension in the middle of a call.
    pub(crate) fn set_extensions(&self) {
        self.0.extensions.store(true, Ordering::Release);
        self.set();
    }

    /// Records a request for roots.
    pub(crate) fn set_roots(&self) {
        self.learn(&self.0.roots);
    }

    /// Records that the server did not ask for roots that it was offered.
    pub(crate) fn set_roots_tried(&self) {
        self.0.roots_tried.store(true, Ordering::Release);
    }

    /// True if the server did not ask for roots that it was offered. It may still do so in a call.
    pub(crate) fn is_roots_tried(&self) -> bool {
        self.0.roots_tried.load(Ordering::Acquire)
    }

    fn learn(&self, flag: &AtomicBool) {
        if !flag.swap(true, Ordering::AcqRel) {
            self.0.learned.notify_one();
        }
    }

    /// Restores the record of an earlier process.
    pub fn restore(&self, requests: SeenRequests) {
        self.0.seen.fetch_or(requests.input, Ordering::AcqRel);
        self.0.roots.fetch_or(requests.roots, Ordering::AcqRel);
        self.0
            .extensions
            .fetch_or(requests.extensions, Ordering::AcqRel);
    }

    /// Returns what was seen, in this process or an earlier one.
    pub fn seen_requests(&self) -> SeenRequests {
        SeenRequests {
            input: self.is_set(),
            roots: self.asks_roots(),
            extensions: self.asks_extensions(),
        }
    }

    /// True if the server has sent an input request in the middle of a call.
    pub fn is_set(&self) -> bool {
        self.0.seen.load(Ordering::Acquire)
    }

    /// True if the server has asked for a client's roots.
    pub fn asks_roots(&self) -> bool {
        self.0.roots.load(Ordering::Acquire)
    }

    /// True if the server has sent a request of an extension in the middle of a call.
    pub(crate) fn asks_extensions(&self) -> bool {
        self.0.extensions.load(Ordering::Acquire)
    }

    /// Waits until something new was seen. Wakes one waiter, once.
    pub async fn wait_learned(&self) {
        self.0.learned.notified().await;
    }
}
