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

use crate::link::http1::{Body, Broken, Connection};
use crate::link::plain::Plain;

/// The body of an answer.
pub(super) struct Answer(Source);

enum Source {
    Plain(Body, Option<Lent>),
    Tls(Incoming),
}

/// A connection, and where it goes afterwards.
struct Lent(Box<Connection>, Arc<Plain>);

impl From<Incoming> for Answer {
    fn from(body: Incoming) -> Self {
        Answer(Source::Tls(body))
    }
}

impl Answer {
    /// A body that comes on this connection.
    pub(super) fn new(body: Body, connection: Box<Connection>, home: Arc<Plain>) -> Self {
        let mut answer = Answer(Source::Plain(body, Some(Lent(connection, home))));
        answer.release();
        answer
    }

    /// Whether there is nothing more to take.
    pub(super) fn is_over(&self) -> bool {
        match &self.0 {
            Source::Plain(body, _) => body.is_over(),
            Source::Tls(body) => body.is_end_stream(),
        }
    }

    /// How many bytes there are to take, where the head says so.
    pub(super) fn length(&self) -> Option<u64> {
        match &self.0 {
            Source::Plain(body, _) => body.length(),
            Source::Tls(body) => body.size_hint().exact(),
        }
    }

    /// All that there is to take, if it was read already.
    pub(super) fn whole(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Source::Plain(body, _) => body.is_read().then(|| body.take_ahead()),
            Source::Tls(_) => None,
        }
    }

    /// Appends what comes next to `out`; false: it is over.
    pub(super) async fn fill(&mut self, out: &mut BytesMut) -> Result<bool, Broken> {
        std::future::poll_fn(|cx| self.poll_fill(cx, out)).await
    }

    /// What comes next; `None`: it is over.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        match &mut self.0 {
            Source::Tls(body) => poll_frame(body, cx),
            Source::Plain(body, _) => {
                let ahead = body.take_ahead();
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
    pub(super) async fn data(&mut self) -> Result<Option<Bytes>, Broken> {
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<bool, Broken>> {
        match &mut self.0 {
            Source::Tls(body) => {
                let data = ready!(poll_frame(body, cx))?;
                out.extend_from_slice(data.as_deref().unwrap_or_default());
                Poll::Ready(Ok(data.is_some()))
            }
            Source::Plain(body, lent) => {
                let polled = match lent {
                    Some(Lent(connection, _)) => ready!(body.poll_fill(connection, cx, out)),
                    None => {
                        let ahead = body.take_ahead();
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
        if let Source::Plain(body, lent) = &mut self.0
            && body.is_read()
            && let Some(Lent(connection, home)) = lent.take()
        {
            home.keep(connection);
        }
    }
}

fn poll_frame(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
    loop {
        match ready!(pin!(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(Ok(None)),
            Some(Err(error)) => return Poll::Ready(Err(Broken::Io(io::Error::other(error)))),
            // Trailers mean nothing.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Ok(Some(data)));
                }
            }
        }
    }
}
