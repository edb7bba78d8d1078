//! A connection of which something was read already.
//!
//! Owns those bytes until somebody else has read them. Does not look at them, except for the version that they speak.
//! Invariant: what was read first is read first again, and once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client of HTTP/2 begins with. RFC 9113, section 3.4.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that is to be served in the general way.
pub(in crate::front) struct Rest<S> {
    stream: S,
    ahead: Bytes,
}

impl<S> Rest<S> {
    /// A connection, and what was read of it.
    pub(super) fn new(stream: S, ahead: Bytes) -> Self {
        Rest { stream, ahead }
    }

    /// Whether the client speaks HTTP/2.
    pub(in crate::front) fn is_h2(&self) -> bool {
        self.ahead.starts_with(PREFACE)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rest<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let size = this.ahead.len().min(buffer.remaining());
        buffer.put_slice(&this.ahead[..size]);
        this.ahead.advance(size);
        if this.ahead.is_empty() {
            // It may be a part of something large.
            this.ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rest<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
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
