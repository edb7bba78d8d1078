//! Waits of a connection on the fast path: for its next request, and for the end of its drain.
//!
//! Owns when a wait for a request ends without one. Does not read or answer requests. Invariant: a
//! client in the middle of a request may finish it within its own time, even after the drain grace.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use moongate_http1::{NextRequest, ServerConnection};
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection_limit::ConnectionSlot;
use moongate_protocol::lazy_timer::LazyTimer;

/// End of a wait for a request.
pub(super) enum ReadOutcome<T> {
    /// Event of the connection.
    Next(NextRequest<T>),
    /// The client was idle, or its request incomplete, for too long.
    TimedOut,
}

/// Wait for the end of the drain grace, over all requests of a connection.
pub(super) struct DrainWait<'d, G> {
    draining: &'d CancellationToken,
    /// Completes when the grace is over.
    grace: Pin<&'d mut G>,
    phase: DrainPhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DrainPhase {
    /// The grace was never polled.
    Unpolled,
    /// The grace has the task's waker.
    Registered,
    Over,
}

impl<'d, G: Future<Output = ()>> DrainWait<'d, G> {
    /// Creates the wait. `grace` completes some time after `draining` is cancelled.
    pub(super) fn new(draining: &'d CancellationToken, grace: Pin<&'d mut G>) -> Self {
        DrainWait {
            draining,
            grace,
            phase: DrainPhase::Unpolled,
        }
    }

    /// Waits until the grace is over.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.phase != DrainPhase::Over {
            self.phase = match self.grace.as_mut().poll(cx) {
                Poll::Ready(()) => DrainPhase::Over,
                Poll::Pending => DrainPhase::Registered,
            };
        }
        match self.phase {
            DrainPhase::Over => Poll::Ready(()),
            DrainPhase::Unpolled | DrainPhase::Registered => Poll::Pending,
        }
    }

    /// Continues to wait, as the task that waited before: its waker is still registered.
    fn poll_over_again(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.phase == DrainPhase::Registered && !self.draining.is_cancelled() {
            return Poll::Pending;
        }
        self.poll_over(cx)
    }
}

/// Wait for one request. Ends at the read timeout, at the end of the drain grace, or when the
/// connection's slot is needed.
pub(super) struct NextRequestWait<'a, 'd, S, T, A, G> {
    /// Connection that is read.
    pub(super) connection: &'a mut ServerConnection<S, T>,
    /// Decision whether a request is served here, by its head.
    pub(super) accept: &'a mut A,
    /// Drain of the connection.
    pub(super) drain: &'a mut DrainWait<'d, G>,
    /// Timer of the connection.
    pub(super) timer: &'a mut LazyTimer,
    /// Slot of the connection.
    pub(super) slot: &'a ConnectionSlot,
    /// Progress of the wait.
    pub(super) progress: WaitProgress,
}

/// Progress of a wait for a request, with its deadline.
pub(super) struct WaitProgress {
    phase: WaitPhase,
    until: Instant,
    read_timeout: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitPhase {
    /// Not polled yet. The wakers of an earlier wait are still registered.
    Unpolled,
    /// Nothing has arrived that is a request.
    Idle,
    /// The head has arrived, and a part of the body.
    Receiving,
}

impl WaitProgress {
    /// Begins a wait of `read_timeout`.
    pub(super) fn begin(read_timeout: Duration) -> Self {
        WaitProgress {
            phase: WaitPhase::Unpolled,
            until: Instant::now() + read_timeout,
            read_timeout,
        }
    }

    /// Records a poll after which the head has not arrived.
    fn on_idle(&mut self) {
        self.phase = WaitPhase::Idle;
    }

