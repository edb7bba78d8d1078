//! Listen stream of a stateless server (`subscriptions/listen`).
//!
//! Owns the request, the reader of the stream and its cancellation. Does not merge subscriptions.
//! Invariant: the subscription id stays on this hop.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio_util::sync::DropGuard;

use crate::notifications;
use crate::v2026_07_28::meta_keys::SUBSCRIPTION_ID;
use crate::v2026_07_28::mirrored_headers;
use crate::v2026_07_28::upstream::connection::ModernConnection;
use crate::v2026_07_28::upstream::discover::gateway_meta;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{RequestId, RpcMessage, encode_with, write_request};
use moongate_model::{Notification, SubscriptionFilter};
use moongate_transport::{MessageStream, OutgoingMessage};

pub(crate) async fn open_listen_stream(
    connection: Arc<ModernConnection>,
    filter: SubscriptionFilter,
    established: DropGuard,
) -> Option<impl futures_util::Stream<Item = Notification> + Send> {
    let entry = connection.calls.open_subscription();
    let mut requested = JsonObject::new();
    for (name, on) in [
        ("toolsListChanged", filter.tools),
        ("promptsListChanged", filter.prompts),
        ("resourcesListChanged", filter.resources),
    ] {
        if on {
            requested.set(ByteString::literal(name), RawJson::literal("true"));
        }
    }
    if !filter.uris.is_empty() {
        let uris: Vec<&str> = filter.uris.iter().map(ByteString::as_str).collect();
        requested.set(
            ByteString::literal("resourceSubscriptions"),
            RawJson::from_value(&uris),
        );
    }
    let params = JsonObject::new()
        .with("notifications", requested.to_raw())
        .with("_meta", gateway_meta(&connection.options).to_raw());
    let id = entry.id;
    let body: Bytes = encode_with(512, |out| {
        write_request(out, &RequestId::number(id), "subscriptions/listen", &params)
    });
    let headers = mirrored_headers::write_headers("subscriptions/listen", None, None, None);
    let sent = connection
        .link
        .send(OutgoingMessage {
            body,
            id: Some(id),
            headers,
        })
        .await;
    let messages: MessageStream = match sent {
        Ok(reply) => reply.messages,
        Err(e) => {
            tracing::debug!(
                server = connection.options.server,
                "subscription to changes failed: {e}"
            );
            return None;
        }
    };
    let open = ListenReader {
        messages,
        _entry: entry,
        connection,
        opening_guard: Some(established),
    };
    Some(stream::unfold(open, |mut open| async move {
        open.next().await.map(|notification| (notification, open))
    }))
}

struct ListenReader {
    messages: MessageStream,
    _entry: crate::correlation::CallEntry,
    connection: Arc<ModernConnection>,
    /// Guard whose drop reports that the subscription is established.
    opening_guard: Option<DropGuard>,
}

impl ListenReader {
    async fn next(&mut self) -> Option<Notification> {
        loop {
            match self.messages.next().await? {
                Ok(RpcMessage::Notification(n))
                    if &*n.method == "notifications/subscriptions/acknowledged" =>
                {
                    self.opening_guard = None;
                }
                Ok(RpcMessage::Notification(mut n)) => {
                    // The id has done its work. 2026-07-28/basic/patterns/subscriptions.mdx:
                    // "clients MUST use this field to correlate notifications with their
                    // originating subscription" (`correlation.rs`).
                    untag_subscription(&mut n.params);
                    // A notification is kept until the slowest subscriber has it, so large ones are
                    // dropped.
                    if n.params.size_hint() > notifications::NOTIFICATION_BYTES_MAX {
                        continue;
                    }
                    if let notification @ (Notification::ListChanged(_)
                    | Notification::ResourceUpdated(..)) = notifications::decode(n)
                    {
                        return Some(notification);
                    }
                }
                // The response is the graceful end of the stream; an error ends it, too. The
                // subscriber then subscribes again. 2026-07-28/basic/patterns/subscriptions.mdx:
                // "the server holds no subscription state across reconnections".
                Ok(RpcMessage::Response(_)) | Err(_) => return None,
                Ok(RpcMessage::Request(_)) => {}
            }
        }
    }
}

impl Drop for ListenReader {
    fn drop(&mut self) {
        // basic/patterns/subscriptions.mdx, Cancellation: on a pipe the client sends
        // `notifications/cancelled`. Without a runtime the process is ending, and the pipe ends
        // with it.
        if self.connection.link.is_multiplexed() && tokio::runtime::Handle::try_current().is_ok() {
            self.connection.send_notification(
                ByteString::literal("notifications/cancelled"),
                JsonObject::new().with("requestId", RawJson::number(self._entry.id)),
            );
        }
    }
}

/// Removes the subscription id, which is local to this hop.
fn untag_subscription(params: &mut JsonObject) {
    if let Some(mut meta) = params.get_object("_meta") {
        meta.remove(SUBSCRIPTION_ID);
        if meta.is_empty() {
            params.remove("_meta");
        } else {
            params.set(ByteString::literal("_meta"), meta.to_raw());
        }
    }
}
