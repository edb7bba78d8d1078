//! Connection with bytes that were read already. Owns those bytes until hyper has read them, and
//! reads ahead while hyper does not read.
//!
//! Does not interpret them, except for the version of HTTP. Invariant: every byte is delivered
//! once, in order.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Connection preface of an HTTP/2 client (RFC 9113, section 3.4).
pub(super) const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum number of bytes that are read ahead of hyper.
const READ_AHEAD_MAX: usize = 16 * 1024;

/// Connection that hyper is to serve.
///
/// While a pipelined request waits behind the running one, hyper does not read. It would not notice
/// a disconnect then. So each of its flushes reads ahead, unless its own last read is still
/// pending.
pub struct Rewind<S> {
    stream: S,
    ahead: BytesMut,
    /// True if a read of hyper's own is pending, so that hyper notices whatever arrives.
    is_awaited: bool,
    /// True for HTTP/2, where hyper always reads.
    is_h2: bool,
}

impl<S> Rewind<S> {
    /// Wraps a connection, with the bytes that were read of it.
    pub(super) fn new(stream: S, ahead: &[u8]) -> Self {
        Rewind {
            stream,
            ahead: BytesMut::from(ahead),
            is_awaited: false,
            is_h2: ahead.starts_with(H2_PREFACE),
        }
    }

    /// True if the client speaks HTTP/2.
    pub fn is_h2(&self) -> bool {
        self.is_h2
    }
}

impl<S: AsyncRead + Unpin> Rewind<S> {
    /// Reads what the client sends meanwhile, within bounds. Fails once the client disconnected.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        // Bounded, so that a client that sends requests without reading fills no memory.
        while !self.is_h2 && !self.is_awaited && self.ahead.len() < READ_AHEAD_MAX {
            let mut space = [const { MaybeUninit::uninit() }; 1024];
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(read) => read?,
            }
            // Zero bytes mean EOF: the client disconnected.
            if buffer.filled().is_empty() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.ahead.extend_from_slice(buffer.filled());
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewind<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
            // Remembered, so that `read_ahead` does not replace the waker of hyper's own read.
            this.is_awaited = polled.is_pending();
            return polled;
        }
        let size = this.ahead.len().min(buffer.remaining());
        buffer.put_slice(&this.ahead[..size]);
        this.ahead.advance(size);
        if this.ahead.is_empty() {
            // Frees the buffer, which may be part of a large one.
            this.ahead = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Rewind<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // The flush comes first: what was written leaves before a disconnect ends the connection.
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        Poll::Ready(this.read_ahead(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
