//! Writes that wait for their client to read. Owns the order in which they started to wait.
//!
//! Does not write, and sets no time limit (`write_timeout.rs`). Invariant: a write is listed for as
//! long as it waits, and a client that was only slow for a moment is never chosen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::answer_holders::AnswerHolders;
use moongate_telemetry::MemoryHolder;

/// Time after which a write that moves nothing may be ended for the sake of others.
pub(super) const STALL_GRACE: Duration = Duration::from_secs(1);

/// Waiting writes of all connections, the longest waiting one first.
#[derive(Default)]
pub(super) struct StalledWrites {
    waiting: Mutex<BTreeMap<u64, Arc<StalledWrite>>>,
    next: AtomicU64,
}

struct StalledWrite {
    holders: AnswerHolders,
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
    /// Lists a write that starts to wait, of an answer with these holders.
    pub(super) fn begin(self: &Arc<Self>, holders: AnswerHolders) -> StallGuard {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        let must_end = AtomicBool::new(false);
        let task = AtomicWaker::new();
        let write = Arc::new(StalledWrite {
            holders,
            since,
            must_end,
            task,
        });
        self.waiting.lock().insert(id, write.clone());
        StallGuard {
            write,
            id,
            list: self.clone(),
        }
    }

    /// Ends the write of a holder's answer that has waited longest, if it has waited for more than
    /// a moment.
    ///
    /// Its task frees the answer. So whoever needed the memory finds it at the next attempt.
    pub(super) fn end_oldest(&self, holder: &MemoryHolder) -> bool {
        let oldest = {
            let mut waiting = self.waiting.lock();
            let mut old = waiting
                .iter()
                .take_while(|(_, write)| write.since.elapsed() >= STALL_GRACE);
            let oldest = old
                .find(|(_, write)| write.holders.include(holder))
                .map(|(id, _)| *id);
            oldest.and_then(|id| waiting.remove(&id))
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

    fn of(client: u32, server: &'static str) -> AnswerHolders {
        let server = Some(moongate_jsonrpc::json::ByteString::literal(server));
        AnswerHolders {
            client: Some(MemoryHolder::Principal(client)),
            server,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_write_that_waits_longest_ends_first() {
        let writes = Arc::new(StalledWrites::default());
        let holder = MemoryHolder::Principal(1);
        let first = writes.begin(of(1, "a"));
        let second = writes.begin(of(1, "a"));
        assert!(
            !writes.end_oldest(&holder),
            "both are slow for a moment only"
        );
        tokio::time::advance(STALL_GRACE).await;
        assert!(writes.end_oldest(&holder));
        assert!(must_end(&first));
        assert!(!must_end(&second));
        drop(second);
        assert!(!writes.end_oldest(&holder), "it goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_ends_for_its_own_holders_only() {
        let writes = Arc::new(StalledWrites::default());
        let unknown = writes.begin(AnswerHolders::default());
        let first = writes.begin(of(1, "a"));
        let second = writes.begin(of(2, "b"));
        tokio::time::advance(STALL_GRACE).await;
        assert!(!writes.end_oldest(&MemoryHolder::Principal(3)));
        assert!(!writes.end_oldest(&MemoryHolder::Server("c".into())));
        assert!(writes.end_oldest(&MemoryHolder::Server("b".into())));
        assert!(must_end(&second) && !must_end(&first));
        assert!(writes.end_oldest(&MemoryHolder::Principal(1)));
        assert!(must_end(&first) && !must_end(&unknown));
    }
}
