//! Reader of a legacy server's messages outside of calls: on its pipe, or on its GET stream.
//!
//! Owns the reconnects of that stream. Does not decide which call a request belongs to. Invariant:
//! subscribers learn of a gap in the stream before they get later messages.

use moongate_telemetry::{DroppedItem, InputKindName, InputOutcome};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::background_sender::ReplyPermit;
use crate::legacy::tasks;
use crate::legacy::upstream::connection::{LegacyConnection, WeakConnection};
use crate::notifications::{self, NOTIFICATION_BYTES_MAX};
use crate::pipe_routes;
use moongate_jsonrpc::json::JsonObject;
use moongate_jsonrpc::message::{RpcError, RpcMessage, RpcRequest, code};
use moongate_model::{InputKind, Notification};
use moongate_transport::{LinkError, MessageStream};

/// Backoff between attempts to open the stream again. The last one repeats.
const BACKOFF: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(10),
    Duration::from_secs(60),
];
/// Lifetime of a stable stream. After it, the backoff starts from the beginning.
const STABLE_TIME: Duration = Duration::from_secs(30);

/// Reads the stream for as long as the connection is in use.
pub(crate) async fn read_server_stream(server: WeakConnection) {
    let mut failures = 0;
    // True if the server has such a stream and notifications may have been missed since it was last
    // open.
    let mut missed = false;
    let mut is_away_reported = false;
    loop {
        let Some(strong) = server.upgrade() else {
            return;
        };
        let link = strong.link.clone();
        let headers = strong.session.headers();
        let seen = strong.session.generation();
        drop(strong);
        let opened = link.open_server_stream(headers).await;
        let Some(strong) = server.upgrade() else {
            return;
        };
        match opened {
            Ok(messages) => {
                if std::mem::replace(&mut missed, true) {
                    strong.report_all_changed();
                }
                drop(strong);
                is_away_reported = false;
                let began = Instant::now();
                read_messages(&server, messages).await;
                if began.elapsed() >= STABLE_TIME {
                    failures = 0;
                }
            }
            // The session is lost, and the server did have the stream.
            Err(LinkError::Status { status: 404, .. }) if missed => {
                if strong.closing.is_cancelled() {
                    return;
                }
                if let Err(e) = strong.renew_session(seen).await {
                    tracing::debug!(server = strong.options.server, "session not renewed: {e}");
                }
            }
            // 2025-11-25/basic/transports.mdx, Listening for Messages from the Server: "or else
            // return HTTP 405 Method Not Allowed, indicating that the server does not offer an SSE
            // stream at this endpoint".
            Err(LinkError::Status { status: 404, .. }) => {
                // The session is lost, or the server offers no stream. A call renews a lost
                // session.
                while strong.session.generation() == seen && failures < BACKOFF.len() {
                    tokio::time::sleep(BACKOFF[failures]).await;
                    failures += 1;
                }
            }
            Err(LinkError::Status { status, .. }) if (400..500).contains(&status) => {
                if missed {
                    // The server had a stream before, so it may be another server by now.
                    strong.report_all_changed();
                }
                return;
            }
            // The server may be unavailable. Its next list will show that, and one report is enough
            // to cause it.
            Err(LinkError::Unreachable(_) | LinkError::NotSent(_) | LinkError::Closed(_))
                if missed =>
            {
                if !std::mem::replace(&mut is_away_reported, true) {
                    strong.report_all_changed();
                }
            }
            Err(_) => {}
        }
        // A pipe has a single stream, which ends with the pipe.
        if link.is_multiplexed() {
            return;
        }
        tokio::time::sleep(BACKOFF[failures.min(BACKOFF.len() - 1)]).await;
        failures += 1;
    }
}

