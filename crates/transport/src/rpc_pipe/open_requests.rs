//! Requests of a pipe whose answers have not arrived.
//!
//! Owns their table and the messages that calls receive. Does not read or write (`line_codec`).
//! Invariant: a broken pipe has no open requests, only the reason of its end.

use std::collections::HashMap;

use tokio::sync::mpsc;

use crate::LinkError;
use crate::byte_budget::ByteReservation;
use moongate_jsonrpc::message::RpcMessage;

/// Message for a call, with its share of the byte budget. Answers reserve nothing: each call has at
/// most one.
pub(super) struct CallMessage {
    pub(super) message: Result<RpcMessage, LinkError>,
    pub(super) _reservation: Option<ByteReservation>,
}

impl CallMessage {
    /// Builds the message that ends a call.
    pub(super) fn end(message: Result<RpcMessage, LinkError>) -> Self {
        CallMessage {
            message,
            _reservation: None,
        }
    }
}

/// Open requests by id, or the reason why no more are accepted.
pub(super) enum OpenRequestTable {
    Calls(HashMap<u64, mpsc::Sender<CallMessage>>),
    Broken(LinkError),
}

impl OpenRequestTable {
    /// Finds a request whose response has not arrived.
    pub(super) fn find(&self, id: u64) -> Option<&mpsc::Sender<CallMessage>> {
        match self {
            OpenRequestTable::Calls(calls) => calls.get(&id),
            OpenRequestTable::Broken(_) => None,
        }
    }
}
