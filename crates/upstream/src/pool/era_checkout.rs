//! Eras of a pool's connections. Owns which era a call gets, and which connection is the shared one
//! where clients are of another. Does not open connections. Invariant: only a shared connection that
//! no client has called on gives way to one in the other era.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::connection::UpstreamConnection;
use crate::pool::{CheckoutRequest, ConnectionPool};
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, Caller, Error, SharingMode};
use moongate_protocol::Era;

impl ConnectionPool {
    /// Returns the era in which a call should go to the server: its client's, unless its tool can
    /// ask only in the legacy era.
    pub(crate) fn wanted_era(&self, caller: &Caller, call: &Call) -> Era {
        if self.legacy_tools.includes(call) {
            Era::Legacy
        } else {
            moongate_protocol::era_of(caller.revision)
        }
    }

    /// Returns true if the server may be called in an era: it speaks it, or was not tried.
    pub(crate) fn is_open_in(&self, era: Era) -> bool {
        self.eras
            .is_open(self.last_handshake.load().as_deref(), era)
    }

    /// Returns the era of a wanted dedicated connection, if the shared connection is in the other
    /// one.
    ///
    /// A server that speaks both eras may send input requests only in the era it was written for.
    /// Requests in the middle of a call do not exist in the modern era. Each client therefore meets
    /// the server as it would without the gateway.
    pub(super) fn other_era(&self, era: Era) -> Option<Era> {
        self.eras
            .dedicated_era(self.last_handshake.load().as_deref(), era)
    }

    /// Connects the shared connection first: a pipe that speaks both eras starts in the era of its
    /// first client.
    pub(super) async fn connect_in_era(&self, request: &CheckoutRequest<'_>) -> Result<(), Error> {
        let is_pipe = self
            .last_handshake
            .load()
            .as_ref()
            .is_none_or(|handshake| handshake.is_multiplexed);
        if self.sharing_mode() == SharingMode::Auto && is_pipe && self.shared().is_none() {
            self.eras
                .prefer_era(moongate_protocol::era_of(request.caller.revision));
            self.wait_connected().await?;
        }
        Ok(())
    }

    /// Returns the idle time of dedicated connections. On a pipe, each may have a process of its
    /// own.
    pub(super) fn dedicated_idle(&self) -> Option<Duration> {
        let is_pipe = self
            .last_handshake
            .load()
            .as_ref()
            .is_some_and(|handshake| handshake.is_multiplexed);
        self.shared_idle()
            .or(is_pipe.then_some(self.server.settings.options.idle_stop.0))
    }

    /// Promotes a connection in the other era to the shared one, if no client has called on the
    /// shared one yet. If all clients are of one era, the program then runs once.
    pub(super) fn promote(&self, key: &ByteString, connection: &Arc<UpstreamConnection>) {
        let Some(shared) = self.shared() else { return };
        // Acquire pairs with the release in `open_call`: a call that started there is seen.
        let unused = shared.era != connection.era && !shared.is_called.load(Ordering::Acquire);
        if self.sharing_mode() == SharingMode::Auto
            && connection.link.is_multiplexed()
            && unused
            && self.dedicated.release(key, connection)
        {
            self.eras
                .promote(connection.clone(), |connection| self.set_shared(connection));
        }
    }
}
