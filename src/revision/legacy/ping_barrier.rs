//! Ping between a call that was cancelled and the next call of its client on a pipe.
//!
//! Owns when the server is known to have read a cancellation. Does not decide whose a question is (`revision::Calls`).
//! Invariant: at most one such ping is open on a connection, and no call waits for it longer than [`SETTLE_TIME`].

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

/// How long a call waits until its server has read what its client cancelled before.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// The ping of one connection.
#[derive(Default)]
pub(super) struct PingBarrier {
    is_open: AtomicBool,
    settled: Notify,
}

impl LegacyConnection {
    /// Waits until the server has read what this client cancelled: what it asks after that is about later calls.
    ///
    /// A server reads its pipe in order, and 2025-11-25/basic/utilities/ping.mdx says: "The receiver MUST respond
    /// promptly with an empty response". It does not say that a cancelled tool stops. So this settles nothing for
    /// other clients.
    pub(super) async fn settle_cancellations(self: &Arc<Self>, caller: &Caller) {
        if caller.capabilities == ClientCapabilities::default()
            || !self.link.is_multiplexed()
            || !self.calls.has_unread_cancellations(caller)
        {
            return;
        }
        let settled = async {
            // Once more, where a ping was open already that the server may have read before the cancellation.
            for _ in 0..2 {
                if !self.calls.has_unread_cancellations(caller) {
                    return;
                }
                // Made before the look, so that an end in between is not missed.
                let over = self.ping_barrier.settled.notified();
                if !self.ping_barrier.is_open.swap(true, Ordering::AcqRel) {
                    tokio::spawn(ping_once(self.clone()));
                }
                over.await;
            }
        };
        let _ = timeout(SETTLE_TIME, settled).await;
    }

    /// Pings the server: the id of that request, and what it came to.
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

/// Goes on when no call waits for it any more: a server that is slow to read is settled later.
async fn ping_once(server: Arc<LegacyConnection>) {
    if let Ok((id, Ok(_) | Err(ConnectError::Answered(_)))) = timeout(GATEWAY_REQUEST_TIME, server.send_ping()).await {
        server.calls.mark_read(id);
    }
    server.ping_barrier.is_open.store(false, Ordering::Release);
    server.ping_barrier.settled.notify_waiters();
}
