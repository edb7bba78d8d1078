//! Writes that wait for their client to read. Owns the order in which they began to wait.
//!
//! Does not write, and sets no time limit (`write_timeout.rs`). Invariant: a write is listed for as long as it waits, and
//! a client that was only slow for a moment is never chosen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time after which a write that moves nothing may be ended for the sake of others.
pub(super) const STALL_GRACE: Duration = Duration::from_secs(1);

/// Waiting writes of all connections, the longest waiting one first.
#[derive(Default)]
pub(super) struct StalledWrites {
    waiting: Mutex<BTreeMap<u64, Arc<StalledWrite>>>,
    next: AtomicU64,
}

struct StalledWrite {
    since: Instant,
    must_end: AtomicBool,
    task: AtomicWaker,
}

/// Place of one write in the list, until it is dropped.
pub(super) struct StallGuard {
    write: Arc<StalledWrite>,
    id: u64,
    list: Arc<StalledWrites>,
}

impl StalledWrites {
    /// Lists a write that begins to wait.
    pub(super) fn begin(self: &Arc<Self>) -> StallGuard {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let write = StalledWrite { since: Instant::now(), must_end: AtomicBool::new(false), task: AtomicWaker::new() };
        let write = Arc::new(write);
        self.waiting.lock().insert(id, write.clone());
        StallGuard { write, id, list: self.clone() }
    }

    /// Ends the write that has waited longest, if it has waited for more than a moment.
    pub(super) fn end_oldest(&self) -> bool {
        let oldest = {
            let mut waiting = self.waiting.lock();
            let oldest = waiting.first_entry().filter(|entry| entry.get().since.elapsed() >= STALL_GRACE);
            oldest.map(|entry| entry.remove())
        };
        let Some(write) = oldest else { return false };
        write.must_end.store(true, Ordering::Release);
        write.task.wake();
        true
    }
}

impl StallGuard {
    /// True if the write is to end. Wakes the task when it is.
    pub(super) fn must_end(&self, cx: &Context<'_>) -> bool {
        // Registered before the flag is read: an end after that read wakes the task.
        self.write.task.register(cx.waker());
        self.write.must_end.load(Ordering::Acquire)
    }
}

impl Drop for StallGuard {
    fn drop(&mut self) {
        self.list.waiting.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn must_end(guard: &StallGuard) -> bool {
        guard.must_end(&Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn the_write_that_waits_longest_ends_first() {
        let writes = Arc::new(StalledWrites::default());
        let first = writes.begin();
        let second = writes.begin();
        assert!(!writes.end_oldest(), "both are slow for a moment only");
        tokio::time::advance(STALL_GRACE).await;
        assert!(writes.end_oldest());
        assert!(must_end(&first));
        assert!(!must_end(&second));
        drop(second);
        assert!(!writes.end_oldest(), "it goes on");
    }
}
