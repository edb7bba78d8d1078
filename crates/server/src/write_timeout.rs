//! Write timeout of a connection. Owns the time that its writing may stall.
//!
//! Does not change what is read or written. Invariant: a write that has moved nothing for the limit fails. A write that
//! makes progress sets no timer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

type StallTimer = Option<Pin<Box<Sleep>>>;

/// Indices into `timers`.
const WRITE: usize = 0;
const FLUSH: usize = 1;

/// Stream whose writing may stall only for a limited time.
pub(super) struct WriteTimeout<S, F> {
    stream: S,
    limit: Duration,
    /// Callback for a timeout.
    on_timeout: F,
    /// Timers since when nothing could be written or flushed. They differ: a stream without a buffer is always flushed.
    timers: [StallTimer; 2],
}

impl<S, F: Fn()> WriteTimeout<S, F> {
    pub(super) fn new(stream: S, limit: Duration, on_timeout: F) -> Self {
        WriteTimeout { stream, limit, on_timeout, timers: [None, None] }
    }

    fn check_progress<T>(
        &mut self,
        what: usize,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let timer = &mut self.timers[what];
        if polled.is_ready() {
            // Progress ends the timer. The next stall starts a new one with the full limit.
            *timer = None;
            return polled;
        }
        let timer = timer.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        // Polled at once, which registers the waker for the limit.
        ready!(timer.as_mut().poll(cx));
        (self.on_timeout)();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin, F: Unpin> AsyncRead for WriteTimeout<S, F> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin, F: Fn() + Unpin> AsyncWrite for WriteTimeout<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_progress(WRITE, cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check_progress(WRITE, cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.check_progress(FLUSH, cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check_progress(FLUSH, cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_stands_still_fails() {
        let (ours, mut theirs) = duplex(4);
        let late = AtomicUsize::new(0);
        let mut written = WriteTimeout::new(ours, LIMIT, || {
            late.fetch_add(1, Ordering::Relaxed);
        });
        written.write_all(b"full").await.unwrap();
        let start = Instant::now();
        assert_eq!(written.write_all(b"more").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!((start.elapsed(), late.load(Ordering::Relaxed)), (LIMIT, 1));
        // A reader that takes a little now and then is only slow.
        let (ours, mut slow) = duplex(4);
        let writing =
            tokio::spawn(async move { WriteTimeout::new(ours, LIMIT, || ()).write_all(b"twelve bytes").await });
        let mut read = [0; 12];
        for piece in read.chunks_mut(2) {
            tokio::time::sleep(LIMIT * 9 / 10).await;
            slow.read_exact(piece).await.unwrap();
        }
        writing.await.unwrap().unwrap();
        assert_eq!(&read, b"twelve bytes");
        theirs.read_exact(&mut [0; 4]).await.unwrap();
    }
}
