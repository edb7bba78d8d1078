//! The body of an HTTP response of ours: a few shared buffers, or a stream of them.
//!
//! Owns the type that every front answers with. Does not build responses. Invariant: a body in parts knows its exact
//! length, so that the connection can be kept.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};

/// A stream of body bytes; it ends when the response does.
pub type BodyStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// A response body.
pub enum Body {
    /// Buffers that are written one after the other, without being joined.
    Parts(VecDeque<Bytes>),
    /// Bytes as they come.
    Stream(BodyStream),
}

impl Body {
    /// No body.
    pub fn empty() -> Self {
        Body::Parts(VecDeque::new())
    }

    /// One buffer.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Body::Parts(VecDeque::from([bytes.into()]))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Body::Parts(parts) => Poll::Ready(parts.pop_front().map(|part| Ok(Frame::data(part)))),
            Body::Stream(chunks) => chunks.as_mut().poll_next(cx).map(|chunk| chunk.map(|c| Ok(Frame::data(c)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Parts(parts) if parts.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Parts(parts) => SizeHint::with_exact(parts.iter().map(|p| p.len() as u64).sum()),
            Body::Stream(_) => SizeHint::default(),
        }
    }
}
