//! Count of one server's calls that are open in any phase: queued, running, or waiting for input.
//! Does not end them. Invariant: a call counts until its stream is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Count of open calls.
#[derive(Default)]
pub(crate) struct OpenCallCount {
    count: AtomicUsize,
    finished: Notify,
}

/// Guard of one open call.
pub(crate) struct OpenCallGuard(Arc<OpenCallCount>);

impl OpenCallCount {
    /// Counts a call until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenCallGuard {
        self.count.fetch_add(1, Ordering::AcqRel);
        OpenCallGuard(self.clone())
    }

    /// Waits until no call is open.
    pub(crate) async fn wait_finished(&self) {
        while self.count.load(Ordering::Acquire) > 0 {
            // `notify_one` stores a permit, so that an end between check and wait is seen.
            self.finished.notified().await;
        }
    }
}

impl Drop for OpenCallGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.finished.notify_one();
        }
    }
}
