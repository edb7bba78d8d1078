//! Departure of the client whose roots a connection of several clients has. Owns when the
//! connection serves nobody any more. Does not replace it (`supervisor`,
//! `pool/dedicated/lifecycle.rs`). Invariant: a connection that a client may still need, or that
//! nobody else asked for, stays.

use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use crate::connection::idle_tracker::UNUSED_TIME;
use crate::connection::reconnect_backoff::HEALTHY;
use crate::connection::{NewCalls, UpstreamConnection};

/// Time between two looks at the calls of a connection.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(100);

impl UpstreamConnection {
    /// Waits until the client has left whose roots keep others out, and nothing runs any more, or
    /// until a client without roots is kept out by roots that the connection only declares.
    /// `has_tasks`: true while a task runs on the connection.
    pub(crate) async fn wait_roots_client_left(&self, has_tasks: impl Fn() -> bool) {
        tokio::select! {
            () = self.wait_owner_left(has_tasks) => {}
            // It has no owner, and nobody has called.
            () = self.calls.wait_missing_roots_refused() => {}
        }
    }

    async fn wait_owner_left(&self, has_tasks: impl Fn() -> bool) {
        match self.calls.wait_kept_out().await {
            Some(session_ended) => session_ended.cancelled().await,
            // Nothing announces the end of a stateless client, so only disuse shows it.
            None => {
                while self.take_new_calls(NewCalls::RootsOwner) {
                    sleep(UNUSED_TIME).await;
                }
            }
        }
        // A server that asks on each connection is not connected again all the time.
        sleep_until(self.opened_at + HEALTHY).await;
        while !self.calls.is_idle() || has_tasks() {
            sleep(LOOK_PAUSE).await;
        }
    }
}
