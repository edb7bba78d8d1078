//! The gateway's own requests to a legacy server.
//!
//! Owns their time limits, and the sending of log levels and pings. Does not send calls of clients.
//! Invariant: no call waits longer for such a request than the limits below.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::connect_error::ConnectError;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::handshake;
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_jsonrpc::message::{RequestId, encode_with, write_request};
use moongate_model::{Caller, ClientCapabilities, LogLevel};
use moongate_transport::{HeaderList, LinkError};

/// Time that a call waits for `logging/setLevel` to be sent.
const LEVEL_TIME: Duration = Duration::from_millis(500);
/// Time limit for one of the gateway's own requests (a log level, a subscription).
pub(crate) const OWN_REQUEST_TIME: Duration = Duration::from_secs(10);

impl LegacyConnection {
    /// Sends one of the gateway's own requests and returns its result.
    pub(crate) async fn send_own_request(
        &self,
        method: &str,
        params: &JsonObject,
    ) -> Result<JsonObject, ConnectError> {
        let id = self.calls.next_id();
        let body = encode_with(params.size_hint(), |out| {
            write_request(out, &RequestId::number(id), method, params)
        });
        let sent = tokio::time::timeout(OWN_REQUEST_TIME, async {
            let reply = self.send(body, Some(id), &HeaderList::new()).await?;
            handshake::first_response(reply.messages).await
        });
        let answer = sent.await.unwrap_or_else(|_| {
            Err(LinkError::Timeout(format!("not answered within {OWN_REQUEST_TIME:?}")).into())
        });
        if let Err(e) = &answer {
            tracing::debug!(server = self.options.server, method, "refused: {e}");
        }
        answer
    }

    /// Lowers the server's log level to the caller's if needed. It is never raised again.
    pub(crate) async fn ensure_log_level(self: &Arc<Self>, caller: &Caller) {
        let Some(level) = self.log_level.needed(caller.log_filter) else {
            return;
        };
        if !self.session.negotiated().description.capabilities.logging
            || !self.log_level.lower(level)
        {
            return;
        }
        // On a pipe the order of messages is enough. Elsewhere the level may apply a moment late,
        // which is better than a call that waits for it.
        let server = self.clone();
        let params = JsonObject::new().with("level", RawJson::string(LogLevel::name(level)));
        let sending = tokio::spawn(async move {
            if server
                .send_own_request("logging/setLevel", &params)
                .await
                .is_err()
            {
                // Unknown again, so that the next call sends the level once more.
                server.log_level.reset();
            }
        });
        // The request continues in its task. Only the call stops waiting for it.
        let _ = tokio::time::timeout(LEVEL_TIME, sending).await;
    }

    /// Waits until the server has read the cancellations of this principal's clients. Its later
    /// requests are then about later calls.
    ///
    /// A server reads its pipe in order, and 2025-11-25/basic/utilities/ping.mdx says: "The
    /// receiver MUST respond promptly with an empty response". It does not say that a cancelled
    /// tool stops. So this proves nothing for other principals.
    pub(crate) async fn settle_cancellations(self: &Arc<Self>, caller: &Caller) {
        if caller.capabilities == ClientCapabilities::default() || !self.link.is_multiplexed() {
            return;
        }
        self.cancellation_barrier
            .wait(
                || self.calls.has_unread_cancellations(caller),
                || drop(tokio::spawn(ping_once(self.clone()))),
            )
            .await;
    }

    /// Pings the server. Returns the id of the request and its result.
    pub(crate) async fn send_ping(&self) -> (u64, Result<JsonObject, ConnectError>) {
        let id = self.calls.next_id();
        let body = encode_with(64, |out| {
            write_request(out, &RequestId::number(id), "ping", &JsonObject::new())
        });
        let answer = async {
            let reply = self.send(body, Some(id), &HeaderList::new()).await?;
            handshake::first_response(reply.messages).await
        };
        (id, answer.await)
    }
}

/// Pings once, even if no call waits any more: a slow server is marked later.
async fn ping_once(server: Arc<LegacyConnection>) {
    if let Ok((id, Ok(_) | Err(ConnectError::Answered(_)))) =
        timeout(OWN_REQUEST_TIME, server.send_ping()).await
    {
        server.calls.mark_read(id);
    }
    server.cancellation_barrier.end_ping();
}
