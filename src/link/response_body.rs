//! The body of an answer, whichever way it comes.
//!
//! Owns the connection under an answer for as long as there is more to read from it. Does not know messages. Invariant:
//! a connection goes back to where it came from as soon as the answer was read to its end, and at no other time.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::link::http1::{BodyDecoder, ConnectionError, HttpConnection};
use crate::link::pool::PlainPool;

/// The body of an answer.
pub(super) struct ResponseBody(BodySource);

enum BodySource {
    Plain(BodyDecoder, Option<PooledConnection>),
    Tls(Incoming),
}

/// A connection, and where it goes afterwards.
struct PooledConnection(Box<HttpConnection>, Arc<PlainPool>);

impl From<Incoming> for ResponseBody {
    fn from(body: Incoming) -> Self {
        ResponseBody(BodySource::Tls(body))
    }
}

impl ResponseBody {
    /// A body that comes on this connection.
    pub(super) fn new(body: BodyDecoder, connection: Box<HttpConnection>, home: Arc<PlainPool>) -> Self {
        let mut answer = ResponseBody(BodySource::Plain(body, Some(PooledConnection(connection, home))));
        answer.release();
        answer
    }

    /// Whether there is nothing more to take.
    pub(super) fn is_finished(&self) -> bool {
        match &self.0 {
            BodySource::Plain(body, _) => body.is_finished(),
            BodySource::Tls(body) => body.is_end_stream(),
        }
    }

    /// How many bytes there are to take, where the head says so.
    pub(super) fn length(&self) -> Option<u64> {
        match &self.0 {
            BodySource::Plain(body, _) => body.length(),
            BodySource::Tls(body) => body.size_hint().exact(),
        }
    }

    /// All that there is to take, if it was read already.
    pub(super) fn take_buffered(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            BodySource::Plain(body, _) => body.is_read().then(|| body.take_buffered()),
            BodySource::Tls(_) => None,
        }
    }

    /// Appends what comes next to `out`; false: it is over.
    pub(super) async fn fill(&mut self, out: &mut BytesMut) -> Result<bool, ConnectionError> {
        std::future::poll_fn(|cx| self.poll_fill(cx, out)).await
    }

    /// What comes next; `None`: it is over.
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

    /// What comes next; `None`: it is over.
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
                    Err(_) => *lent = None,
                }
                Poll::Ready(polled)
            }
        }
    }

    /// After the end of the body the connection can be used again. Before that, whoever drops the body closes it, which
    /// also tells the server.
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
            // Trailers mean nothing.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Ok(Some(data)));
                }
            }
        }
    }
}