async fn read_messages(server: &WeakConnection, mut messages: MessageStream) {
    while let Some(Ok(message)) = messages.next().await {
        let mut permit = None;
        if let RpcMessage::Request(_) = message {
            // The reply's permit comes first. The server is released while the task waits for it.
            let Some(server) = server.upgrade() else {
                return;
            };
            let timeouts = (!server.link.is_multiplexed()).then(|| server.options.timeouts.clone());
            drop(server);
            if let Some(timeouts) = timeouts {
                permit = Some(timeouts.background_sender().acquire_reply().await);
            }
        }
        let Some(server) = server.upgrade() else {
            return;
        };
        match message {
            // A notification is kept until the slowest subscriber has it, so large ones are
            // dropped.
            RpcMessage::Notification(notification)
                if notification.params.size_hint() > NOTIFICATION_BYTES_MAX =>
            {
                server
                    .options
                    .metrics
                    .calls
                    .dropped
                    .inc(DroppedItem::LargeNotification);
            }
            RpcMessage::Notification(notification)
                if &*notification.method == "notifications/cancelled" =>
            {
                server.withdraw_input(notification, None);
            }
            RpcMessage::Notification(notification) => {
                server.publish(match tasks::read_status(&notification) {
                    Some(task) => Notification::TaskStatus(Box::new(task)),
                    None => notifications::decode(notification),
                })
            }
            RpcMessage::Request(request) => on_request(&server, permit, request).await,
            RpcMessage::Response(_) => server
                .options
                .metrics
                .calls
                .dropped
                .inc(DroppedItem::ServerResponse),
        }
    }
}

/// Routes a request that its call did not read before its end.
pub(crate) async fn route_again(server: Arc<LegacyConnection>, request: RpcRequest) {
    server.calls.open_inputs().remove(&request.id);
    let permit = match server.link.is_multiplexed() {
        true => None,
        false => Some(
            server
                .options
                .timeouts
                .background_sender()
                .acquire_reply()
                .await,
        ),
    };
    on_request(&server, permit, request).await;
}

/// Handles a request that names no call.
async fn on_request(
    server: &Arc<LegacyConnection>,
    permit: Option<ReplyPermit>,
    request: RpcRequest,
) {
    if &*request.method == "ping" {
        return server
            .send_reply_with(permit, &request.id, Ok(JsonObject::new()))
            .await;
    }
    let kind = InputKind::classify(&request.method, &request.params);
    if kind == InputKind::Extension {
        return on_extension_request(server, permit, request).await;
    }
    if kind == InputKind::Other {
        return server
            .send_reply_with(
                permit,
                &request.id,
                Err(pipe_routes::unsupported_request(&request)),
            )
            .await;
    }
    if let Some(task) = tasks::task_of(&request.params) {
        drop(permit);
        return server.on_task_request(task, request).await;
    }
    server.calls.record_roots(kind);
    server.first_roots.record_request(kind);
    // On a pipe, the call was looked up when the request arrived. A call that is alone by now may
    // not have been then.
    let is_ambiguous = server.link.is_multiplexed() && server.options.client.is_none();
    let refused = if is_ambiguous {
        Err(request)
    } else {
        server.calls.deliver_request(request)
    };
    if let Err(request) = refused {
        let client = server.options.client.clone().or_else(|| {
            server
                .calls
                .roots_owner()
                .channel()
                .filter(|_| kind == InputKind::Roots)
        });
        if let Some(client) = client {
            return server.ask_owner(client, permit, request).await;
        }
        let name = &server.options.server;
        server
            .options
            .metrics
            .inputs
            .asks
            .inc((InputKindName("any"), InputOutcome::Unattributed));
        tracing::debug!(server = name, method = %request.method, "server request refused: it \
            belongs to no single open call");
        let message = format!(
            "Not available: the request does not clearly belong to one client's call \
             (servers.{name}.share = \"session\" gives each client its own connection)"
        );
        let error = RpcError {
            code: code::METHOD_NOT_FOUND,
            message: message.into(),
            data: None,
        };
        server
            .send_reply_with(permit, &request.id, Err(error))
            .await;
    }
}

/// Handles a request of an extension that names no call. The connection's client gets it, if there
/// is only one.
async fn on_extension_request(
    server: &Arc<LegacyConnection>,
    permit: Option<ReplyPermit>,
    request: RpcRequest,
) {
    // On a pipe, the call was looked up when the request arrived.
    let refused = if server.link.is_multiplexed() {
        Err(request)
    } else {
        server.calls.deliver_request(request)
    };
    if let Err(request) = refused {
        if let Some(client) = server.options.client.clone() {
            return server.ask_owner(client, permit, request).await;
        }
        let error = pipe_routes::unsupported_request(&request);
        server
            .send_reply_with(permit, &request.id, Err(error))
            .await;
    }
}
