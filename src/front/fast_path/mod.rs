//! Fast path of a connection: simple POSTs to the endpoints, without a general HTTP server in between.
//!
//! Owns a connection while each request is a POST of the common form to an endpoint. Hands the first other request to
//! hyper, with the bytes that were read of it. Does not know messages (`mcp.rs`). Invariant: a request that is not
//! understood at once is not judged here, and every response is the endpoint's own.
//!
//! A general server keeps a buffer for each direction and a channel between a request's head and its body. It sets a
//! timer for each head. Together that is a sixth of all instructions of a small call.

mod write_response;
mod date_cache;
mod head;
mod rewind;

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::CachedIdentity;
use crate::front::connection_limit::{ConnectionSlot, SlotRequest};
use crate::front::fast_path::rewind::H2_PREFACE;
use crate::front::service::{AcceptedHost, ConnectionService};
use crate::front::{PeerAddress, ServerState, mcp};
use crate::lazy_timer::LazyTimer;

pub(super) use rewind::Rewind;

/// Maximum size of one read, in bytes. The buffer is on the stack, only while reading.
const READ_SIZE: usize = 16 * 1024;
/// Maximum size of what a client may send before it has its response, in bytes. Reading pauses there.
const READ_AHEAD_MAX: usize = 16 * 1024;
/// Maximum size of a body that is read along with its head, in bytes.
const BODY_MAX: usize = 64 * 1024;
/// Time limit for closing a connection. TLS sends a last message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

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

/// Serves the simple POSTs of a connection. Returns it for hyper at the first other request, or `None` if it ended.
pub(super) async fn serve<S>(stream: S, terms: FastPathContext<'_>) -> Option<Rewind<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection =
        FastPathConnection { stream, read_ahead: Vec::new(), is_incomplete: false, partial: None, context: &terms };
    let (mut timer, mut known, mut remembered) = (LazyTimer::default(), AcceptedHost::default(), None);
    let mut dates = date_cache::DateCache::default();
    let mut told = pin!(async {
        terms.draining.cancelled().await;
        tokio::time::sleep(terms.drain_grace).await;
    });
    let (mut hears_of_end, mut is_told) = (false, false);
    loop {
        let mut until = Instant::now() + terms.read_timeout;
        let (mut is_first, mut has_head) = (true, false);
        let next = std::future::poll_fn(|cx| {
            if let Poll::Ready(next) = connection.poll_next(cx, &mut known) {
                return Poll::Ready(next);
            }
            // At the first wait, the wakers of an earlier wait are still registered.
            let again = !std::mem::replace(&mut is_first, false);
            let looks = !is_told && (again || !hears_of_end || terms.draining.is_cancelled());
            is_told = is_told || looks && told.as_mut().poll(cx).is_ready();
            hears_of_end = true;
            if connection.partial.is_some() && !std::mem::replace(&mut has_head, true) {
                // A body has its own time, however long its connection was quiet before.
                until = Instant::now() + terms.read_timeout;
            }
            // A client in the middle of a request may finish it. The response says that the connection ends.
            let over = is_told && connection.partial.is_none();
            if terms.slot.must_leave() {
                return Poll::Ready(NextRequest::Closed);
            }
            let timed_out = if again { timer.poll_until(cx, until) } else { timer.poll_again_until(cx, until) };
            if over || timed_out.is_ready() { Poll::Ready(connection.on_timeout()) } else { Poll::Pending }
        });
        let request = match next.await {
            NextRequest::Request(request) => request,
            NextRequest::TimedOut(begun) => {
                let response = mcp::refuse_timed_out(&begun.state, &begun.head);
                write_response::write_response(&mut connection, response, true, dates.now(Instant::now()))
                    .await
                    .ok()?;
                break;
            }
            NextRequest::Closed => break,
            NextRequest::Fallback => return Some(Rewind::new(connection.stream, &connection.read_ahead)),
        };
        let (received, place) = (Instant::now(), terms.slot.begin());
        let mut work = Box::pin(serve_request(request, &mut remembered, terms.service.peer(), received, &place));
        let response = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => connection.poll_client_gone(cx).map(|()| None),
        });
        // A client that disconnects ends its request, as its revision defines.
        let response = response.await?;
        // Frees the request's future before the response is written to a client that may be slow.
        drop(work);
        let closing = terms.service.is_closing().load(Ordering::Relaxed);
        write_response::write_response(&mut connection, response, closing, dates.now(Instant::now())).await.ok()?;
        drop(place);
        if closing {
            break;
        }
    }
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, connection.stream.shutdown()).await;
    None
}

async fn serve_request(
    request: Box<FastPathRequest>,
    remembered: &mut Option<CachedIdentity>,
    peer: Option<PeerAddress>,
    received: Instant,
    place: &SlotRequest,
) -> http::Response<crate::body::Body> {
    let FastPathRequest { state: front, head, body } = *request;
    let principal = front.keys.authenticate_cached(&head.headers, remembered);
    if principal.is_ok() {
        place.admit();
    }
    mcp::serve_buffered(&front, head, body, principal, peer, received).await
}

