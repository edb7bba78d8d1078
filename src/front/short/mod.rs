//! The short way over a connection: plain requests to the endpoints, without a general server in between.
//!
//! Owns a connection for as long as every request on it is a POST of the common spelling to an endpoint, and hands it
//! over, with what was read of the first request that is not, to the general server. Does not know messages (`mcp`).
//! Invariant: what it does not understand at a glance it does not judge; and every answer is the endpoint's own.
//!
//! A general server keeps a buffer for each direction, has a channel between a request's head and its body, and sets a
//! timer for each head: a sixth of all instructions of a small call.

mod answer;
mod date;
mod head;
mod rest;

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

use crate::auth::Remembered;
use crate::front::places::{ConnectionPlace, PlaceUse};
use crate::front::service::{Known, Service};
use crate::front::short::rest::PREFACE;
use crate::front::{Front, Peer, mcp};

pub(super) use rest::Rest;

/// What is read at once, at most. It is on the stack, and only for the moment of the reading.
const READ_SIZE: usize = 16 * 1024;
/// What a client may send before it has the answer to its last request; no more is read until then.
const AHEAD_MAX: usize = 16 * 1024;
/// Largest body that is read along with its head.
const BODY_MAX: usize = 64 * 1024;
/// How long the end of a connection may take, in a transport that says good-bye.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// What holds for all connections of a listener.
pub(super) struct Terms<'a> {
    pub(super) service: &'a Service,
    /// Largest head of a request, in bytes.
    pub(super) head: usize,
    /// Longest time to receive a request's head, and to be idle.
    pub(super) read_timeout: Duration,
    /// Cancelled when the gateway stops.
    pub(super) draining: &'a CancellationToken,
    /// How long who is about to send is waited for then.
    pub(super) linger: Duration,
    /// The connection's.
    pub(super) place: &'a Arc<ConnectionPlace>,
}

/// Serves the plain requests of a connection; `None`: it is over.
pub(super) async fn converse<S>(stream: S, terms: Terms<'_>) -> Option<Rest<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = Connection { stream, ahead: Vec::new(), is_torn: false, begun: None, terms: &terms };
    let (mut timer, mut known, mut remembered) = (Timer::default(), Known::default(), None);
    let mut dates = date::Dates::default();
    let mut told = pin!(async {
        terms.draining.cancelled().await;
        tokio::time::sleep(terms.linger).await;
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
            if connection.begun.is_some() && !std::mem::replace(&mut has_head, true) {
                // A body has its own time, however long its connection was quiet before.
                until = Instant::now() + terms.read_timeout;
            }
            // Whoever is in the middle of a request may end it; the answer says that the connection is over.
            let over = is_told && connection.begun.is_none();
            if terms.place.must_leave() {
                return Poll::Ready(Next::Over);
            }
            if over || timer.poll(cx, until, again).is_ready() { Poll::Ready(connection.late()) } else { Poll::Pending }
        });
        let request = match next.await {
            Next::Request(request) => request,
            Next::Late(begun) => {
                let response = mcp::refuse_late(&begun.front, &begun.head);
                answer::write(&mut connection, response, true, dates.now(Instant::now())).await.ok()?;
                break;
            }
            Next::Over => break,
            Next::Other => return Some(Rest::new(connection.stream, &connection.ahead)),
        };
        let (received, place) = (Instant::now(), terms.place.begin());
        let mut work = Box::pin(serve(request, &mut remembered, terms.service.peer(), received, &place));
        let response = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => connection.poll_gone(cx).map(|()| None),
        });
        // A client that breaks off ends its request with it, in the way of its revision.
        let response = response.await?;
        drop(work);
        let closing = terms.service.is_closing().load(Ordering::Relaxed);
        answer::write(&mut connection, response, closing, dates.now(Instant::now())).await.ok()?;
        drop(place);
        if closing {
            break;
        }
    }
    let _ = tokio::time::timeout(CLOSE_TIME, connection.stream.shutdown()).await;
    None
}

async fn serve(
    request: Box<Request>,
    remembered: &mut Option<Remembered>,
    peer: Option<Peer>,
    received: Instant,
    place: &PlaceUse,
) -> http::Response<crate::body::Body> {
    let Request { front, head, body } = *request;
    let principal = front.keys.authenticate_again(&head.headers, remembered);
    if principal.is_ok() {
        place.admit();
    }
    mcp::serve_whole(&front, head, body, principal, peer, received).await
}