    /// Records a poll after which the body is incomplete.
    fn on_partial(&mut self) {
        if self.phase != WaitPhase::Receiving {
            // A body has its own time, however long its connection was quiet before.
            self.until = Instant::now() + self.read_timeout;
            self.phase = WaitPhase::Receiving;
        }
    }
}

impl<S, T, A, G> Future for NextRequestWait<'_, '_, S, T, A, G>
where
    S: AsyncRead + Unpin,
    A: FnMut(&Parts) -> Option<T>,
    G: Future<Output = ()>,
{
    type Output = ReadOutcome<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ReadOutcome<T>> {
        let wait = &mut *self;
        if let Poll::Ready(next) = wait.connection.poll_next(cx, wait.accept) {
            return Poll::Ready(ReadOutcome::Next(next));
        }
        let before = wait.progress.phase;
        if wait.connection.has_partial() {
            wait.progress.on_partial();
        } else {
            wait.progress.on_idle();
        }
        let drained = match before {
            WaitPhase::Unpolled => wait.drain.poll_over_again(cx),
            WaitPhase::Idle | WaitPhase::Receiving => wait.drain.poll_over(cx),
        };
        if wait.slot.must_leave() {
            return Poll::Ready(ReadOutcome::Next(NextRequest::Closed));
        }
        let until = wait.progress.until;
        let timed_out = match before {
            WaitPhase::Unpolled => wait.timer.poll_again_until(cx, until),
            WaitPhase::Idle | WaitPhase::Receiving => wait.timer.poll_until(cx, until),
        };
        // A client in the middle of a request may finish it. The response says that the connection
        // ends.
        let ends = drained.is_ready() && wait.progress.phase == WaitPhase::Idle;
        if ends || timed_out.is_ready() {
            Poll::Ready(ReadOutcome::TimedOut)
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;

    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;

    const READ_TIMEOUT: Duration = Duration::from_secs(10);
    const GRACE: Duration = Duration::from_secs(2);
    /// Head of a request, and the start of its body.
    const PARTIAL: &[u8] = b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1";

    #[test]
    fn a_registered_grace_is_polled_again_only_on_a_wake_or_once_the_drain_has_begun() {
        let draining = CancellationToken::new();
        let polls = Cell::new(0);
        let grace = pin!(poll_fn(|_| {
            polls.set(polls.get() + 1);
            if draining.is_cancelled() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        let mut drain = DrainWait::new(&draining, grace);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(drain.poll_over_again(&mut cx).is_pending());
        assert!(drain.poll_over_again(&mut cx).is_pending());
        assert_eq!(polls.get(), 1, "the waker is registered");
        assert!(drain.poll_over(&mut cx).is_pending());
        assert_eq!(polls.get(), 2, "something woke the task");
        draining.cancel();
        assert!(drain.poll_over_again(&mut cx).is_ready());
        assert!(drain.poll_over(&mut cx).is_ready());
        assert_eq!(polls.get(), 3, "a completed grace is not polled again");
    }

    /// Waits for a request of a client that has sent `sent`. The gateway drains from the start if
    /// `draining` is cancelled. Returns the time that the wait took, if it timed out.
    async fn time_out_after(sent: &[u8], draining: &CancellationToken) -> Option<Duration> {
        let (mut client, stream) = tokio::io::duplex(1024);
        client.write_all(sent).await.unwrap();
        let mut connection = ServerConnection::<DuplexStream, ()>::new(stream, 1024);
        let grace = pin!(async {
            draining.cancelled().await;
            tokio::time::sleep(GRACE).await;
        });
        let began = Instant::now();
        let wait = NextRequestWait {
            connection: &mut connection,
            accept: &mut |_: &Parts| Some(()),
            drain: &mut DrainWait::new(draining, grace),
            timer: &mut LazyTimer::default(),
            slot: &ConnectionSlot::new(),
            progress: WaitProgress::begin(READ_TIMEOUT),
        };
        match wait.await {
            ReadOutcome::TimedOut => Some(began.elapsed()),
            ReadOutcome::Next(_) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_client_has_the_read_timeout_and_in_a_drain_only_the_grace() {
        let draining = CancellationToken::new();
        assert_eq!(time_out_after(b"", &draining).await, Some(READ_TIMEOUT));
        draining.cancel();
        assert_eq!(time_out_after(b"", &draining).await, Some(GRACE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_in_the_middle_of_a_request_may_finish_it_after_the_grace() {
        let draining = CancellationToken::new();
        draining.cancel();
        assert_eq!(time_out_after(PARTIAL, &draining).await, Some(READ_TIMEOUT));
    }
}
