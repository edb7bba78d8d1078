//! Record that a server sends input requests, shared by all its connections.
//!
//! Owns the record and the wake-up for the first request. Does not read messages (`correlation.rs`). Invariant: a
//! server that sent one counts as interactive for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Record that a server sends input requests in the middle of calls. Clones share it.
#[derive(Clone, Default)]
pub struct InputRecord(Arc<InputRecordState>);

#[derive(Default)]
struct InputRecordState {
    seen: AtomicBool,
    learned: Notify,
}

impl InputRecord {
    /// Records an input request.
    pub fn record(&self) {
        if !self.0.seen.swap(true, Ordering::AcqRel) {
            self.0.learned.notify_one();
        }
    }

    /// Restores the record of an earlier process.
    pub fn restore(&self) {
        self.0.seen.store(true, Ordering::Release);
    }

    /// True if the server has sent an input request, in this process or an earlier one.
    pub fn was_seen(&self) -> bool {
        self.0.seen.load(Ordering::Acquire)
    }

    /// Waits for the first input request. Wakes one waiter, once.
    pub async fn wait_seen(&self) {
        self.0.learned.notified().await;
    }
}
