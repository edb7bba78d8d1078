//! HTTP response bodies of the gateway: a few shared buffers, or a stream of them.
//!
//! Owns the type of every downstream response body. Does not build responses. Invariant: a body in
//! parts knows its exact length, so that the connection can be reused.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};

use moongate_jsonrpc::json::ByteString;
use moongate_telemetry::SMALL_MESSAGE;

/// Stream of body bytes that ends with the response.
pub type BodyStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// Response body.
pub enum Body {
    /// Buffers written one after another, without being joined.
    Parts(VecDeque<Bytes>),
    /// Bytes from a stream.
    Stream(BodyStream),
}

impl Body {
    /// Creates an empty body.
    pub fn empty() -> Self {
        Body::Parts(VecDeque::new())
    }

    /// Returns true if the body may hold messages that are reserved, and not only small ones.
    pub(crate) fn is_large(&self) -> bool {
        match self {
            Body::Parts(parts) => parts.iter().any(|part| part.len() > SMALL_MESSAGE),
            Body::Stream(_) => true,
        }
    }

    /// Creates a body of one buffer.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Body::Parts(VecDeque::from([bytes.into()]))
    }
}

/// Server whose messages a response is made of, as an extension of the response.
#[derive(Clone)]
pub struct AnsweringServer(pub ByteString);

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Body::Parts(parts) => Poll::Ready(parts.pop_front().map(|part| Ok(Frame::data(part)))),
            Body::Stream(chunks) => chunks
                .as_mut()
                .poll_next(cx)
                .map(|chunk| chunk.map(|c| Ok(Frame::data(c)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Parts(parts) if parts.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            // An exact size becomes `Content-Length`; without one the response is chunked.
            Body::Parts(parts) => SizeHint::with_exact(parts.iter().map(|p| p.len() as u64).sum()),
            // Unknown size: the response is chunked, or ends with its HTTP/2 stream.
            Body::Stream(_) => SizeHint::default(),
        }
    }
}
