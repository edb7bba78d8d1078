//! Messages to a legacy server in the background: notifications, and responses to its requests.
//!
//! Owns their time limits and permits. Does not decide what to respond. Invariant: a server that
//! sends requests faster than it reads responses is slowed down.

use moongate_telemetry::DroppedItem;
use std::sync::Arc;

use bytes::Bytes;

use crate::background_sender::ReplyPermit;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::own_requests::OWN_REQUEST_TIME;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{
    RequestId, RpcError, encode_with, write_error, write_notification, write_result,
};
use moongate_model::InputProgress;
use moongate_transport::HeaderList;
use moongate_transport::reply_rate_limit::ReplyMeter;

impl LegacyConnection {
    /// Sends a notification in the background.
    pub(crate) fn send_notification(self: &Arc<Self>, method: ByteString, params: JsonObject) {
        let server = self.clone();
        let dropped = self
            .options
            .metrics
            .calls
            .dropped
            .series(DroppedItem::MessageToServer);
        let sending = async move {
            let body = encode_with(params.size_hint(), |out| {
                write_notification(out, &method, &params)
            });
            // A notification is advisory. No call waits for its delivery.
            let _ = server.send(body, None, &HeaderList::new()).await;
        };
        self.options
            .timeouts
            .background_sender()
            .send(sending, &dropped);
    }

    /// Returns the way of a client's progress on one of the server's requests, if the server asked
    /// for any.
    ///
    /// 2025-11-25/basic/utilities/progress.mdx, Progress Flow: "When a party wants to _receive_
    /// progress updates for a request, it includes a `progressToken` in the request metadata." Both
    /// sides send requests.
    pub(crate) fn input_progress(self: &Arc<Self>, params: &JsonObject) -> Option<InputProgress> {
        let token: RawJson = params.get_object("_meta")?.get("progressToken")?.detached();
        // Weak: a request that its client never answers must not keep the connection.
        let server = Arc::downgrade(self);
        Some(InputProgress(Arc::new(move |mut params| {
            if let Some(server) = server.upgrade() {
                params.set(ByteString::literal("progressToken"), token.clone());
                server.send_notification(ByteString::literal("notifications/progress"), params);
            }
        })))
    }

    /// Sends a response in the name of a client, within that client's own time.
    pub(crate) async fn send_response(
        &self,
        id: &RequestId,
        outcome: Result<JsonObject, RpcError>,
    ) {
        let sent = tokio::time::timeout(
            OWN_REQUEST_TIME,
            self.send(encode_response(id, &outcome), None, &HeaderList::new()),
        )
        .await;
        if let Ok(Err(e)) = sent {
            tracing::debug!(
                server = self.options.server,
                "response to the server not delivered: {e}"
            );
        }
    }

    /// Sends a response in the gateway's own name.
    ///
    /// The reader of the request waits here for a permit and reads nothing meanwhile. So a server
    /// that sends requests faster than it reads responses is slowed down, too.
    pub(crate) async fn send_reply(
        self: &Arc<Self>,
        id: &RequestId,
        outcome: Result<JsonObject, RpcError>,
    ) {
        let permit = if self.link.is_multiplexed() {
            None
        } else {
            Some(
                self.options
                    .timeouts
                    .background_sender()
                    .acquire_reply()
                    .await,
            )
        };
        self.send_reply_with(permit, id, outcome).await;
    }

    /// Sends a response under an acquired permit. A pipe has its own bound and needs none.
    pub(crate) async fn send_reply_with(
        self: &Arc<Self>,
        permit: Option<ReplyPermit>,
        id: &RequestId,
        outcome: Result<JsonObject, RpcError>,
    ) {
        let Some(permit) = permit else {
            return self.link.reply(encode_response(id, &outcome)).await;
        };
        ReplyMeter::new(&self.options.server, &self.options.metrics)
            .record_answered(permit.was_delayed);
        // Not inline: the server may read the response only after it has sent more on the stream of
        // the request.
        let server = self.clone();
        let id = id.clone();
        tokio::spawn(async move {
            server.send_response(&id, outcome).await;
            drop(permit);
        });
    }
}

fn encode_response(id: &RequestId, outcome: &Result<JsonObject, RpcError>) -> Bytes {
    match outcome {
        Ok(result) => encode_with(result.size_hint(), |out| write_result(out, id, result)),
        Err(error) => encode_with(128, |out| write_error(out, Some(id), error)),
    }
}
