//! One server taking another's place, and changes that need no new connection.
//!
//! Owns counting what is open, letting it end, and sending new calls on. Does not decide what changes (`gateway`).
//! Invariant: a call runs on the server that it began at, or fails as it would if that server had gone.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::upstream::{ServerSettings, State, Upstream};

/// Calls that are open, wherever they are: waiting for a place, running, or asking their client something.
#[derive(Default)]
pub(super) struct Open {
    count: AtomicUsize,
    over: Notify,
}

/// A call, until it is over.
pub(super) struct InCall(Arc<Upstream>);

impl InCall {
    pub(super) fn begin(upstream: &Arc<Upstream>) -> Self {
        upstream.open.count.fetch_add(1, Ordering::AcqRel);
        InCall(upstream.clone())
    }
}

impl Deref for InCall {
    type Target = Arc<Upstream>;
    fn deref(&self) -> &Arc<Upstream> {
        &self.0
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        if self.0.open.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.open.over.notify_one();
        }
    }
}

impl Upstream {
    /// Lets the open calls end, for at most `bound`, then stops.
    pub async fn drain(&self, bound: Duration) {
        self.leaving.store(true, Ordering::Release);
        let over = async {
            while self.open.count.load(Ordering::Acquire) > 0 {
                self.open.over.notified().await;
            }
        };
        if tokio::time::timeout(bound, over).await.is_err() {
            tracing::warn!(server = self.settings.name, "calls were still open after gateway.drain = {bound:?}");
        }
        // No other run goes on with its sessions.
        self.connections.keep_none();
        self.stop().await;
    }

    /// Applies what can change on a connection; see [`ServerSettings::same_connection`].
    pub fn tune(&self, settings: &ServerSettings) {
        let before = self.live.swap(Arc::new(self.settings.tuned(settings)));
        self.times.set(settings.timeout, settings.ask_timeout);
        self.attempts.store(settings.attempts, Ordering::Relaxed);
        self.slots.resize(before.max_concurrency, settings.max_concurrency);
    }

    /// The settings that hold now.
    pub fn live(&self) -> Arc<ServerSettings> {
        self.live.load_full()
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.connections.main().is_some()
    }

    /// Begins with what another knows of the server, to be served until it is connected itself.
    pub fn inherit(&self, other: &Upstream) {
        self.items.store(other.items.load_full());
        if let Some(spoke) = other.connections.spoke() {
            self.connections.remember((*spoke).clone());
        }
        if other.connections.record.was_seen() {
            self.connections.record.remember();
        }
        self.heir.store(true, Ordering::Relaxed);
        self.inherit_doubt(other);
    }

    /// Whether what it knows of the server was inherited: it has to be learned before it can be relied on.
    pub(super) fn is_heir(&self) -> bool {
        self.heir.load(Ordering::Relaxed)
    }

    /// Whether it was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Sends every new call on to `next`. It is for good, and once.
    pub fn give_way_to(&self, next: &Arc<Upstream>) {
        self.hide();
        next.quiet.store(false, Ordering::Release);
        next.show(next.status.borrow().state);
        let _ = self.next.set(next.clone());
    }

    /// What stands for this server by now.
    pub fn latest(self: &Arc<Self>) -> &Arc<Upstream> {
        let mut latest = self;
        while let Some(next) = latest.next.get() {
            latest = next;
        }
        latest
    }

    /// Leaves the metrics of the server to another, or to nobody.
    pub fn hide(&self) {
        self.quiet.store(true, Ordering::Release);
    }

    /// Puts the state into the metrics.
    pub(super) fn show(&self, state: State) {
        if self.quiet.load(Ordering::Acquire) {
            return;
        }
        for other in State::ALL {
            let gauge = self.shared.metrics.server_up.with_label_values(&[&self.settings.name, other.name()]);
            gauge.set(i64::from(other == state));
        }
    }

    /// Counts that the server's process was started anew.
    pub fn count_restart(&self) {
        self.shared.metrics.server_restarts.with_label_values(&[&self.settings.name]).inc();
    }

    /// Closes the connections of principals that are gone.
    pub async fn forget(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        self.connections.close_of(gone).await;
    }
}
