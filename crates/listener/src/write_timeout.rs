//! Write timeout of a connection. Owns the time that its writing may stall.
//!
//! Does not change what is read or written. Invariant: a write that has moved nothing for the limit
//! fails, and earlier if memory is short (`stalled_writes.rs`). A write that makes progress sets no
//! timer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::answer_holders::CurrentAnswer;
use crate::stalled_writes::{StallGuard, StalledWrites};

/// Stall of a write, from its first poll that moved nothing.
struct WriteStall {
    timer: Pin<Box<Sleep>>,
    guard: StallGuard,
}

/// Indices into `stalls`.
const WRITE: usize = 0;
const FLUSH: usize = 1;

/// Stream whose writing may stall only for a limited time.
pub(super) struct WriteTimeout<S, F> {
    stream: S,
    limit: Duration,
    /// Callback for a timeout.
    on_timeout: F,
    /// Stalls of writing and of flushing. They differ: a stream without a buffer is always flushed.
    stalls: [Option<WriteStall>; 2],
    /// List for the stalls of all connections.
    list: Arc<StalledWrites>,
    /// Holders of what is written.
    answer: Arc<CurrentAnswer>,
}

impl<S, F: Fn()> WriteTimeout<S, F> {
    pub(super) fn new(
        stream: S,
        limit: Duration,
        (list, answer): (Arc<StalledWrites>, Arc<CurrentAnswer>),
        on_timeout: F,
    ) -> Self {
        WriteTimeout {
            stream,
            limit,
            on_timeout,
            stalls: [None, None],
            list,
            answer,
        }
    }

    fn check_progress<T>(
        &mut self,
        what: usize,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let stall = &mut self.stalls[what];
        if polled.is_ready() {
            // Progress ends the stall. The next one starts with the full limit.
            *stall = None;
            return polled;
        }
        let stall = stall.get_or_insert_with(|| WriteStall {
            timer: Box::pin(sleep(self.limit)),
            guard: self.list.begin(self.answer.get()),
        });
        // Both polled at once, which registers the waker for either.
        let is_over = stall.timer.as_mut().poll(cx).is_ready();
        if !stall.guard.must_end(cx) && !is_over {
            return Poll::Pending;
        }
        (self.on_timeout)();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin, F: Unpin> AsyncRead for WriteTimeout<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin, F: Fn() + Unpin> AsyncWrite for WriteTimeout<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
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
    use crate::answer_holders::AnswerHolders;
    use moongate_telemetry::MemoryHolder;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_stands_still_fails() {
        let (ours, mut theirs) = duplex(4);
        let late = AtomicUsize::new(0);
        let mut written = WriteTimeout::new(ours, LIMIT, Default::default(), || {
            late.fetch_add(1, Ordering::Relaxed);
        });
        written.write_all(b"full").await.unwrap();
        let start = Instant::now();
        assert_eq!(
            written.write_all(b"more").await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert_eq!(start.elapsed(), LIMIT);
        assert_eq!(late.load(Ordering::Relaxed), 1);
        // A reader that takes a little now and then is only slow.
        let (ours, mut slow) = duplex(4);
        let writing = tokio::spawn(async move {
            WriteTimeout::new(ours, LIMIT, Default::default(), || ())
                .write_all(b"twelve bytes")
                .await
        });
        let mut read = [0; 12];
        for piece in read.chunks_mut(2) {
            tokio::time::sleep(LIMIT * 9 / 10).await;
            slow.read_exact(piece).await.unwrap();
        }
        writing.await.unwrap().unwrap();
        assert_eq!(&read, b"twelve bytes");
        theirs.read_exact(&mut [0; 4]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_stands_still_ends_early_where_memory_is_short() {
        let list = Arc::new(StalledWrites::default());
        let (ours, _theirs) = duplex(4);
        let holder = MemoryHolder::Principal(1);
        let answer = Arc::new(CurrentAnswer::default());
        answer.set(AnswerHolders {
            client: Some(holder.clone()),
            server: None,
        });
        let mut written = WriteTimeout::new(ours, LIMIT, (list.clone(), answer), || ());
        written.write_all(b"full").await.unwrap();
        let start = Instant::now();
        let writing =
            tokio::spawn(async move { written.write_all(b"more").await.unwrap_err().kind() });
        tokio::time::sleep(LIMIT / 2).await;
        assert!(list.end_oldest(&holder));
        assert_eq!(writing.await.unwrap(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), LIMIT / 2);
    }
}
