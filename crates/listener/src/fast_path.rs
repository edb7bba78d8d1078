//! Fast path of a connection: simple POSTs to the endpoints, without a general HTTP server in
//! between.
//!
//! Owns the timeouts and the drain of a connection while each request is a simple POST to an
//! endpoint. The first other request goes to hyper. Does not parse (`moongate-http1`) and does not
//! serve requests (`serve_request.rs`). Invariant: every response is the endpoint's own.
//!
//! A general server keeps a buffer for each direction and a channel between a request's head and
//! its body. It sets a timer for each head. Together that is a sixth of all instructions of a small
//! call.

mod request_wait;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use http::request::Parts;
use moongate_http1::{
    BufferedRequest, ClientGone, NextRequest, Persistence, Rewind, SendBody, ServerConnection,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection_limit::ConnectionSlot;
use crate::endpoint_path::endpoint_name;
use crate::fast_path::request_wait::{DrainWait, NextRequestWait, ReadOutcome, WaitProgress};
use crate::listener_state::ListenerState;
use crate::serve_request::{ReceivedRequest, RequestSource, refuse_timed_out, serve_request};
use crate::service::{AcceptedHost, ConnectionService};
use moongate_jsonrpc::json::ByteString;
use moongate_protocol::body::Body;
use moongate_protocol::lazy_timer::LazyTimer;

/// Settings of all connections of a listener.
pub(super) struct FastPathContext<'a> {
    pub(super) service: &'a ConnectionService,
    /// Maximum size of a request head, in bytes.
    pub(super) head: usize,
    /// Maximum time to receive a request head, and to be idle.
    pub(super) read_timeout: Duration,
    /// Cancelled when the gateway stops.
    pub(super) draining: &'a CancellationToken,
    /// Time for clients that are about to send at that moment.
    pub(super) drain_grace: Duration,
    /// Slot of this connection.
    pub(super) slot: &'a Arc<ConnectionSlot>,
}

impl FastPathContext<'_> {
    /// Waits until the grace is over that a draining gateway gives its connections.
    async fn wait_drained(&self) {
        self.draining.cancelled().await;
        tokio::time::sleep(self.drain_grace).await;
    }
}

/// Serves the simple POSTs of a connection. Returns it for hyper at the first other request, or
/// `None` if it ended.
pub(super) async fn serve<S>(stream: S, context: FastPathContext<'_>) -> Option<Rewind<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = ServerConnection::<S, Arc<ListenerState>>::new(stream, context.head);
    let mut timer = LazyTimer::default();
    let mut accepted_host = AcceptedHost::default();
    let mut identity = None;
    let mut accept = |head: &Parts| context.service.fast_path_state(head, &mut accepted_host);
    let grace = pin!(context.wait_drained());
    let mut drain = DrainWait::new(context.draining, grace);
    loop {
        let wait = NextRequestWait {
            connection: &mut connection,
            accept: &mut accept,
            drain: &mut drain,
            timer: &mut timer,
            slot: context.slot,
            progress: WaitProgress::begin(context.read_timeout),
        };
        let request = match wait.await {
            ReadOutcome::Next(NextRequest::Request(request)) => request,
            ReadOutcome::Next(NextRequest::Fallback) => return Some(connection.into_rewind()),
            ReadOutcome::Next(NextRequest::Closed) => break,
            ReadOutcome::TimedOut => {
                refuse_partial(&mut connection).await.ok()?;
                break;
            }
        };
        let slot = context.slot.begin();
        let response = {
            let BufferedRequest { state, head, body } = *request;
            let scope = ByteString::from(endpoint_name(head.uri.path()).unwrap_or_default());
            let request = ReceivedRequest {
                head,
                scope,
                dialect: None,
                received: Instant::now(),
            };
            let source = RequestSource {
                peer: context.service.peer(),
                slot: Some(&slot),
                identity: Some(&mut identity),
            };
            let mut work = pin!(serve_request(&state, source, request, body));
            std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => connection.poll_client_gone(cx).map(|()| None),
            })
            .await
            // Here the request's future is freed, before the response is written to a client that
            // may be slow.
        };
        // A client that disconnects ends its request, as its revision defines.
        let response = response?;
        slot.set_answer(slot.holders_of(&response));
        let closing = context.service.is_closing().load(Ordering::Relaxed);
        let persistence = if closing {
            Persistence::Close
        } else {
            Persistence::KeepAlive
        };
        connection
            .write_response(response.map(send_body), persistence)
            .await
            .ok()?;
        // The slot is in use until the response is written, as over hyper.
        drop(slot);
        if closing {
            break;
        }
    }
    connection.close().await;
    None
}

/// Answers the request whose body is incomplete, if there is one.
async fn refuse_partial<S>(
    connection: &mut ServerConnection<S, Arc<ListenerState>>,
) -> Result<(), ClientGone>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(partial) = connection.take_partial() else {
        return Ok(());
    };
    let response = refuse_timed_out(&partial.state, &partial.head);
    connection
        .write_response(response.map(send_body), Persistence::Close)
        .await
}

fn send_body(body: Body) -> SendBody {
    match body {
        Body::Parts(parts) => SendBody::Whole(parts),
        Body::Stream(chunks) => SendBody::Chunks(chunks),
    }
}
