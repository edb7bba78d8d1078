//! Server side of one connection, as long as its requests are simple POSTs.
//!
//! Owns what was read of the client, and the order of requests and responses. Does not answer
//! requests. Invariant: no buffer is held while nothing was received.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::request::Parts;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use crate::server::date_cache::DateCache;
use crate::server::decode::{SimplePost, decode_simple_post};
use crate::server::encode::{SendBody, write_response};
use crate::server::rewind::{H2_PREFACE, Rewind};

/// Maximum size of one read, in bytes. The buffer is on the stack, only while reading.
const READ_SIZE: usize = 16 * 1024;
/// Maximum size of what a client may send before it has its response, in bytes. Reading pauses
/// there.
const READ_AHEAD_MAX: usize = 16 * 1024;
/// Maximum size of a body that is read along with its head, in bytes.
// Larger bodies go to hyper: there, memory is checked before the body is read.
const BODY_MAX: usize = 64 * 1024;
/// Time limit for closing a connection. TLS sends a last message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Simple POST with its whole body, and the state of the code that accepted it.
pub struct BufferedRequest<T> {
    /// State that `accept` returned.
    pub state: T,
    /// Head of the request.
    pub head: Parts,
    /// Whole body.
    pub body: Bytes,
}

/// Request whose body is incomplete.
pub struct PartialRequest<T> {
    /// State that `accept` returned.
    pub state: T,
    /// Head of the request.
    pub head: Parts,
    body: BytesMut,
    /// Bytes of the body that are still to come.
    missing: usize,
}

/// Next event on a connection.
pub enum NextRequest<T> {
    /// Simple POST.
    Request(Box<BufferedRequest<T>>),
    /// Request for hyper. All that was read of it stays in the connection.
    Fallback,
    /// End of the connection.
    Closed,
}

/// Fate of a connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// More requests may follow.
    KeepAlive,
    /// The response announces the end of the connection.
    Close,
}

/// Error of a client that disconnected.
#[derive(Debug)]
pub struct ClientGone;

impl From<io::Error> for ClientGone {
    fn from(_: io::Error) -> Self {
        ClientGone
    }
}

/// Server side of one connection. `T` is the state of the code that accepts requests.
pub struct ServerConnection<S, T> {
    pub(super) stream: S,
    /// Bytes that were read beyond the request being served.
    read_ahead: Vec<u8>,
    /// True if `read_ahead` is too short to be judged.
    is_incomplete: bool,
    /// Request whose body is incomplete.
    partial: Option<Box<PartialRequest<T>>>,
    /// Maximum size of a request head, in bytes.
    head_max: usize,
    dates: DateCache,
}

impl<S, T> ServerConnection<S, T> {
    /// Wraps a connection of which nothing was read.
    pub fn new(stream: S, head_max: usize) -> Self {
        let dates = DateCache::default();
        ServerConnection {
            stream,
            read_ahead: Vec::new(),
            is_incomplete: false,
            partial: None,
            head_max,
            dates,
        }
    }

    /// True if the head of a request was read, and its body is incomplete.
    pub fn has_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// Gives up the request whose body is incomplete. No other request can follow it.
    pub fn take_partial(&mut self) -> Option<Box<PartialRequest<T>>> {
        self.partial.take()
    }

    /// Returns the connection for hyper, with all bytes that were read of the next request.
    pub fn into_rewind(self) -> Rewind<S> {
        Rewind::new(self.stream, &self.read_ahead)
    }
}

