//! What a legacy server says outside any call: on its pipe, or on its GET stream.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::json::Object;
use crate::jsonrpc::{Message, Request, RpcError, code};
use crate::link::{LinkError, Messages};
use crate::model::{AskKind, Notice};
use crate::revision::legacy::back::{LegacyServer, WeakServer};
use crate::revision::legacy::tasks;
use crate::revision::notices::{self, NOTICE_MAX};
use crate::revision::route;
use crate::revision::side_traffic::ReplyPlace;

/// Pauses between attempts to open the stream again; the last one repeats.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(60)];
/// A stream that lasted so long was a good one: the pauses begin small again.
const LASTING: Duration = Duration::from_secs(30);

/// Listens for as long as the server is in use.
pub(super) async fn pump(server: WeakServer) {
    let mut failures = 0;
    // Whether the server has such a stream, and something may have been missed since it was last open.
    let mut missed = false;
    let mut away = false;
    loop {
        let Some(strong) = server.upgrade() else { return };
        let (link, headers, seen) = (strong.link.clone(), strong.headers(), strong.generation());
        drop(strong);
        let opened = link.listen(headers).await;
        let Some(strong) = server.upgrade() else { return };
        match opened {
            Ok(messages) => {
                if std::mem::replace(&mut missed, true) {
                    strong.everything_changed();
                }
                drop(strong);
                away = false;
                let began = Instant::now();
                listen(&server, messages).await;
                if began.elapsed() >= LASTING {
                    failures = 0;
                }
            }
            // The session is gone, of a server that did have the stream.
            Err(LinkError::Status { status: 404, .. }) if missed => {
                if strong.gone.is_cancelled() {
                    return;
                }
                if let Err(e) = strong.renew(seen).await {
                    tracing::debug!(server = strong.hello.server, "the session cannot be renewed: {e}");
                }
            }
            // 2025-11-25/basic/transports.mdx, Listening for Messages from the Server: "or else return HTTP 405
            // Method Not Allowed, indicating that the server does not offer an SSE stream at this endpoint".
            Err(LinkError::Status { status: 404, .. }) => {
                // The session is gone, or there is no stream: a call will renew the session if that is it.
                while strong.generation() == seen && failures < PAUSES.len() {
                    tokio::time::sleep(PAUSES[failures]).await;
                    failures += 1;
                }
            }
            Err(LinkError::Status { status, .. }) if (400..500).contains(&status) => {
                if missed {
                    // It had one before: perhaps it is another server by now.
                    strong.everything_changed();
                }
                return;
            }
            // The server may be away: whoever lists it will find out, and needs to be told once.
            Err(LinkError::Unreachable(_) | LinkError::Unsent(_) | LinkError::Gone(_)) if missed => {
                if !std::mem::replace(&mut away, true) {
                    strong.everything_changed();
                }
            }
            Err(_) => {}
        }
        if link.is_pipe() {
            return;
        }
        tokio::time::sleep(PAUSES[failures.min(PAUSES.len() - 1)]).await;
        failures += 1;
    }
}

async fn listen(server: &WeakServer, mut messages: Messages) {
    while let Some(Ok(message)) = messages.next().await {
        let mut place = None;
        if let Message::Request(_) = message {
            // Before it is looked at, there is a place for its answer; the server is not kept for as long as that takes.
            let Some(server) = server.upgrade() else { return };
            let times = (!server.link.is_pipe()).then(|| server.hello.times.clone());
            drop(server);
            if let Some(times) = times {
                place = Some(times.side().reply_place().await);
            }
        }
        let Some(server) = server.upgrade() else { return };
        match message {
            // It is kept until the slowest listener has it, with many others.
            Message::Notification(notification) if notification.params.size_hint() > NOTICE_MAX => {
                server.hello.metrics.dropped.with_label_values(&["large_notice"]).inc();
            }
            Message::Notification(notification) => server.publish(match tasks::told(&notification) {
                Some(task) => Notice::Task(Box::new(task)),
                None => notices::read(notification),
            }),
            Message::Request(request) => asked(&server, place, request).await,
            Message::Response(_) => server.hello.metrics.dropped.with_label_values(&["server_answer"]).inc(),
        }
    }
}

/// A request that names no call.
async fn asked(server: &Arc<LegacyServer>, place: Option<ReplyPlace>, request: Request) {
    if &*request.method == "ping" {
        return server.reply_in(place, &request.id, Ok(Object::new())).await;
    }
    if AskKind::of(&request.method, &request.params) == AskKind::Other {
        return server.reply_in(place, &request.id, Err(route::unknown(&request))).await;
    }
    if let Some(task) = tasks::related(&request.params) {
        drop(place);
        return server.asked_by_task(task, request).await;
    }
    // On a pipe it was looked for when the question came: who is alone by now need not have been then.
    let refused = if server.link.is_pipe() { Err(request) } else { server.calls.inject(request) };
    if let Err(request) = refused {
        let name = &server.hello.server;
        server.hello.metrics.asks.with_label_values(&["any", "unattributed"]).inc();
        tracing::debug!(server = name, method = %request.method, "a request that belongs to no single open call is refused");
        let message = format!(
            "Not available: the request cannot be told to belong to one client's call (servers.{name}.share = \"session\" gives each client a connection of its own)"
        );
        let error = RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None };
        server.reply_in(place, &request.id, Err(error)).await;
    }
}
