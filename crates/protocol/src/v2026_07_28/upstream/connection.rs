//! Connection to a stateless server, as its calls use it.
//!
//! Owns the link and the open calls. Does not run calls (`call.rs`). Invariant: no request depends
//! on an earlier one.

use moongate_telemetry::DroppedItem;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::PendingCalls;
use crate::connect_options::ConnectOptions;
use crate::pipe_routes;
use crate::v2026_07_28::mirrored_headers;
use crate::v2026_07_28::upstream::stray_list_changes::StrayListChanges;
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_jsonrpc::message::{RpcRequest, encode_with, write_error, write_notification};
use moongate_model::ServerDescription;
use moongate_transport::{HeaderList, Link, OutgoingMessage};

/// Connection with the state that its calls share.
pub(crate) struct ModernConnection {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) calls: PendingCalls,
    pub(crate) options: ConnectOptions,
    pub(crate) description: ServerDescription,
    /// List changes that arrived outside of a subscription.
    pub(crate) stray_list_changes: StrayListChanges,
    /// Subscription that was opened last.
    pub(crate) opened_subscription: watch::Sender<OpenedSubscription>,
}

/// Resources of a subscription, and the signal that the server has answered.
#[derive(Default)]
pub(crate) struct OpenedSubscription {
    pub(crate) uris: Vec<ByteString>,
    pub(crate) established: CancellationToken,
}

impl ModernConnection {
    /// Refuses a server's request, so that the server does not wait for a response. No client gets
    /// it.
    ///
    /// basic/transports/stdio.mdx: "The server MUST NOT write JSON-RPC requests to `stdout`."
    pub(crate) async fn refuse_request(&self, request: &RpcRequest) {
        // Over HTTP, no message of this revision carries a response to the server.
        if !self.link.is_multiplexed() {
            let dropped = &self.options.metrics.calls.dropped;
            return dropped.inc(DroppedItem::ServerRequest);
        }
        self.calls.open_inputs().remove(&request.id);
        let error = pipe_routes::unsupported_request(request);
        let body = encode_with(128, |out| write_error(out, Some(&request.id), &error));
        self.link.reply(body).await;
    }

    /// Sends a notification in the background.
    pub(crate) fn send_notification(self: &Arc<Self>, method: ByteString, params: JsonObject) {
        let connection = self.clone();
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
            let headers = match connection.link.is_multiplexed() {
                true => HeaderList::new(),
                false => mirrored_headers::write_headers(&method, None, None, None),
            };
            // A notification is advisory. No call waits for its delivery.
            let _ = connection
                .link
                .send(OutgoingMessage {
                    body,
                    id: None,
                    headers,
                })
                .await;
        };
        self.options
            .timeouts
            .background_sender()
            .send(sending, &dropped);
    }
}
