//! Ping between a cancelled call and the next call of its client on a pipe.
//!
//! Owns the wait for the proof that the server has read a cancellation. Does not send the ping
//! (`own_requests.rs`). Invariant: at most one such ping is open on a connection, and no call waits
//! for it longer than [`SETTLE_TIME`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// Time limit for a call to wait until its server has read earlier cancellations.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Ping of one connection.
#[derive(Default)]
pub(crate) struct CancellationBarrier {
    is_open: AtomicBool,
    settled: Notify,
}

impl CancellationBarrier {
    /// Waits for a ping if there are unread cancellations. `start_ping` starts one that ends in
    /// [`Self::end_ping`].
    pub(crate) async fn wait(&self, has_unread: impl Fn() -> bool, start_ping: impl Fn()) {
        if !has_unread() {
            return;
        }
        let settled = async {
            // A second ping is needed if one was open already: the server may have read that before
            // the cancellation.
            for _ in 0..2 {
                if !has_unread() {
                    return;
                }
                // Created before the check, so that an end in between is not missed.
                let ended = self.settled.notified();
                // One ping serves all waiting calls of the connection.
                if !self.is_open.swap(true, Ordering::AcqRel) {
                    start_ping();
                }
                ended.await;
            }
        };
        // After this time, the call continues. `PendingCalls` still gives it no request of a
        // cancelled call.
        let _ = timeout(SETTLE_TIME, settled).await;
    }

    /// Ends the ping, answered or not, and wakes the calls that wait for it.
    pub(crate) fn end_ping(&self) {
        self.is_open.store(false, Ordering::Release);
        self.settled.notify_waiters();
    }
}
