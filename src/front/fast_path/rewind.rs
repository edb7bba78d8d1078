//! A connection of which something was read already.
//!
//! Owns those bytes until somebody else has read them, and reads on where nobody else does. Does not look at them, except
//! for the version that they speak. Invariant: what was read first is read first again, and once.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client of HTTP/2 begins with. RFC 9113, section 3.4.
pub(super) const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is read ahead of the general server, in bytes.
const READ_AHEAD_MAX: usize = 16 * 1024;

/// A connection that is to be served in the general way.
///
/// With another request behind the one that runs, the general server does not read, and would not hear that its client
/// left. So each of its flushes reads ahead, unless its own last reading still waits.
pub(in crate::front) struct Rewind<S> {
    stream: S,
    ahead: BytesMut,
    /// A reading of the server's own waits, so that it hears of whatever comes.
    is_awaited: bool,
    /// HTTP/2 always reads.
    is_h2: bool,
}

impl<S> Rewind<S> {
    /// A connection, and what was read of it.
    pub(super) fn new(stream: S, ahead: &[u8]) -> Self {
        Rewind { stream, ahead: BytesMut::from(ahead), is_awaited: false, is_h2: ahead.starts_with(H2_PREFACE) }
    }

    /// Whether the client speaks HTTP/2.
    pub(in crate::front) fn is_h2(&self) -> bool {
        self.is_h2
    }
}

impl<S: AsyncRead + Unpin> Rewind<S> {
    /// Reads what the client sends meanwhile, within bounds; an error once it is gone.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.is_h2 && !self.is_awaited && self.ahead.len() < READ_AHEAD_MAX {
            let mut space = [const { MaybeUninit::uninit() }; 1024];
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(read) => read?,
            }
            if buffer.filled().is_empty() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.ahead.extend_from_slice(buffer.filled());
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewind<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
            this.is_awaited = polled.is_pending();
            return polled;
        }
        let size = this.ahead.len().min(buffer.remaining());
        buffer.put_slice(&this.ahead[..size]);
        this.ahead.advance(size);
        if this.ahead.is_empty() {
            // It may be a part of something large.
            this.ahead = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Rewind<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
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
