//! Cancelled calls that a server may still send messages about, with the clients that calls belong
//! to.
//!
//! Owns whom such messages may concern. Does not time them out (`correlation.rs`). Invariant: one
//! client's cancelled call is never another client's.

use tokio::time::Instant;

use moongate_jsonrpc::json::ByteString;

/// Cancelled calls of one client.
pub(super) struct CancelledCall {
    /// Owner of the calls. `None` for the shared entry of clients beyond the limit.
    pub(super) owner: Option<CallOwner>,
    /// True if one of the calls could receive an input request.
    pub(super) accepts_input: bool,
    /// Last request id at that moment. A response to a later request proves that the server read
    /// the cancellation.
    pub(super) last: u64,
    /// True once the server has read the cancellation. A tool may still continue. Calls of the same
    /// principal ignore that; calls of other principals wait for `CANCELLED_TIME`.
    pub(super) is_read: bool,
    pub(super) until: Instant,
}

impl CancelledCall {
    /// True if a message that seems to be about `other` may come from these calls.
    pub(super) fn may_concern(&self, other: Option<&CallOwner>) -> bool {
        match (&self.owner, other) {
            (Some(owner), Some(other)) if owner.principal == other.principal => {
                owner != other && !self.is_read
            }
            _ => true,
        }
    }
}

/// Owner of a call: one session, or a principal without sessions.
///
/// Calls of one owner may see each other's messages. Clients without sessions differ by their
/// principals alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallOwner {
    pub(super) principal: u32,
    pub(super) session: Option<ByteString>,
}
