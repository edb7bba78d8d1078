//! Events that a session's client could not get, in a previous process or during sleep.
//!
//! Owns what the client must still learn about them. Does not send it. Invariant: each is reported
//! once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use moongate_jsonrpc::message::RequestId;

/// Missed events of one session.
pub struct MissedEvents {
    /// True if the client may have missed changes and has not been notified.
    pending_catch_up: AtomicBool,
    /// Responses that a previous process did not deliver: stream numbers and requests.
    lost_requests: Mutex<HashMap<u64, RequestId>>,
}

impl MissedEvents {
    pub(super) fn new(pending_catch_up: bool) -> Self {
        MissedEvents {
            pending_catch_up: AtomicBool::new(pending_catch_up),
            lost_requests: Mutex::default(),
        }
    }

    /// Adds what a previous process left: the streams and requests without a response.
    pub(super) fn add_lost(&self, requests: impl Iterator<Item = (u64, RequestId)>) {
        self.lost_requests.lock().extend(requests);
    }

    /// Records that the client may have missed changes.
    pub(super) fn require_catch_up(&self) {
        self.pending_catch_up.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_catch_up_pending(&self) -> bool {
        self.pending_catch_up.load(Ordering::Relaxed)
    }

    /// Takes the flag that the client may have missed changes.
    pub fn take_catch_up(&self) -> bool {
        self.pending_catch_up.swap(false, Ordering::Relaxed)
    }

    /// Takes the request whose response a previous process did not deliver on this stream.
    pub fn take_lost_request(&self, stream: u64) -> Option<RequestId> {
        self.lost_requests.lock().remove(&stream)
    }

    /// Returns true if no lost request is left.
    pub(super) fn is_empty(&self) -> bool {
        self.lost_requests.lock().is_empty()
    }
}