impl<S: AsyncRead + Unpin, T> ServerConnection<S, T> {
    /// Waits for the next request. `accept` decides whether a simple request is served here, by its
    /// head.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        accept: &mut impl FnMut(&Parts) -> Option<T>,
    ) -> Poll<NextRequest<T>> {
        loop {
            if !self.read_ahead.is_empty() && !self.is_incomplete {
                let bytes = std::mem::take(&mut self.read_ahead);
                match self.parse_next(&bytes, accept) {
                    Some(next) => return Poll::Ready(next),
                    None => continue,
                }
            }
            // On the stack: an idle connection holds no read buffer.
            let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
            let mut buffer = ReadBuf::uninit(&mut space);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            let mut buffered = std::mem::take(&mut self.read_ahead);
            let bytes = match (read, buffer.filled()) {
                // EOF or an error, possibly in the middle of a request: nobody is left to answer.
                (Err(_), _) | (_, []) => return Poll::Ready(NextRequest::Closed),
                (Ok(()), bytes) if buffered.is_empty() => bytes,
                (Ok(()), bytes) => {
                    buffered.extend_from_slice(bytes);
                    &buffered
                }
            };
            self.is_incomplete = false;
            if let Some(next) = self.parse_next(bytes, accept) {
                return Poll::Ready(next);
            }
        }
    }

    /// Parses the bytes as a request, or as the rest of one. Returns `None` if more must come.
    fn parse_next(
        &mut self,
        bytes: &[u8],
        accept: &mut impl FnMut(&Parts) -> Option<T>,
    ) -> Option<NextRequest<T>> {
        if let Some(partial) = &mut self.partial {
            let (here, rest) = bytes.split_at(bytes.len().min(partial.missing));
            partial.body.extend_from_slice(here);
            partial.missing -= here.len();
            if partial.missing > 0 {
                return None;
            }
            self.read_ahead = rest.to_vec();
            let PartialRequest {
                state, head, body, ..
            } = *self.partial.take()?;
            return Some(NextRequest::Request(Box::new(BufferedRequest {
                state,
                head,
                body: body.freeze(),
            })));
        }
        // Too short to distinguish HTTP/2 from HTTP/1: POST and PUT also start with "P".
        if bytes.len() < H2_PREFACE.len() && H2_PREFACE.starts_with(bytes) {
            (self.read_ahead, self.is_incomplete) = (bytes.to_vec(), true);
            return None;
        }
        let simple =
            decode_simple_post(bytes, self.head_max).filter(|simple| simple.length <= BODY_MAX);
        let taken = simple.and_then(|simple| Some((accept(&simple.head)?, simple)));
        // A head in parts goes to hyper, too, which has the buffers and the timer for it.
        let Some((state, SimplePost { head, size, length })) = taken else {
            self.read_ahead = bytes.to_vec();
            return Some(NextRequest::Fallback);
        };
        let rest = &bytes[size..];
        if rest.len() < length {
            let mut body = BytesMut::with_capacity(length);
            body.extend_from_slice(rest);
            self.partial = Some(Box::new(PartialRequest {
                state,
                head,
                body,
                missing: length - rest.len(),
            }));
            return None;
        }
        let (body, rest) = rest.split_at(length);
        self.read_ahead = rest.to_vec();
        // Copied: a slice would keep the whole read alive for as long as the call.
        Some(NextRequest::Request(Box::new(BufferedRequest {
            state,
            head,
            body: Bytes::copy_from_slice(body),
        })))
    }

    /// Completes once the client disconnects. Keeps what it sends meanwhile, within bounds.
    pub fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.read_ahead.len() < READ_AHEAD_MAX {
            let mut space = [const { MaybeUninit::uninit() }; 1024];
            let mut buffer = ReadBuf::uninit(&mut space);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    self.read_ahead.extend_from_slice(buffer.filled())
                }
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, T> ServerConnection<S, T> {
    /// Writes a response to the last request.
    pub async fn write_response(
        &mut self,
        response: Response<SendBody>,
        persistence: Persistence,
    ) -> Result<(), ClientGone> {
        // The cache leaves the connection while the response borrows it.
        let mut dates = std::mem::take(&mut self.dates);
        let written = write_response(self, response, persistence, dates.now(Instant::now())).await;
        self.dates = dates;
        written
    }

    /// Closes the connection.
    pub async fn close(mut self) {
        // The socket is closed by its drop in any case.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.stream.shutdown()).await;
    }
}
