//! Context of one server, for all of its parts. Owns its settings, its published status and the
//! sink of its events. Does not connect, list or call. Invariant: it uses no other part of the
//! server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::all_servers::UpstreamRuntime;
use crate::event::{Audience, EventSink, UpstreamEvent};
use crate::settings::ServerSettings;
use crate::status::UpstreamStatus;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Notification, UpstreamState};
use moongate_protocol::CallTimeouts;
use moongate_telemetry::{Metrics, ServerStateName};

/// Longest wait for the catalogue. A server is reported as ready then anyway.
const CATALOG_WAIT: std::time::Duration = std::time::Duration::from_secs(1);

/// Context that all parts of one server share.
pub(crate) struct ServerContext {
    /// Name of the server, as routes and events carry it.
    pub(crate) name: ByteString,
    /// Settings that it is connected with.
    pub(crate) settings: Arc<ServerSettings>,
    /// Settings that can change on a live connection: times and sizes.
    live_settings: ArcSwap<ServerSettings>,
    pub(crate) timeouts: Arc<CallTimeouts>,
    /// Context that all servers share.
    pub(crate) common: Arc<UpstreamRuntime>,
    pub(crate) status: watch::Sender<UpstreamStatus>,
    /// True if another `Upstream` represents the server in the metrics.
    metrics_muted: AtomicBool,
    sink: Arc<dyn EventSink>,
    /// Cancelled when the gateway stops the server.
    pub(crate) stop: CancellationToken,
}

impl ServerContext {
    /// Creates the context of a server that is not connected.
    pub(crate) fn new(
        settings: ServerSettings,
        common: Arc<UpstreamRuntime>,
        sink: Arc<dyn EventSink>,
    ) -> Arc<Self> {
        Arc::new(ServerContext {
            name: ByteString::from(settings.name.as_str()),
            live_settings: ArcSwap::from_pointee(settings.clone()),
            timeouts: Arc::new(CallTimeouts::new(
                settings.live.timeout.0,
                settings.input_timeout,
            )),
            status: watch::Sender::new(UpstreamStatus::initial(&settings.connect)),
            settings: Arc::new(settings),
            common,
            metrics_muted: AtomicBool::new(false),
            sink,
            stop: CancellationToken::new(),
        })
    }

    /// Returns the metrics of all servers.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }

    /// Returns the settings in force.
    pub(crate) fn live_settings(&self) -> Arc<ServerSettings> {
        self.live_settings.load_full()
    }

    /// Borrows the settings in force, for a moment.
    pub(crate) fn peek_live_settings(&self) -> Guard<Arc<ServerSettings>> {
        self.live_settings.load()
    }

    /// Applies settings that can change on a live connection. Returns those before.
    pub(crate) fn apply_settings(&self, settings: &ServerSettings) -> Arc<ServerSettings> {
        // Only what can change on a live connection is taken over. The rest waits for the next
        // connection.
        let before = self
            .live_settings
            .swap(Arc::new(self.settings.with_live_settings(settings)));
        self.timeouts
            .update(settings.live.timeout.0, settings.input_timeout);
        before
    }

    /// Publishes a notification of the server.
    pub(crate) fn publish(&self, audience: Audience, notification: Notification) {
        self.sink.publish(UpstreamEvent {
            server: self.name.clone(),
            audience,
            notification,
        });
    }

    /// Signals that the items or the description of the server changed.
    pub(crate) fn publish_lists(&self) {
        self.sink.lists_changed();
    }

    /// Signals that the items changed, and waits until clients see them.
    pub(crate) async fn publish_lists_and_wait(&self) {
        self.publish_lists();
        tokio::select! {
            _ = tokio::time::timeout(CATALOG_WAIT, self.sink.lists_published()) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> UpstreamState {
        self.status.borrow().state
    }

    /// Publishes the state as metrics, unless they are muted.
    pub(crate) fn publish_state(&self, state: UpstreamState) {
        if self.metrics_muted.load(Ordering::Acquire) {
            return;
        }
        // Every state has a gauge. Exactly one of them is 1.
        for other in UpstreamState::ALL {
            let gauge = self
                .metrics()
                .servers
                .up
                .series((&self.settings.name, ServerStateName(other.name())));
            gauge.set(i64::from(other == state));
        }
    }

    /// Stops publishing the metrics of the server.
    pub(crate) fn mute_metrics(&self) {
        self.metrics_muted.store(true, Ordering::Release);
    }

    /// Publishes the metrics of the server again, beginning with its state.
    pub(crate) fn unmute_metrics(&self) {
        // Before the state is published, which would do nothing otherwise.
        self.metrics_muted.store(false, Ordering::Release);
        self.publish_state(self.state());
    }
}

/// Formats a time for people.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
