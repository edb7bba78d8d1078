//! Replacement of one upstream by another, and changes without a new connection. Owns open calls, drain and redirect.
//! Does not decide what changes (`gateway`). Invariant: a call ends on the upstream where it began, or fails as if
//! that server had disconnected.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::upstream::{ServerSettings, Upstream, UpstreamState};

/// Calls that are open in any phase: queued, running, or waiting for input.
#[derive(Default)]
pub(in crate::upstream) struct OpenCalls {
    count: AtomicUsize,
    finished: Notify,
}

/// Guard of one open call.
pub(in crate::upstream) struct CallGuard(Arc<Upstream>);

impl CallGuard {
    pub(in crate::upstream) fn begin(upstream: &Arc<Upstream>) -> Self {
        upstream.open_calls.count.fetch_add(1, Ordering::AcqRel);
        CallGuard(upstream.clone())
    }
}

impl Deref for CallGuard {
    type Target = Arc<Upstream>;
    fn deref(&self) -> &Arc<Upstream> {
        &self.0
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if self.0.open_calls.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.open_calls.finished.notify_one();
        }
    }
}

impl Upstream {
    /// Waits for the open calls, for at most `bound`, then stops.
    pub async fn drain(&self, bound: Duration) {
        // Set first, so that no list is persisted from here on.
        self.is_draining.store(true, Ordering::Release);
        let over = async {
            while self.open_calls.count.load(Ordering::Acquire) > 0 {
                // `notify_one` stores a permit, so that an end between check and wait is seen.
                self.open_calls.finished.notified().await;
            }
        };
        if tokio::time::timeout(bound, over).await.is_err() {
            tracing::warn!(server = self.settings.name, "calls were still open after gateway.drain = {bound:?}");
        }
        // The next process must not resume sessions of a server that was replaced.
        self.pool.discard_persisted();
        self.stop().await;
    }

    /// Applies settings that can change on a live connection. See [`ServerSettings::same_connection`].
    pub fn apply_settings(&self, settings: &ServerSettings) {
        let before = self.live_settings.swap(Arc::new(self.settings.with_tunable(settings)));
        self.timeouts.update(settings.timeout, settings.ask_timeout);
        self.attempts.store(settings.attempts, Ordering::Relaxed);
        self.concurrency.resize(before.max_concurrency, settings.max_concurrency);
    }

    /// Returns the settings in force.
    pub fn live_settings(&self) -> Arc<ServerSettings> {
        self.live_settings.load_full()
    }

    /// Returns true if there is a shared connection.
    pub fn is_connected(&self) -> bool {
        self.pool.shared().is_some()
    }

    /// Copies the lists of another upstream, to serve them until this one is connected.
    pub fn copy_lists_from(&self, other: &Upstream) {
        self.lists.store(other.lists.load_full());
        if let Some(spoke) = other.pool.last_handshake() {
            self.pool.restore_handshake((*spoke).clone());
        }
        if other.pool.record.was_seen() {
            self.pool.record.restore();
        }
        self.copied_lists.store(true, Ordering::Relaxed);
        self.copy_confirmation_from(other);
    }

    /// Returns true if the lists are copies. They must be fetched before a lazy server may stay stopped.
    pub(in crate::upstream) fn has_copied_lists(&self) -> bool {
        self.copied_lists.load(Ordering::Relaxed)
    }

    /// Returns true if the upstream was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Redirects every new call to `next`, for good. Only the first redirect counts.
    pub fn redirect_to(&self, next: &Arc<Upstream>) {
        // Muted first, so that only one of the two publishes.
        self.mute_metrics();
        next.metrics_muted.store(false, Ordering::Release);
        next.publish_state(next.status.borrow().state);
        let _ = self.successor.set(next.clone());
    }

    /// Returns the upstream that stands for this server now.
    pub fn current(self: &Arc<Self>) -> &Arc<Upstream> {
        let mut latest = self;
        while let Some(next) = latest.successor.get() {
            latest = next;
        }
        latest
    }

    /// Stops publishing the metrics of the server.
    pub fn mute_metrics(&self) {
        self.metrics_muted.store(true, Ordering::Release);
    }

    /// Publishes the state as metrics.
    pub(in crate::upstream) fn publish_state(&self, state: UpstreamState) {
        if self.metrics_muted.load(Ordering::Acquire) {
            return;
        }
        // Every state has a gauge. Exactly one of them is 1.
        for other in UpstreamState::ALL {
            let gauge = self.context.metrics.server_up.with_label_values(&[&self.settings.name, other.name()]);
            gauge.set(i64::from(other == state));
        }
    }

    /// Counts a restart of the server's process.
    pub fn count_restart(&self) {
        self.context.metrics.server_restarts.with_label_values(&[&self.settings.name]).inc();
    }

    /// Closes the connections of principals that were revoked.
    pub async fn revoke_principals(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        self.pool.revoke_principals(gone).await;
    }
}
