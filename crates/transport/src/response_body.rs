//! Response bodies from our own connections or a general client.
//!
//! Owns the choice between them. Does not know messages. Invariant: both kinds report the same
//! errors.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::body::Incoming;
use moongate_http1::{ConnectionError, PooledBody};

use crate::content_coding::DecodedBody;

/// Body of a response.
pub(super) enum ResponseBody {
    /// Over one of our own connections.
    Plain(PooledBody),
    /// Over a general client.
    Tls(Incoming),
    /// Without the content coding of another body.
    Decoded(Box<DecodedBody>),
    /// Nothing, for tests.
    #[cfg(test)]
    Empty,
}

impl ResponseBody {
    /// True if no bytes are left to take.
    pub(super) fn is_finished(&self) -> bool {
        match self {
            ResponseBody::Plain(body) => body.is_finished(),
            ResponseBody::Tls(body) => body.is_end_stream(),
            ResponseBody::Decoded(body) => body.is_finished(),
            #[cfg(test)]
            ResponseBody::Empty => true,
        }
    }

    /// Returns the body as it arrives, with its coding.
    pub(super) fn into_coded(self) -> ResponseBody {
        let mut body = self;
        while let ResponseBody::Decoded(decoded) = body {
            body = decoded.into_inner();
        }
        body
    }

    /// Returns the number of bytes left to take, if the head states it.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            ResponseBody::Plain(body) => body.length(),
            ResponseBody::Tls(body) => body.size_hint().exact(),
            ResponseBody::Decoded(_) => None,
            #[cfg(test)]
            ResponseBody::Empty => None,
        }
    }

    /// Takes the rest of the body, if it was read already.
    pub(super) fn take_buffered(&mut self) -> Option<Bytes> {
        match self {
            ResponseBody::Plain(body) => body.take_buffered(),
            ResponseBody::Tls(_) | ResponseBody::Decoded(_) => None,
            #[cfg(test)]
            ResponseBody::Empty => None,
        }
    }

    /// Appends the next bytes to `out`. False at the end of the body.
    pub(super) async fn fill(&mut self, out: &mut BytesMut) -> Result<bool, ConnectionError> {
        match self {
            ResponseBody::Plain(body) => body.fill(out).await,
            other => {
                let data = other.data().await?;
                out.extend_from_slice(data.as_deref().unwrap_or_default());
                Ok(data.is_some())
            }
        }
    }

    /// Returns the next bytes. `None` at the end of the body.
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ConnectionError>> {
        match self {
            ResponseBody::Plain(body) => body.poll_data(cx),
            ResponseBody::Tls(body) => poll_frame(body, cx),
            ResponseBody::Decoded(body) => body.poll_data(cx),
            #[cfg(test)]
            ResponseBody::Empty => Poll::Ready(Ok(None)),
        }
    }

    /// Returns the next bytes. `None` at the end of the body.
    pub(super) async fn data(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }
}

fn poll_frame(
    body: &mut Incoming,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, ConnectionError>> {
    loop {
        match ready!(pin!(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(Ok(None)),
            Some(Err(error)) => {
                return Poll::Ready(Err(ConnectionError::Io(io::Error::other(error))));
            }
            // Trailers carry no meaning for MCP.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Ok(Some(data)));
                }
            }
        }
    }
}
