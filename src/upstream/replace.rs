//! One server taking another's place, and changes that need no new connection.
//!
//! Owns counting what is open, letting it end, and sending new calls on. Does not decide what changes (`gateway`).
//! Invariant: a call runs on the server that it began at, or fails as it would if that server had gone.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::upstream::{ServerSettings, Upstream, UpstreamState};

/// Calls that are open, wherever they are: waiting for a place, running, or asking their client something.
#[derive(Default)]
pub(super) struct OpenCalls {
    count: AtomicUsize,
    finished: Notify,
}

/// A call, until it is over.
pub(super) struct CallGuard(Arc<Upstream>);

impl CallGuard {
    pub(super) fn begin(upstream: &Arc<Upstream>) -> Self {
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
    /// Lets the open calls end, for at most `bound`, then stops.
    pub async fn drain(&self, bound: Duration) {
        self.is_draining.store(true, Ordering::Release);
        let over = async {
            while self.open_calls.count.load(Ordering::Acquire) > 0 {
                self.open_calls.finished.notified().await;
            }
        };
        if tokio::time::timeout(bound, over).await.is_err() {
            tracing::warn!(server = self.settings.name, "calls were still open after gateway.drain = {bound:?}");
        }
        // No other run goes on with its sessions.
        self.pool.discard_persisted();
        self.stop().await;
    }

    /// Applies what can change on a connection; see [`ServerSettings::same_connection`].
    pub fn apply_settings(&self, settings: &ServerSettings) {
        let before = self.live_settings.swap(Arc::new(self.settings.with_tunable(settings)));
        self.timeouts.update(settings.timeout, settings.ask_timeout);
        self.attempts.store(settings.attempts, Ordering::Relaxed);
        self.concurrency.resize(before.max_concurrency, settings.max_concurrency);
    }

    /// The settings that hold now.
    pub fn live_settings(&self) -> Arc<ServerSettings> {
        self.live_settings.load_full()
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.pool.shared().is_some()
    }

    /// Begins with what another knows of the server, to be served until it is connected itself.
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

    /// Whether what it knows of the server was inherited: it has to be learned before it can be relied on.
    pub(super) fn has_copied_lists(&self) -> bool {
        self.copied_lists.load(Ordering::Relaxed)
    }

    /// Whether it was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Sends every new call on to `next`. It is for good, and once.
    pub fn redirect_to(&self, next: &Arc<Upstream>) {
        self.mute_metrics();
        next.metrics_muted.store(false, Ordering::Release);
        next.publish_state(next.status.borrow().state);
        let _ = self.successor.set(next.clone());
    }

    /// What stands for this server by now.
    pub fn current(self: &Arc<Self>) -> &Arc<Upstream> {
        let mut latest = self;
        while let Some(next) = latest.successor.get() {
            latest = next;
        }
        latest
    }

    /// Leaves the metrics of the server to another, or to nobody.
    pub fn mute_metrics(&self) {
        self.metrics_muted.store(true, Ordering::Release);
    }

    /// Puts the state into the metrics.
    pub(super) fn publish_state(&self, state: UpstreamState) {
        if self.metrics_muted.load(Ordering::Acquire) {
            return;
        }
        for other in UpstreamState::ALL {
            let gauge = self.context.metrics.server_up.with_label_values(&[&self.settings.name, other.name()]);
            gauge.set(i64::from(other == state));
        }
    }

    /// Counts that the server's process was started anew.
    pub fn count_restart(&self) {
        self.context.metrics.server_restarts.with_label_values(&[&self.settings.name]).inc();
    }

    /// Closes the connections of principals that are gone.
    pub async fn revoke_principals(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        self.pool.revoke_principals(gone).await;
    }
}
