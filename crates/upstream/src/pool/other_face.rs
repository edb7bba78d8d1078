//! Face of a server in the era that its shared connection does not have. Owns its checkout, and
//! what a failed attempt shows of the server. Does not list it (`lists/dedicated/face_lister.rs`).
//! Invariant: a server that refuses an era is not tried in it again while it is connected.

use std::sync::Arc;

use crate::connection::UpstreamConnection;
use crate::gateway_caller::gateway_caller;
use crate::lists::dedicated::face_lister::FaceLister;
use crate::pool::dedicated::ReleasePermit;
use crate::pool::dedicated::table::UseGuard;
use crate::pool::era_selection::LastHandshake;
use crate::pool::isolation::{self, DedicatedSpec};
use crate::pool::{CheckoutRequest, ConnectionPool};
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::{Call, Error, ItemKind, McpErrorKind, McpMethod};
use moongate_protocol::Era;

/// Permit of the gateway itself, whose own requests hold none.
struct NoPermit;

impl ReleasePermit for NoPermit {
    fn release(&mut self) {}
}

impl ConnectionPool {
    /// Returns true if the server is known to speak both eras.
    pub(crate) fn speaks_other_era(&self) -> bool {
        self.last_handshake
            .load()
            .as_ref()
            .is_some_and(|handshake| handshake.speaks_other_era == Some(true))
    }

    /// Opens the face in an era for its lists. Returns true if it is open. False: the shared
    /// connection has that era, or the server is used in one era.
    pub(crate) async fn open_face(&self, era: Era) -> bool {
        if self.other_era(era).is_none() {
            return false;
        }
        let caller = gateway_caller();
        let call = Call::new(McpMethod::List(ItemKind::Tools), JsonObject::new());
        let request = CheckoutRequest::new(&caller, era, &call);
        // Without a client's call nothing needs it for long, over HTTP neither.
        let spec = isolation::shared_in_era(era, Some(self.server.settings.options.idle_stop.0));
        let opened = self
            .checkout_other_era(&request, &mut NoPermit, spec, era)
            .await;
        opened.is_ok_and(|opened| opened.is_some())
    }

    /// Returns a connection in the era that the shared one does not have. `None`: all clients use
    /// one era.
    pub(super) async fn checkout_other_era(
        &self,
        request: &CheckoutRequest<'_>,
        permit: &mut dyn ReleasePermit,
        spec: DedicatedSpec,
        era: Era,
    ) -> Result<Option<(Arc<UpstreamConnection>, UseGuard)>, Error> {
        let key = spec.key.clone();
        let known = self.speaks_other_era();
        // A server that is silent in the other era leaves the call half of its time for this one.
        let limit = self.server.timeouts.call() / if known { 1 } else { 2 };
        match tokio::time::timeout(
            limit,
            self.checkout_dedicated(request, permit, spec, Some(era)),
        )
        .await
        {
            Ok(Ok((connection, use_guard))) if can_request_input(&connection, era) => {
                return Ok(Some((connection, use_guard)));
            }
            // Without a session the server cannot send input requests there, which was the reason
            // to try.
            Ok(Ok((connection, _))) => self.leave_era(&key, &connection),
            // A full pool shows nothing of the server.
            Ok(Err(error)) if error.kind == McpErrorKind::Overloaded => {}
            Ok(Err(error)) => self.stay_in_one_era(&key, error)?,
            Err(_) => self.stay_in_one_era(&key, self.checkout_timeout())?,
        }
        Ok(None)
    }

    /// Falls back to one era after a failed attempt in the other. Fails if that era is known to be
    /// spoken.
    fn stay_in_one_era(&self, key: &ByteString, error: Error) -> Result<(), Error> {
        let handshake = self.last_handshake.load_full();
        // The server answered and refused, so that it does not speak that era.
        if let Some(handshake) = handshake.filter(|_| self.dedicated.was_refused(key)) {
            self.last_handshake.store(Some(Arc::new(LastHandshake {
                speaks_other_era: Some(false),
                ..(*handshake).clone()
            })));
        } else if self.speaks_other_era() {
            return Err(error);
        }
        self.use_one_era();
        // The dedicated connection for the fallback may have the same key.
        self.dedicated.reset_backoff(key);
        let server = &self.server.settings.name;
        tracing::info!(server, "all clients use one era: {error}");
        Ok(())
    }

    /// Keeps all clients in the era of the shared connection, with its lists.
    fn use_one_era(&self) {
        self.eras.disable_other_era();
        if self.lists.forget_other() {
            self.server.publish_lists();
        }
    }

    /// Moves all clients to the era of the shared connection: the server keeps no session in the
    /// other one. What it lists there still serves the clients of that era.
    fn leave_era(&self, key: &ByteString, connection: &Arc<UpstreamConnection>) {
        if let Some(handshake) = self.last_handshake.load_full() {
            self.last_handshake.store(Some(Arc::new(LastHandshake {
                speaks_other_era: Some(false),
                ..(*handshake).clone()
            })));
        }
        self.eras.disable_other_era();
        self.dedicated.release(key, connection);
        let lister = FaceLister::new(&self.server, &self.lists, connection.era);
        let connection = connection.clone();
        tokio::spawn(async move { lister.list_once(&connection).await });
        tracing::info!(
            server = self.server.settings.name,
            "server keeps no sessions: all clients use one era"
        );
    }
}

/// Returns true if the server can send input requests on a connection. A server without sessions
/// handles each legacy request by itself, and has nowhere to receive a response.
fn can_request_input(connection: &UpstreamConnection, era: Era) -> bool {
    era == Era::Modern
        || connection.link.is_multiplexed()
        || connection.server.export_session().is_some()
}
