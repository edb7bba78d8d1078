//! Ping between a cancelled call and the next call of its client on a pipe.
//!
//! Owns the proof that the server has read a cancellation. Does not decide which call a request belongs to
//! (`PendingCalls`). Invariant: at most one such ping is open on a connection, and no call waits for it longer than
//! [`SETTLE_TIME`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::json::JsonObject;
use crate::jsonrpc::{RequestId, encode_with, write_request};
use crate::link::HeaderList;
use crate::model::{Caller, ClientCapabilities};
use crate::revision::legacy::upstream::{GATEWAY_REQUEST_TIME, LegacyConnection};
use crate::revision::negotiate::ConnectError;

/// Time limit for a call to wait until its server has read earlier cancellations.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Ping of one connection.
#[derive(Default)]
pub(super) struct PingBarrier {
    is_open: AtomicBool,
    settled: Notify,
}

impl LegacyConnection {
    /// Waits until the server has read this client's cancellations. Its later requests are then about later calls.
    ///
    /// A server reads its pipe in order, and 2025-11-25/basic/utilities/ping.mdx says: "The receiver MUST respond
    /// promptly with an empty response". It does not say that a cancelled tool stops. So this proves nothing for
    /// other clients.
    pub(super) async fn settle_cancellations(self: &Arc<Self>, caller: &Caller) {
        if caller.capabilities == ClientCapabilities::default()
            || !self.link.is_multiplexed()
            || !self.calls.has_unread_cancellations(caller)
        {
            return;
        }
        let settled = async {
            // A second ping is needed if one was open already: the server may have read that before the cancellation.
            for _ in 0..2 {
                if !self.calls.has_unread_cancellations(caller) {
                    return;
                }
                // Created before the check, so that an end in between is not missed.
                let over = self.ping_barrier.settled.notified();
                // One ping serves all waiting calls of the connection.
                if !self.ping_barrier.is_open.swap(true, Ordering::AcqRel) {
                    tokio::spawn(ping_once(self.clone()));
                }
                over.await;
            }
        };
        let _ = timeout(SETTLE_TIME, settled).await;
    }

    /// Pings the server. Returns the id of the request and its result.
    pub(super) async fn send_ping(&self) -> (u64, Result<JsonObject, ConnectError>) {
        let id = self.calls.next_id();
        let body = encode_with(64, |out| write_request(out, &RequestId::number(id), "ping", &JsonObject::new()));
        let answer = async {
            let reply = self.send(body, Some(id), &HeaderList::new()).await?;
            super::handshake::first_response(reply.messages).await
        };
        (id, answer.await)
    }
}

/// Pings once, even if no call waits any more: a slow server is marked later.
async fn ping_once(server: Arc<LegacyConnection>) {
    if let Ok((id, Ok(_) | Err(ConnectError::Answered(_)))) = timeout(GATEWAY_REQUEST_TIME, server.send_ping()).await {
        server.calls.mark_read(id);
    }
    server.ping_barrier.is_open.store(false, Ordering::Release);
    server.ping_barrier.settled.notify_waiters();
}
