//! Shared connection of a pool, and what its handshakes showed of the server.
//!
//! Owns when a connection comes into use, and when it goes out of use. Does not dial it
//! (`supervisor`) or choose it for a call. Invariant: a call that sees a connection sees its
//! handshake.

use std::sync::Arc;

use crate::connection::UpstreamConnection;
use crate::event::{Audience, DedicatedSessions};
use crate::gateway_caller::gateway_caller;
use crate::pool::connect_demand::ConnectDemand;
use crate::pool::era_selection::LastHandshake;
use crate::pool::{CheckedOut, ConnectionPool};
use moongate_model::{Error, ServerDescription, TaskState};
use moongate_protocol::LegacyGreeting;

impl ConnectionPool {
    /// Returns the shared connection, while there is one.
    pub(crate) fn shared(&self) -> Option<Arc<UpstreamConnection>> {
        self.shared.get()
    }

    /// Waits for the shared connection. Fails if none can be expected.
    pub(crate) async fn wait_connected(&self) -> Result<Arc<UpstreamConnection>, Error> {
        self.shared.wait().await
    }

    /// Returns the error of a call that got no connection in its time.
    pub(crate) fn checkout_timeout(&self) -> Error {
        self.shared.checkout_timeout()
    }

    /// Returns the demand of callers for the shared connection.
    pub(crate) fn demand(&self) -> &ConnectDemand {
        &self.shared.demand
    }

    /// Takes a connection into use as the shared one.
    pub(crate) fn set_shared(&self, connection: Arc<UpstreamConnection>) {
        let description = connection.server.describe(&gateway_caller());
        // Another release of the server may do without.
        let before = self
            .last_handshake
            .load_full()
            .filter(|before| before.era == connection.era);
        if before.is_some_and(|before| before.description.info != description.info) {
            self.legacy_tools.clear();
            self.asking_tools.clear();
        }
        let other = self
            .eras
            .record_connected(connection.era, self.last_handshake.load().as_deref());
        let handshake = LastHandshake {
            era: connection.era,
            is_multiplexed: connection.link.is_multiplexed(),
            description,
            speaks_other_era: other,
            greeting: connection.greeting.or_else(|| self.greeting()),
        };
        // Stored before the connection, so that a call that sees the connection sees its handshake.
        self.last_handshake.store(Some(Arc::new(handshake)));
        // The clients of the previous connection have no state on this one.
        self.shared_clients.reset();
        self.shared.set(connection);
    }

    /// Takes a connection out of use, unless another took its place. The facts of its handshake
    /// stay.
    pub(crate) fn clear_shared(&self, connection: &Arc<UpstreamConnection>) {
        if !self.shared.clear(connection) {
            return;
        }
        if let Some(handshake) = self.last_handshake.load_full() {
            // The server may have changed its description since the handshake.
            let description = connection.server.describe(&gateway_caller());
            self.last_handshake.store(Some(Arc::new(LastHandshake {
                description,
                ..(*handshake).clone()
            })));
        }
    }

    /// Restores the handshake of a previous process. A pipe that speaks both eras starts in the era
    /// of its clients.
    pub(crate) fn restore_handshake(&self, handshake: LastHandshake) {
        if handshake.is_multiplexed && handshake.speaks_other_era == Some(true) {
            self.eras.prefer_era(handshake.era);
        }
        self.last_handshake.store(Some(Arc::new(handshake)));
    }

    /// Returns the form of the legacy handshake that the server took last, perhaps of a previous
    /// process.
    pub(crate) fn greeting(&self) -> Option<LegacyGreeting> {
        self.last_handshake
            .load()
            .as_ref()
            .and_then(|handshake| handshake.greeting)
    }

    /// Returns the result of the last handshake.
    pub(crate) fn last_handshake(&self) -> Option<Arc<LastHandshake>> {
        self.last_handshake.load_full()
    }

    /// Returns the server's description. While disconnected, this is the last known one, perhaps of
    /// a previous process.
    pub(crate) fn description(&self) -> Option<ServerDescription> {
        let described = self
            .shared()
            .map(|connection| connection.server.describe(&gateway_caller()));
        described.or_else(|| {
            self.last_handshake()
                .map(|handshake| handshake.description.clone())
        })
    }

    /// Records what a call showed of a task.
    pub(crate) fn track_task(&self, checked_out: &CheckedOut, task: &TaskState) {
        match &checked_out.use_guard {
            Some(use_guard) => use_guard.track_task(task),
            None => self.shared.tasks.track_task(task),
        }
    }

    /// Returns the audience of what the server sends on the shared connection.
    pub(crate) fn shared_clients(&self) -> Audience {
        let dedicated = self.dedicated.clone();
        let share = self.sharing_mode();
        Audience::SharedClients(DedicatedSessions(Arc::new(move |caller| {
            dedicated.has_open(share, caller)
        })))
    }

    /// Waits until the shared connection has the roots of a client that has left, and runs nothing.
    pub(crate) async fn wait_roots_client_left(&self, connection: &UpstreamConnection) {
        connection
            .wait_roots_client_left(|| self.shared.tasks.has_tasks())
            .await;
    }
}