/// Simple POST with the state that serves it.
struct FastPathRequest {
    state: Arc<ServerState>,
    head: Parts,
    body: Bytes,
}

/// Request whose body is incomplete.
struct PartialRequest {
    state: Arc<ServerState>,
    head: Parts,
    body: BytesMut,
    /// Bytes of the body that are still to come.
    missing: usize,
}

/// Next event on a connection.
enum NextRequest {
    Request(Box<FastPathRequest>),
    /// Incomplete request whose time is up.
    TimedOut(Box<PartialRequest>),
    /// Request for hyper. All that was read of it is in `read_ahead`.
    Fallback,
    Closed,
}

struct FastPathConnection<'a, S> {
    stream: S,
    /// Bytes that were read beyond the request being served.
    read_ahead: Vec<u8>,
    /// True if `read_ahead` is too short to be judged.
    is_incomplete: bool,
    /// Request whose body is incomplete.
    partial: Option<Box<PartialRequest>>,
    context: &'a FastPathContext<'a>,
}

impl<S: AsyncRead + Unpin> FastPathConnection<'_, S> {
    fn poll_next(&mut self, cx: &mut Context<'_>, known: &mut AcceptedHost) -> Poll<NextRequest> {
        loop {
            if !self.read_ahead.is_empty() && !self.is_incomplete {
                let bytes = std::mem::take(&mut self.read_ahead);
                match self.parse_next(&bytes, known) {
                    Some(next) => return Poll::Ready(next),
                    None => continue,
                }
            }
            // On the stack: an idle connection holds no read buffer.
            let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
            let mut buffer = ReadBuf::uninit(&mut space);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            let mut held = std::mem::take(&mut self.read_ahead);
            let bytes = match (read, buffer.filled()) {
                // EOF or an error, possibly in the middle of a request: there is no peer to answer.
                (Err(_), _) | (_, []) => return Poll::Ready(NextRequest::Closed),
                (Ok(()), bytes) if held.is_empty() => bytes,
                (Ok(()), bytes) => {
                    held.extend_from_slice(bytes);
                    &held
                }
            };
            self.is_incomplete = false;
            if let Some(next) = self.parse_next(bytes, known) {
                return Poll::Ready(next);
            }
        }
    }

    /// Parses the bytes as a request, or as the rest of one. Returns `None` if more must come.
    fn parse_next(&mut self, bytes: &[u8], known: &mut AcceptedHost) -> Option<NextRequest> {
        if let Some(begun) = &mut self.partial {
            let (here, rest) = bytes.split_at(bytes.len().min(begun.missing));
            begun.body.extend_from_slice(here);
            begun.missing -= here.len();
            if begun.missing > 0 {
                return None;
            }
            self.read_ahead = rest.to_vec();
            let PartialRequest { state: front, head, body, .. } = *self.partial.take()?;
            return Some(NextRequest::Request(Box::new(FastPathRequest { state: front, head, body: body.freeze() })));
        }
        // Too short to tell HTTP/2 from HTTP/1: "P" also begins POST and PUT.
        if bytes.len() < H2_PREFACE.len() && H2_PREFACE.starts_with(bytes) {
            (self.read_ahead, self.is_incomplete) = (bytes.to_vec(), true);
            return None;
        }
        let plain = head::parse_simple_post(bytes, self.context.head).filter(|plain| plain.length <= BODY_MAX);
        let taken = plain.and_then(|plain| Some((self.context.service.fast_path_state(&plain.head, known)?, plain)));
        // A head in parts goes to hyper, too, which has the buffers and the timer for it.
        let Some((front, head::SimplePost { head, size, length })) = taken else {
            self.read_ahead = bytes.to_vec();
            return Some(NextRequest::Fallback);
        };
        let rest = &bytes[size..];
        if rest.len() < length {
            let mut body = BytesMut::with_capacity(length);
            body.extend_from_slice(rest);
            self.partial = Some(Box::new(PartialRequest { state: front, head, body, missing: length - rest.len() }));
            return None;
        }
        let (body, rest) = rest.split_at(length);
        self.read_ahead = rest.to_vec();
        // Copied: a slice would keep the whole read alive for as long as the call.
        Some(NextRequest::Request(Box::new(FastPathRequest { state: front, head, body: Bytes::copy_from_slice(body) })))
    }

    /// Returns the event of a read that timed out.
    fn on_timeout(&mut self) -> NextRequest {
        self.partial.take().map_or(NextRequest::Closed, NextRequest::TimedOut)
    }

    /// Completes once the client disconnects. Keeps what it sends meanwhile, within bounds.
    fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.read_ahead.len() < READ_AHEAD_MAX {
            let mut space = [const { MaybeUninit::uninit() }; 1024];
            let mut buffer = ReadBuf::uninit(&mut space);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.read_ahead.extend_from_slice(buffer.filled()),
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}

/// Error of a client that disconnected.
#[derive(Debug)]
struct ClientGone;

impl From<io::Error> for ClientGone {
    fn from(_: io::Error) -> Self {
        ClientGone
    }
}
