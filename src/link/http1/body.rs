//! The body of an answer, read from its connection as it is asked for.
//!
//! Owns what is left of the body, and what came along with its head. Does not own the connection. Invariant: nothing is
//! read beyond what is asked for, and what is read is copied at most once.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use crate::link::http1::chunked::ChunkedDecoder;
use crate::link::http1::head::BodyFraming;
use crate::link::http1::{ConnectionError, HttpConnection, ParseError, READ_SIZE};

/// A body.
pub(in crate::link) struct BodyDecoder {
    remaining: BodyRemaining,
    /// What is decoded and was not asked for yet.
    buffered: Bytes,
}

/// What is still to come.
enum BodyRemaining {
    /// So many bytes.
    Length(u64),
    Chunks(ChunkedDecoder),
    /// What comes until the connection ends.
    UntilClose,
}

impl BodyDecoder {
    /// A body that begins with `bytes`, and how many of them are its own.
    pub(super) fn new(framing: BodyFraming, bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let mut left = match framing {
            BodyFraming::Length(length) => BodyRemaining::Length(length),
            BodyFraming::Chunked => BodyRemaining::Chunks(ChunkedDecoder::new()),
            BodyFraming::Close => BodyRemaining::UntilClose,
        };
        let mut ahead = BytesMut::new();
        let used = left.decode(bytes, &mut ahead)?;
        Ok((BodyDecoder { remaining: left, buffered: ahead.freeze() }, used))
    }

    /// Whether all of it was read from the connection.
    pub(in crate::link) fn is_read(&self) -> bool {
        match &self.remaining {
            BodyRemaining::Length(left) => *left == 0,
            BodyRemaining::Chunks(chunks) => chunks.is_finished(),
            BodyRemaining::UntilClose => false,
        }
    }

    /// Whether there is nothing more to take.
    pub(in crate::link) fn is_finished(&self) -> bool {
        self.buffered.is_empty() && self.is_read()
    }

    /// How many bytes there are to take, where the head says so.
    pub(in crate::link) fn length(&self) -> Option<u64> {
        let ahead = self.buffered.len() as u64;
        match &self.remaining {
            BodyRemaining::Length(left) => Some(ahead.saturating_add(*left)),
            _ => self.is_read().then_some(ahead),
        }
    }

    /// What was read already.
    pub(in crate::link) fn take_buffered(&mut self) -> Bytes {
        std::mem::take(&mut self.buffered)
    }

    /// Appends what comes next to `out`; false: it is over.
    pub(in crate::link) fn poll_fill(
        &mut self,
        connection: &mut HttpConnection,
        cx: &mut Context<'_>,
        out: &mut BytesMut,
    ) -> Poll<Result<bool, ConnectionError>> {
        let ahead = self.take_buffered();
        if !ahead.is_empty() {
            out.extend_from_slice(&ahead);
            return Poll::Ready(Ok(true));
        }
        // Some servers answer before they have read the request to its end.
        let _ = connection.poll_send_rest(cx);
        let before = out.len();
        while out.len() == before && !self.is_read() {
            let read = match &mut self.remaining {
                BodyRemaining::Length(left) => {
                    ready!(read_exactly(left, connection, cx, out)).map_err(ConnectionError::from)
                }
                left => ready!(read_some(left, connection, cx, out)),
            };
            match read {
                Ok(true) => {}
                Ok(false) if matches!(self.remaining, BodyRemaining::UntilClose) => {
                    self.remaining = BodyRemaining::Length(0)
                }
                failed => {
                    connection.keep_alive = false;
                    return Poll::Ready(Err(failed.err().unwrap_or(ConnectionError::Closed("within an answer"))));
                }
            }
        }
        Poll::Ready(Ok(out.len() > before))
    }
}

impl BodyRemaining {
    fn decode(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<usize, ParseError> {
        match self {
            BodyRemaining::Chunks(chunks) => {
                out.reserve(bytes.len());
                chunks.decode(bytes, out)
            }
            BodyRemaining::Length(left) => {
                let own = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                out.extend_from_slice(&bytes[..own]);
                *left -= own as u64;
                Ok(own)
            }
            BodyRemaining::UntilClose => {
                out.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    }
}

/// Reads straight to where it is wanted; false: the connection ended.
fn read_exactly(
    left: &mut u64,
    connection: &mut HttpConnection,
    cx: &mut Context<'_>,
    out: &mut BytesMut,
) -> Poll<io::Result<bool>> {
    let wanted = usize::try_from(*left).unwrap_or(usize::MAX);
    if out.capacity() == out.len() {
        // Nobody made room, nor is there a buffer before there is something to put into it.
        ready!(connection.stream.poll_read_ready(cx))?;
        out.reserve(wanted.min(READ_SIZE));
    }
    let mut space = out.limit(wanted);
    let read = ready!(pin!(connection.stream.read_buf(&mut space)).poll(cx))?;
    *left -= read as u64;
    Poll::Ready(Ok(read > 0))
}

/// Reads what there is, and decodes it; false: the connection ended.
fn read_some(
    left: &mut BodyRemaining,
    connection: &mut HttpConnection,
    cx: &mut Context<'_>,
    out: &mut BytesMut,
) -> Poll<Result<bool, ConnectionError>> {
    let (read, used) = ready!(connection.poll_read(cx, |bytes| (bytes.len(), left.decode(bytes, out))))?;
    if used? < read {
        // Something that nobody asked for.
        connection.keep_alive = false;
    }
    Poll::Ready(Ok(read > 0))
}