/// A plain request, and the front that takes it.
struct Request {
    front: Arc<Front>,
    head: Parts,
    body: Bytes,
}

/// A request whose body is not whole yet.
struct Begun {
    front: Arc<Front>,
    head: Parts,
    body: BytesMut,
    /// How much is to come.
    missing: usize,
}

/// What comes next on a connection.
enum Next {
    Request(Box<Request>),
    /// Half a request, for too long.
    Late(Box<Begun>),
    /// Something for the general server: all that was read of it is in `ahead`.
    Other,
    Over,
}

struct Connection<'a, S> {
    stream: S,
    /// What was read, and is no part of the request that is served.
    ahead: Vec<u8>,
    /// Whether more has to come before it can be told what `ahead` is.
    is_torn: bool,
    /// A request whose body is not whole yet.
    begun: Option<Box<Begun>>,
    terms: &'a Terms<'a>,
}

impl<S: AsyncRead + Unpin> Connection<'_, S> {
    fn poll_next(&mut self, cx: &mut Context<'_>, known: &mut Known) -> Poll<Next> {
        loop {
            if !self.ahead.is_empty() && !self.is_torn {
                let bytes = std::mem::take(&mut self.ahead);
                match self.take(&bytes, known) {
                    Some(next) => return Poll::Ready(next),
                    None => continue,
                }
            }
            let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
            let mut buffer = ReadBuf::uninit(&mut space);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            let mut held = std::mem::take(&mut self.ahead);
            let bytes = match (read, buffer.filled()) {
                // Or in the middle of a request: nobody is there to be told.
                (Err(_), _) | (_, []) => return Poll::Ready(Next::Over),
                (Ok(()), bytes) if held.is_empty() => bytes,
                (Ok(()), bytes) => {
                    held.extend_from_slice(bytes);
                    &held
                }
            };
            self.is_torn = false;
            if let Some(next) = self.take(bytes, known) {
                return Poll::Ready(next);
            }
        }
    }

    /// What these bytes are or complete; `None`: more has to come.
    fn take(&mut self, bytes: &[u8], known: &mut Known) -> Option<Next> {
        if let Some(begun) = &mut self.begun {
            let (here, rest) = bytes.split_at(bytes.len().min(begun.missing));
            begun.body.extend_from_slice(here);
            begun.missing -= here.len();
            if begun.missing > 0 {
                return None;
            }
            self.ahead = rest.to_vec();
            let Begun { front, head, body, .. } = *self.begun.take()?;
            return Some(Next::Request(Box::new(Request { front, head, body: body.freeze() })));
        }
        if bytes.len() < PREFACE.len() && PREFACE.starts_with(bytes) {
            (self.ahead, self.is_torn) = (bytes.to_vec(), true);
            return None;
        }
        let plain = head::plain(bytes, self.terms.head).filter(|plain| plain.length <= BODY_MAX);
        let taken = plain.and_then(|plain| Some((self.terms.service.takes(&plain.head, known)?, plain)));
        let Some((front, head::Plain { head, size, length })) = taken else {
            self.ahead = bytes.to_vec();
            return Some(Next::Other);
        };
        let rest = &bytes[size..];
        if rest.len() < length {
            let mut body = BytesMut::with_capacity(length);
            body.extend_from_slice(rest);
            self.begun = Some(Box::new(Begun { front, head, body, missing: length - rest.len() }));
            return None;
        }
        let (body, rest) = rest.split_at(length);
        self.ahead = rest.to_vec();
        Some(Next::Request(Box::new(Request { front, head, body: Bytes::copy_from_slice(body) })))
    }

    /// What is to be done where nothing more comes in time.
    fn late(&mut self) -> Next {
        self.begun.take().map_or(Next::Over, Next::Late)
    }

    /// Whether the client went away; what it sends meanwhile is kept, within bounds.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.ahead.len() < AHEAD_MAX {
            let mut space = [const { MaybeUninit::uninit() }; 1024];
            let mut buffer = ReadBuf::uninit(&mut space);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.ahead.extend_from_slice(buffer.filled()),
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}

/// The client is gone.
#[derive(Debug)]
struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Gone
    }
}

/// A timer that is set anew for each request, and goes off for none: it is left to go off too early, and only then set to
/// what it is needed for.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
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
