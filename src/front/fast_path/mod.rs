//! The short way over a connection: plain requests to the endpoints, without a general server in between.
//!
//! Owns a connection for as long as every request on it is a POST of the common spelling to an endpoint, and hands it
//! over, with what was read of the first request that is not, to the general server. Does not know messages (`mcp`).
//! Invariant: what it does not understand at a glance it does not judge; and every answer is the endpoint's own.
//!
//! A general server keeps a buffer for each direction, has a channel between a request's head and its body, and sets a
//! timer for each head: a sixth of all instructions of a small call.

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
use tokio::task::coop;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::auth::CachedIdentity;
use crate::front::connection_limit::{ConnectionSlot, SlotRequest};
use crate::front::fast_path::rewind::H2_PREFACE;
use crate::front::service::{AcceptedHost, ConnectionService};
use crate::front::{PeerAddress, ServerState, mcp};

pub(super) use rewind::Rewind;

/// What is read at once, at most. It is on the stack, and only for the moment of the reading.
const READ_SIZE: usize = 16 * 1024;
/// What a client may send before it has the answer to its last request; no more is read until then.
const READ_AHEAD_MAX: usize = 16 * 1024;
/// Largest body that is read along with its head.
const BODY_MAX: usize = 64 * 1024;
/// How long the end of a connection may take, in a transport that says good-bye.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What holds for all connections of a listener.
pub(super) struct FastPathContext<'a> {
    pub(super) service: &'a ConnectionService,
    /// Largest head of a request, in bytes.
    pub(super) head: usize,
    /// Longest time to receive a request's head, and to be idle.
    pub(super) read_timeout: Duration,
    /// Cancelled when the gateway stops.
    pub(super) draining: &'a CancellationToken,
    /// How long who is about to send is waited for then.
    pub(super) drain_grace: Duration,
    /// The connection's.
    pub(super) slot: &'a Arc<ConnectionSlot>,
}

/// Serves the plain requests of a connection; `None`: it is over.
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
            // The first time there is nothing, the wakes of an earlier wait still hold.
            let again = !std::mem::replace(&mut is_first, false);
            let looks = !is_told && (again || !hears_of_end || terms.draining.is_cancelled());
            is_told = is_told || looks && told.as_mut().poll(cx).is_ready();
            hears_of_end = true;
            if connection.partial.is_some() && !std::mem::replace(&mut has_head, true) {
                // A body has its own time, however long its connection was quiet before.
                until = Instant::now() + terms.read_timeout;
            }
            // Whoever is in the middle of a request may end it; the answer says that the connection is over.
            let over = is_told && connection.partial.is_none();
            if terms.slot.must_leave() {
                return Poll::Ready(NextRequest::Closed);
            }
            if over || timer.poll(cx, until, again).is_ready() {
                Poll::Ready(connection.on_timeout())
            } else {
                Poll::Pending
            }
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
        // A client that breaks off ends its request with it, in the way of its revision.
        let response = response.await?;
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

/// A plain request, and the front that takes it.
struct FastPathRequest {
    state: Arc<ServerState>,
    head: Parts,
    body: Bytes,
}

/// A request whose body is not whole yet.
struct PartialRequest {
    state: Arc<ServerState>,
    head: Parts,
    body: BytesMut,
    /// How much is to come.
    missing: usize,
}

/// What comes next on a connection.
enum NextRequest {
    Request(Box<FastPathRequest>),
    /// Half a request, for too long.
    TimedOut(Box<PartialRequest>),
    /// Something for the general server: all that was read of it is in `ahead`.
    Fallback,
    Closed,
}

struct FastPathConnection<'a, S> {
    stream: S,
    /// What was read, and is no part of the request that is served.
    read_ahead: Vec<u8>,
    /// Whether more has to come before it can be told what `ahead` is.
    is_incomplete: bool,
    /// A request whose body is not whole yet.
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
            let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
            let mut buffer = ReadBuf::uninit(&mut space);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            let mut held = std::mem::take(&mut self.read_ahead);
            let bytes = match (read, buffer.filled()) {
                // Or in the middle of a request: nobody is there to be told.
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

    /// What these bytes are or complete; `None`: more has to come.
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
        if bytes.len() < H2_PREFACE.len() && H2_PREFACE.starts_with(bytes) {
            (self.read_ahead, self.is_incomplete) = (bytes.to_vec(), true);
            return None;
        }
        let plain = head::parse_simple_post(bytes, self.context.head).filter(|plain| plain.length <= BODY_MAX);
        let taken = plain.and_then(|plain| Some((self.context.service.fast_path_state(&plain.head, known)?, plain)));
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
        Some(NextRequest::Request(Box::new(FastPathRequest { state: front, head, body: Bytes::copy_from_slice(body) })))
    }

    /// What is to be done where nothing more comes in time.
    fn on_timeout(&mut self) -> NextRequest {
        self.partial.take().map_or(NextRequest::Closed, NextRequest::TimedOut)
    }

    /// Whether the client went away; what it sends meanwhile is kept, within bounds.
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

/// The client is gone.
#[derive(Debug)]
struct ClientGone;

impl From<io::Error> for ClientGone {
    fn from(_: io::Error) -> Self {
        ClientGone
    }
}

/// A timer that is set anew for each request, and goes off for none: it is left to go off too early, and only then set to
/// what it is needed for.
#[derive(Default)]
struct LazyTimer(Option<Pin<Box<Sleep>>>);

impl LazyTimer {
    /// Waits until `until`. `again`: not for the first time, so that a timer which is set need not be asked before it
    /// wakes.
    fn poll(&mut self, cx: &mut Context<'_>, until: Instant, again: bool) -> Poll<()> {
        let mut is_new = false;
        let sleep = self.0.get_or_insert_with(|| {
            is_new = true;
            Box::pin(tokio::time::sleep_until(until))
        });
        if !again && !is_new && !sleep.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            // A connection that has spent its turn would be told to come back, and its timer would not be set.
            ready!(pin!(coop::unconstrained(sleep.as_mut())).poll(cx));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
    }
}
