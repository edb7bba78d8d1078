//! Connections that declare roots. Owns which callers get one: those that declare roots, at a
//! server that asks for them. Does not ask clients (`protocol`). Invariant: no client calls where
//! the server has another client's roots.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::UpstreamConnection;
use crate::pool::isolation::CallTraits;
use crate::pool::{CheckoutRequest, ConnectionPool};
use moongate_model::{Caller, Notification, ServerStart, SharingMode};
use moongate_protocol::Era;

/// Age from which a connection has shown whether its server asks for roots by itself.
const TRIAL_TIME: Duration = Duration::from_millis(300);
/// Longest time in which a connection that nobody has used is taken out of use.
const REPLACE_TIME: Duration = Duration::from_secs(2);
/// Time between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

impl ConnectionPool {
    /// Returns true if a call belongs on a connection that declares its client's roots.
    pub(super) fn needs_roots_connection(&self, caller: &Caller, traits: CallTraits) -> bool {
        // The cheap comparison first: most servers never ask.
        if !self.seen_input_flag.asks_roots() || !self.has_usable_roots(caller, traits) {
            return false;
        }
        // A client whose roots the shared connection has keeps its state there.
        if self
            .shared
            .peek()
            .as_ref()
            .is_some_and(|shared| shared.calls.has_roots_of(caller))
        {
            return false;
        }
        self.serves_legacy()
    }

    /// Returns true if a call's client has roots, and a session in which a server can ask for them.
    fn has_usable_roots(&self, caller: &Caller, traits: CallTraits) -> bool {
        caller.capabilities.roots
            && caller.session.is_some()
            && !traits.about_task
            && self.sharing_mode() == SharingMode::Auto
            && moongate_protocol::era_of(caller.revision) == Era::Legacy
    }

    /// Returns the time in which a new connection may still show that its server asks for roots. A
    /// client without roots waits, too, if its call had the server started: it must not call where
    /// it is taken for one that has some.
    pub(super) fn roots_trial(
        &self,
        connection: &UpstreamConnection,
        caller: &Caller,
        traits: CallTraits,
    ) -> Option<Duration> {
        // An eager server had its time before clients came.
        let is_lazy = self.server.settings.options.start == ServerStart::Lazy;
        let concerns = self.has_usable_roots(caller, traits)
            || is_lazy
                && connection.calls.is_roots_trial()
                && self.shares_connection(connection, traits);
        if connection.era != Era::Legacy || self.seen_input_flag.asks_roots() || !concerns {
            return None;
        }
        TRIAL_TIME.checked_sub(connection.opened_at.elapsed())
    }

    /// Sends a notification of the caller to the connections that know something of it.
    pub(crate) fn notify_connections_of(&self, caller: &Arc<Caller>, notification: &Notification) {
        self.dedicated.notify(
            (
                self.sharing_mode(),
                self.other_era(moongate_protocol::era_of(caller.revision)),
            ),
            caller,
            notification,
        );
        for connection in self
            .all_shared()
            .iter()
            .filter(|shared| shared.calls.has_roots_of(caller))
        {
            connection.server.notify(caller, notification.clone());
        }
    }

    /// Returns true if a call would find a server that counts on roots, of a client without any,
    /// also where the connection is being replaced for another call. One on which clients have
    /// called has their state, and stays.
    pub(super) fn finds_missing_roots(
        &self,
        connection: &UpstreamConnection,
        caller: &Caller,
        traits: CallTraits,
    ) -> bool {
        // The cheap comparison first: most servers never ask.
        self.seen_input_flag.asks_roots()
            && connection.calls.declares_missing_roots()
            && !self.has_usable_roots(caller, traits)
            && !connection.is_called.load(Ordering::Acquire)
            && !traits.about_task
            && self.sharing_mode() == SharingMode::Auto
    }

    /// Returns true if a call shares its connection with other clients' calls.
    fn shares_connection(&self, connection: &UpstreamConnection, traits: CallTraits) -> bool {
        !traits.about_task
            && self.sharing_mode() == SharingMode::Auto
            && self.shared_or_era(connection)
    }

    /// Waits until a connection that counts on missing roots is replaced. Returns false if it can
    /// take the call.
    pub(super) async fn wait_without_roots(
        &self,
        connection: &UpstreamConnection,
        request: &CheckoutRequest<'_>,
    ) -> bool {
        if !self.finds_missing_roots(connection, request.caller, request.traits) {
            return false;
        }
        connection.calls.refuse_missing_roots();
        let until = Instant::now() + REPLACE_TIME;
        while Instant::now() < until && self.shared_or_era(connection) {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        true
    }

    /// Waits until a new connection has shown whether its server asks for roots.
    pub(super) async fn wait_roots_trial(
        &self,
        connection: &UpstreamConnection,
        request: &CheckoutRequest<'_>,
    ) {
        let Some(left) = self.roots_trial(connection, request.caller, request.traits) else {
            return;
        };
        let until = Instant::now() + left;
        while Instant::now() < until && !self.seen_input_flag.asks_roots() {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        if connection.calls.is_roots_trial() {
            connection.calls.record_roots_tried();
        }
    }
}
