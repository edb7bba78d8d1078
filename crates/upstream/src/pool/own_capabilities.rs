//! Connections that declare what one client can answer, and no more. Owns which calls need one:
//! those of a client that cannot answer what their tool was seen to ask for. Does not learn what
//! tools ask for (`call`). Invariant: a session that got such a connection stays there.
//!
//! The shared connection declares what any client may have. A tool that looks before it asks takes
//! each client for one that it can ask, and fails where the same client, connected directly, gets
//! an answer.

use std::sync::Arc;

use crate::connection::UpstreamConnection;
use crate::pool::dedicated::ReleasePermit;
use crate::pool::isolation::CallTraits;
use crate::pool::{CheckedOut, CheckoutRequest, ConnectionPool, isolation};
use moongate_model::{Call, Caller, SharingMode};
use moongate_protocol::Era;

impl ConnectionPool {
    /// Returns true if the shared connection declares more than one client can answer, and that
    /// client can have another.
    pub(crate) fn may_declare_own(&self) -> bool {
        self.sharing_mode() == SharingMode::Auto && self.serves_legacy()
    }

    /// Returns true if the server would take a call's client for one that can answer what the tool
    /// asks for.
    pub(crate) fn is_mistaken_for_able(
        &self,
        caller: &Caller,
        traits: CallTraits,
        call: &Call,
    ) -> bool {
        self.asking_tools.exceeds(caller.capabilities, call)
            && moongate_protocol::era_of(caller.revision) == Era::Legacy
            && isolation::own_capabilities(caller, traits).is_some()
            && self.may_declare_own()
    }

    /// Returns true if legacy clients call the server in their own era.
    pub(super) fn serves_legacy(&self) -> bool {
        let is_legacy = self
            .last_handshake
            .load()
            .as_ref()
            .is_some_and(|handshake| handshake.era == Era::Legacy);
        is_legacy || self.other_era(Era::Legacy) == Some(Era::Legacy)
    }

    /// Waits for the connection that declares what the caller has, if the call needs one.
    pub(super) async fn checkout_own(
        &self,
        request: &CheckoutRequest<'_>,
        permit: &mut dyn ReleasePermit,
    ) -> Option<(Arc<UpstreamConnection>, CheckedOut)> {
        if !request.exceeds_client && !self.needs_roots_connection(request.caller, request.traits) {
            return None;
        }
        let spec = isolation::isolated_for(request.caller, true, self.shared_idle());
        match self
            .checkout_dedicated(request, permit, spec, Some(Era::Legacy))
            .await
        {
            Ok((connection, use_guard)) => Some((
                connection,
                CheckedOut {
                    use_guard: Some(use_guard),
                    is_final: true,
                },
            )),
            // On the shared connection the call runs at least.
            Err(error) => {
                tracing::debug!(
                    server = &*self.server.name,
                    "connection for one client failed: {error}"
                );
                None
            }
        }
    }
}
