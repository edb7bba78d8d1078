//! Tasks that run alongside the requests of a gateway.
//!
//! Owns their start and their order of ending. Does not know what they serve. Invariant: after the
//! end of a drain none of them runs.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::app::reload::ConfigReloader;
use crate::app::watch_files;
use moongate_session::ParkedCalls;

/// Listeners of a gateway, and the tasks that run as long as they do.
pub(super) struct BackgroundTasks {
    draining: CancellationToken,
    listeners: JoinSet<()>,
    expiring: JoinHandle<()>,
    watching: Option<JoinHandle<()>>,
}

impl BackgroundTasks {
    /// Takes the listeners, which end once `draining` is cancelled. Starts to expire parked calls.
    pub(super) fn start(
        draining: CancellationToken,
        listeners: JoinSet<()>,
        parked_calls: Arc<ParkedCalls>,
    ) -> Self {
        let expiring = tokio::spawn(parked_calls.expire_forever());
        BackgroundTasks {
            draining,
            listeners,
            expiring,
            watching: None,
        }
    }

    /// Starts work that ends with the drain.
    pub(super) fn spawn_until_drained(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.listeners.spawn(
            self.draining
                .clone()
                .run_until_cancelled_owned(work)
                .map(drop),
        );
    }

    /// Starts to watch the config files.
    pub(super) async fn watch_files(&mut self, reloader: Arc<ConfigReloader>) {
        self.watching = Some(watch_files::start_watching(reloader).await);
    }

    /// Refuses new requests from now on.
    pub(super) fn begin_drain(&self) {
        self.draining.cancel();
    }

    /// Ends the watch of the config files: a gateway that stops is not reloaded.
    pub(super) fn stop_watching(&mut self) {
        if let Some(watching) = self.watching.take() {
            watching.abort();
        }
    }

    /// Waits until each listener has ended: once its calls are done, or the drain time is over.
    pub(super) async fn join(&mut self) {
        while self.listeners.join_next().await.is_some() {}
        // Last, since a call may still be parked during the drain.
        self.expiring.abort();
    }
}
