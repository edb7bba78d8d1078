//! Limits of the listener, as dialects and clients on pipes need them.
//!
//! Owns the one way by which a client's messages are admitted. Does not know the limits
//! (`admission`). Invariant: nothing else in the gateway makes an [`Admitted`].

use crate::admission::AdmissionRejection;
use crate::listener_state::ListenerState;
use moongate_model::Principal;
use moongate_protocol::{AdmissionPolicy, Admitted, ClientPayload};

/// Limits of this listener, as dialects and clients on pipes need them.
struct ListenerLimits<'a>(&'a ListenerState);

impl AdmissionPolicy for ListenerLimits<'_> {
    type Rejection = AdmissionRejection;
    fn check(&self, principal: &Principal, requests: usize) -> Result<(), AdmissionRejection> {
        self.0
            .admission
            .check_limits(principal, requests, &self.0.endpoints)
    }
}

impl ListenerState {
    /// Admits the messages of a principal, or returns them with the refusal.
    pub(super) fn admit(
        &self,
        principal: &Principal,
        payload: ClientPayload,
    ) -> Result<Admitted<ClientPayload>, Box<(ClientPayload, AdmissionRejection)>> {
        Admitted::admit(payload, principal, &ListenerLimits(self))
    }
}
