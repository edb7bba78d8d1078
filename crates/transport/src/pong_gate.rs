//! Gate for a WebSocket peer that pings and reads no answers.
//!
//! Owns the count of pongs that the WebSocket library may hold for the peer. Does not send pongs:
//! the library does, and puts each into a write buffer without a limit. Invariant: with
//! [`UNSENT_MAX`] pongs unsent, nothing more is read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Limit of pongs that wait to be written. What was read already may add a few.
// More than one: a server may ping now and then while it blocks in writing a large result that a
// call waits for.
const UNSENT_MAX: usize = 64;

/// Count of pings whose pongs may be unsent. Clones share it.
#[derive(Clone, Default)]
pub(super) struct UnsentPongs(Arc<AtomicUsize>);

impl UnsentPongs {
    /// Counts a ping, which the library answers.
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Connection that is not read while too many pongs are unsent.
pub(super) struct PongGate<S> {
    stream: S,
    unsent: UnsentPongs,
    /// True if the last write was refused. The library writes until its buffer is empty, or until
    /// then.
    is_blocked: bool,
}

impl<S> PongGate<S> {
    pub(super) fn new(stream: S, unsent: UnsentPongs) -> Self {
        PongGate {
            stream,
            unsent,
            is_blocked: false,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PongGate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_blocked {
            self.unsent.0.store(0, Ordering::Relaxed);
        } else if self.unsent.0.load(Ordering::Relaxed) >= UNSENT_MAX {
            // The refused write has registered the waker of this task, too.
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PongGate<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.is_blocked = polled.is_pending();
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
