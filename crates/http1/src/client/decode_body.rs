//! Response bodies, read from their connections on demand.
//!
//! Owns the state of the body and the bytes that came with its head. Does not own the connection.
//! Invariant: no more is read than is asked for, and each byte is copied at most once.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use crate::client::chunked::ChunkedDecoder;
use crate::client::connection::{ClientConnection, READ_SIZE};
use crate::client::decode_head::BodyFraming;
use crate::error::{ConnectionError, ParseError};

/// Decoder of one body.
pub(crate) struct BodyDecoder {
    remaining: BodyRemaining,
    /// Decoded bytes that were not taken yet.
    buffered: Bytes,
}

/// Part of the body that is still to come.
enum BodyRemaining {
    /// Number of bytes.
    Length(u64),
    Chunks(ChunkedDecoder),
    /// Bytes until the connection ends.
    UntilClose,
}

impl BodyDecoder {
    /// Creates a decoder for a body that starts with `bytes`, and returns how many of them belong
    /// to it.
    pub(super) fn new(framing: BodyFraming, bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let mut left = match framing {
            BodyFraming::Length(length) => BodyRemaining::Length(length),
            BodyFraming::Chunked => BodyRemaining::Chunks(ChunkedDecoder::new()),
            BodyFraming::Close => BodyRemaining::UntilClose,
        };
        let mut ahead = BytesMut::new();
        let used = left.decode(bytes, &mut ahead)?;
        Ok((
            BodyDecoder {
                remaining: left,
                buffered: ahead.freeze(),
            },
            used,
        ))
    }

    /// True if the whole body was read from the connection.
    pub(crate) fn is_read(&self) -> bool {
        match &self.remaining {
            BodyRemaining::Length(left) => *left == 0,
            BodyRemaining::Chunks(chunks) => chunks.is_finished(),
            // Only the end of the connection shows it, so such a connection is never used again.
            BodyRemaining::UntilClose => false,
        }
    }

    /// True if no bytes are left to take.
    pub(crate) fn is_finished(&self) -> bool {
        self.buffered.is_empty() && self.is_read()
    }

    /// Returns the number of bytes left to take, if the head states it.
    pub(crate) fn length(&self) -> Option<u64> {
        let ahead = self.buffered.len() as u64;
        match &self.remaining {
            BodyRemaining::Length(left) => Some(ahead.saturating_add(*left)),
            _ => self.is_read().then_some(ahead),
        }
    }

    /// Takes the bytes that were read already.
    pub(crate) fn take_buffered(&mut self) -> Bytes {
        std::mem::take(&mut self.buffered)
    }

    /// Appends the next bytes to `out`. False at the end of the body.
    pub(crate) fn poll_fill(
        &mut self,
        connection: &mut ClientConnection,
        cx: &mut Context<'_>,
        out: &mut BytesMut,
    ) -> Poll<Result<bool, ConnectionError>> {
        let ahead = self.take_buffered();
        if !ahead.is_empty() {
            out.extend_from_slice(&ahead);
            return Poll::Ready(Ok(true));
        }
        // Some servers respond before they have read the whole request.
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
                // Without a length, the end of the connection is the regular end of the body.
                Ok(false) if matches!(self.remaining, BodyRemaining::UntilClose) => {
                    self.remaining = BodyRemaining::Length(0)
                }
                // An incomplete body leaves the connection at an unknown position.
                failed => {
                    connection.keep_alive = false;
                    return Poll::Ready(Err(failed
                        .err()
                        .unwrap_or(ConnectionError::Closed("within an answer"))));
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
                // What follows the body stays with the connection, whose owner decides about it.
                let taken =
                    usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                out.extend_from_slice(&bytes[..taken]);
                *left -= taken as u64;
                Ok(taken)
            }
            BodyRemaining::UntilClose => {
                out.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    }
}

/// Reads directly into the target buffer. False if the connection ended.
fn read_exactly(
    left: &mut u64,
    connection: &mut ClientConnection,
    cx: &mut Context<'_>,
    out: &mut BytesMut,
) -> Poll<io::Result<bool>> {
    let wanted = usize::try_from(*left).unwrap_or(usize::MAX);
    if out.capacity() == out.len() {
        // The caller reserved no room, and a buffer is allocated only once there are bytes for it.
        ready!(connection.stream.poll_read_ready(cx))?;
        out.reserve(wanted.min(READ_SIZE));
    }
    // Never beyond the body: the bytes behind it are not this reader's.
    let mut space = out.limit(wanted);
    let read = ready!(pin!(connection.stream.read_buf(&mut space)).poll(cx))?;
    *left -= read as u64;
    Poll::Ready(Ok(read > 0))
}

/// Reads and decodes available bytes. False if the connection ended.
fn read_some(
    left: &mut BodyRemaining,
    connection: &mut ClientConnection,
    cx: &mut Context<'_>,
    out: &mut BytesMut,
) -> Poll<Result<bool, ConnectionError>> {
    let (read, used) =
        ready!(connection.poll_read(cx, |bytes| (bytes.len(), left.decode(bytes, out))))?;
    if used? < read {
        // Bytes after the body: the connection is out of step with its requests.
        connection.keep_alive = false;
    }
    Poll::Ready(Ok(read > 0))
}
