//! Flag that a server sends input requests, shared by all its connections.
//!
//! Owns the flag and the wake-up for the first request. Does not read messages (`correlation.rs`). Invariant: a
//! server that sent one counts as interactive for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Flag that a server sends input requests in the middle of calls. Clones share it.
#[derive(Clone, Default)]
pub struct InteractiveFlag(Arc<InteractiveFlagState>);

#[derive(Default)]
struct InteractiveFlagState {
    seen: AtomicBool,
    learned: Notify,
}

impl InteractiveFlag {
    /// Sets the flag, for an input request.
    pub fn set(&self) {
        if !self.0.seen.swap(true, Ordering::AcqRel) {
            self.0.learned.notify_one();
        }
    }

    /// Restores the flag of an earlier process.
    pub fn restore(&self) {
        self.0.seen.store(true, Ordering::Release);
    }

    /// True if the server has sent an input request, in this process or an earlier one.
    pub fn is_set(&self) -> bool {
        self.0.seen.load(Ordering::Acquire)
    }

    /// Waits for the first input request. Wakes one waiter, once.
    pub async fn wait_set(&self) {
        self.0.learned.notified().await;
    }
}
