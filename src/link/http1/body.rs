//! The body of an answer, read from its connection as it is asked for.
//!
//! Owns what is left of the body, and what came along with its head. Does not own the connection. Invariant: nothing is
//! read beyond what is asked for, and what is read is copied at most once.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use crate::link::http1::chunked::Chunks;
use crate::link::http1::head::Framing;
use crate::link::http1::{Broken, Connection, READ_SIZE, Wrong};

/// A body.
pub(in crate::link) struct Body {
    left: Left,
    /// What is decoded and was not asked for yet.
    ahead: Bytes,
}

/// What is still to come.
enum Left {
    /// So many bytes.
    Length(u64),
    Chunks(Chunks),
    /// What comes until the connection ends.
    Rest,
}

impl Body {
    /// A body that begins with `bytes`, and how many of them are its own.
    pub(super) fn new(framing: Framing, bytes: &[u8]) -> Result<(Self, usize), Wrong> {
        let mut left = match framing {
            Framing::Length(length) => Left::Length(length),
            Framing::Chunked => Left::Chunks(Chunks::new()),
            Framing::Close => Left::Rest,
        };
        let mut ahead = BytesMut::new();
        let used = left.decode(bytes, &mut ahead)?;
        Ok((Body { left, ahead: ahead.freeze() }, used))
    }

    /// Whether all of it was read from the connection.
    pub(in crate::link) fn is_read(&self) -> bool {
        match &self.left {
            Left::Length(left) => *left == 0,
            Left::Chunks(chunks) => chunks.is_over(),
            Left::Rest => false,
        }
    }

    /// Whether there is nothing more to take.
    pub(in crate::link) fn is_over(&self) -> bool {
        self.ahead.is_empty() && self.is_read()
    }

    /// How many bytes there are to take, where the head says so.
    pub(in crate::link) fn length(&self) -> Option<u64> {
        let ahead = self.ahead.len() as u64;
        match &self.left {
            Left::Length(left) => Some(ahead.saturating_add(*left)),
            _ => self.is_read().then_some(ahead),
        }
    }

    /// What was read already.
    pub(in crate::link) fn take_ahead(&mut self) -> Bytes {
        std::mem::take(&mut self.ahead)
    }

    /// Appends what comes next to `out`; false: it is over.
    pub(in crate::link) fn poll_fill(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
        out: &mut BytesMut,
    ) -> Poll<Result<bool, Broken>> {
        let ahead = self.take_ahead();
        if !ahead.is_empty() {
            out.extend_from_slice(&ahead);
            return Poll::Ready(Ok(true));
        }
        // Some servers answer before they have read the request to its end.
        let _ = connection.send_on(cx);
        let before = out.len();
        while out.len() == before && !self.is_read() {
            let read = match &mut self.left {
                Left::Length(left) => ready!(read_exactly(left, connection, cx, out)).map_err(Broken::from),
                left => ready!(read_some(left, connection, cx, out)),
            };
            match read {
                Ok(true) => {}
                Ok(false) if matches!(self.left, Left::Rest) => self.left = Left::Length(0),
                failed => {
                    connection.is_kept = false;
                    return Poll::Ready(Err(failed.err().unwrap_or(Broken::Closed("within an answer"))));
                }
            }
        }
        Poll::Ready(Ok(out.len() > before))
    }
}

impl Left {
    fn decode(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<usize, Wrong> {
        match self {
            Left::Chunks(chunks) => {
                out.reserve(bytes.len());
                chunks.decode(bytes, out)
            }
            Left::Length(left) => {
                let own = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                out.extend_from_slice(&bytes[..own]);
                *left -= own as u64;
                Ok(own)
            }
            Left::Rest => {
                out.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    }
}

/// Reads straight to where it is wanted; false: the connection ended.
fn read_exactly(
    left: &mut u64,
    connection: &mut Connection,
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
    left: &mut Left,
    connection: &mut Connection,
    cx: &mut Context<'_>,
    out: &mut BytesMut,
) -> Poll<Result<bool, Broken>> {
    let (read, used) = ready!(connection.poll_read(cx, |bytes| (bytes.len(), left.decode(bytes, out))))?;
    if used? < read {
        // Something that nobody asked for.
        connection.is_kept = false;
    }
    Poll::Ready(Ok(read > 0))
}
