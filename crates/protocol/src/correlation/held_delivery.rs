//! Delivery of a server request that several clients' calls could be about when it arrived. Owns when it is one client's.
//! Does not hold it (`legacy/upstream/held_requests.rs`). Invariant: it goes to a call that was open at its arrival, and
//! only when no other client has such a call.

use std::sync::atomic::Ordering;

use super::{CorrelationEntry, PendingCalls};
use moongate_jsonrpc::message::{RequestId, RpcRequest};
use moongate_model::InputKind;

/// Fate of a request that was held until one client was left.
pub(crate) enum HeldDelivery {
    /// A call got it.
    Delivered,
    /// Calls of several clients are still open.
    Ambiguous(RpcRequest),
    /// No client is left that could answer it.
    Unanswerable(RpcRequest),
}

impl PendingCalls {
    /// Returns the newest call that a request could be about which found none when it arrived.
    pub(crate) fn newest_at_arrival(&self, id: &RequestId) -> u64 {
        self.0.unattributed.take(id).unwrap_or_else(|| self.0.last.load(Ordering::Relaxed))
    }

    /// Delivers a server request that several clients' calls could be about when it arrived, once only one of them has
    /// such calls left. `newest`: the newest call at its arrival.
    pub(crate) fn deliver_held(&self, request: RpcRequest, newest: u64) -> HeldDelivery {
        let kind = InputKind::classify(&request.method, &request.params);
        let fits = |id, open: &CorrelationEntry| id <= newest && open.stray_messages.is_some() && open.accepts(kind);
        if !self.0.open.lock().iter().any(|(id, open)| fits(*id, open)) {
            return HeldDelivery::Unanswerable(request);
        }
        match self.sole_candidate_until(newest, kind, fits).filter(|id| self.may_ask(*id, kind)) {
            Some(id) => self.push(id, request).map_or_else(HeldDelivery::Unanswerable, |()| HeldDelivery::Delivered),
            None if self.has_several_owners(newest) => HeldDelivery::Ambiguous(request),
            // It may be about a call that its client gave up, which no wait shows.
            None => HeldDelivery::Unanswerable(request),
        }
    }

    /// Returns true if calls of several clients are open, up to the newest one that counts.
    fn has_several_owners(&self, newest: u64) -> bool {
        let open = self.0.open.lock();
        let mut owners = open.range(..=newest).filter_map(|(_, call)| call.owner.as_ref());
        owners.next().is_some_and(|first| owners.any(|other| other != first))
    }
}
