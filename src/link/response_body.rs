//! Response bodies from our own connections or a general client.
//!
//! Owns the connection below a response until the response is read. Does not know messages. Invariant: a connection
//! returns to its pool as soon as the response was read to the end, and at no other time.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::link::http1::{BodyDecoder, ConnectionError, HttpConnection};
use crate::link::pool::PlainPool;

/// Body of a response.
pub(super) struct ResponseBody(BodySource);

enum BodySource {
    Plain(BodyDecoder, Option<PooledConnection>),
    Tls(Incoming),
}

/// Connection and the pool that it returns to.
struct PooledConnection(Box<HttpConnection>, Arc<PlainPool>);

impl From<Incoming> for ResponseBody {
    fn from(body: Incoming) -> Self {
        ResponseBody(BodySource::Tls(body))
    }
}

impl ResponseBody {
    /// Creates a body that arrives on this connection.
    pub(super) fn new(body: BodyDecoder, connection: Box<HttpConnection>, home: Arc<PlainPool>) -> Self {
        // A short body arrives with its head, and the connection is free already.
        let mut answer = ResponseBody(BodySource::Plain(body, Some(PooledConnection(connection, home))));
        answer.release();
        answer
    }

    /// True if no bytes are left to take.
    pub(super) fn is_finished(&self) -> bool {
        match &self.0 {
            BodySource::Plain(body, _) => body.is_finished(),
            BodySource::Tls(body) => body.is_end_stream(),
        }
    }

    /// Returns the number of bytes left to take, if the head states it.
    pub(super) fn length(&self) -> Option<u64> {
        match &self.0 {
            BodySource::Plain(body, _) => body.length(),
            BodySource::Tls(body) => body.size_hint().exact(),
        }
    }

    /// Takes the rest of the body, if it was read already.
    pub(super) fn take_buffered(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            BodySource::Plain(body, _) => body.is_read().then(|| body.take_buffered()),
            BodySource::Tls(_) => None,
        }
    }

    /// Appends the next bytes to `out`. False at the end of the body.
    pub(super) async fn fill(&mut self, out: &mut BytesMut) -> Result<bool, ConnectionError> {
        std::future::poll_fn(|cx| self.poll_fill(cx, out)).await
    }

    /// Returns the next bytes. `None` at the end of the body.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ConnectionError>> {
        match &mut self.0 {
            BodySource::Tls(body) => poll_frame(body, cx),
            BodySource::Plain(body, _) => {
                let ahead = body.take_buffered();
                if !ahead.is_empty() {
                    return Poll::Ready(Ok(Some(ahead)));
                }
                let mut data = BytesMut::new();
                let more = ready!(self.poll_fill(cx, &mut data))?;
                Poll::Ready(Ok(more.then(|| data.freeze())))
            }
        }
    }

    /// Returns the next bytes. `None` at the end of the body.
    pub(super) async fn data(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<bool, ConnectionError>> {
        match &mut self.0 {
            BodySource::Tls(body) => {
                let data = ready!(poll_frame(body, cx))?;
                out.extend_from_slice(data.as_deref().unwrap_or_default());
                Poll::Ready(Ok(data.is_some()))
            }
            BodySource::Plain(body, lent) => {
                let polled = match lent {
                    Some(PooledConnection(connection, _)) => ready!(body.poll_fill(connection, cx, out)),
                    None => {
                        let ahead = body.take_buffered();
                        out.extend_from_slice(&ahead);
                        Ok(!ahead.is_empty())
                    }
                };
                match &polled {
                    Ok(_) => self.release(),
                    // A broken connection must not return to the pool.
                    Err(_) => *lent = None,
                }
                Poll::Ready(polled)
            }
        }
    }

    /// Returns the connection to the pool once the body is read. A body dropped earlier closes it, which tells the
    /// server.
    fn release(&mut self) {
        if let BodySource::Plain(body, lent) = &mut self.0
            && body.is_read()
            && let Some(PooledConnection(connection, home)) = lent.take()
        {
            home.checkin(connection);
        }
    }
}

fn poll_frame(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ConnectionError>> {
    loop {
        match ready!(pin!(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(Ok(None)),
            Some(Err(error)) => return Poll::Ready(Err(ConnectionError::Io(io::Error::other(error)))),
            // Trailers carry no meaning for MCP.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Ok(Some(data)));
                }
            }
        }
    }
}
