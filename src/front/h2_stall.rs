//! Answers that their clients read no more, over HTTP/2.
//!
//! Owns the watch over them. What an exchange does, it does as its answer is read, so that nothing piles up for a client
//! that is slow; one that gives no room for an answer, on a connection that is well, would keep what its calls hold (places
//! at their servers, large results) for as long as it likes. Over HTTP/1.1 such a client has its whole connection blocked,
//! which `write_timeout` ends. Does not write. Invariant: an answer that has more to say, and is not asked for it within the
//! limit, is dropped as if its client had gone.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::telemetry::CounterHandle;

/// Between two looks, at the least and at the most; else a quarter of the limit.
const CHECK_INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// Answers that are noted before it is looked for the first time which of them are over.
const FIRST_SWEEP_AT: usize = 64;

/// What an answer is made of.
type BoxedBody = Pin<Box<dyn Body<Data = Bytes, Error = axum::Error> + Send>>;

/// The watch over all answers.
pub struct StallDetector {
    limit: Duration,
    watched: Mutex<WatchedBodies>,
    /// What was dropped: answers, and connections.
    dropped: CounterHandle,
    /// Whether somebody looks: from the first answer on.
    is_checking: AtomicBool,
}

struct WatchedBodies {
    entries: Vec<Weak<WatchedBody>>,
    /// When there are so many, those that are over are taken out: twice what was left the last time.
    sweep_at: usize,
}

/// An answer, where both its reader and the watch find it.
struct WatchedBody(Mutex<BodyState>);

struct BodyState {
    body: Option<BoxedBody>,
    /// Whether it was dropped before its end.
    is_dropped: bool,
    /// Since when it has not been asked for more.
    since: Option<Instant>,
}

impl StallDetector {
    /// A watch that drops answers after so long, and counts them.
    pub fn new(limit: Duration, dropped: CounterHandle) -> Arc<Self> {
        let seats = Mutex::new(WatchedBodies { entries: Vec::new(), sweep_at: FIRST_SWEEP_AT });
        Arc::new(StallDetector { limit, watched: seats, dropped, is_checking: AtomicBool::new(false) })
    }

    /// Something was not read, and is dropped.
    pub(super) fn record_dropped(&self) {
        self.dropped.inc();
    }

    /// The body, watched. It needs a runtime.
    pub(super) fn watch(
        self: &Arc<Self>,
        body: impl Body<Data = Bytes, Error = axum::Error> + Send + 'static,
    ) -> StallTimeoutBody {
        if !self.is_checking.swap(true, Ordering::Relaxed) {
            tokio::spawn(check_loop(
                Arc::downgrade(self),
                (self.limit / 4).clamp(CHECK_INTERVALS.0, CHECK_INTERVALS.1),
            ));
        }
        let watch = BodyState { body: Some(Box::pin(body)), is_dropped: false, since: Some(Instant::now()) };
        let seat = Arc::new(WatchedBody(Mutex::new(watch)));
        let mut seats = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if seats.entries.len() >= seats.sweep_at {
            seats.entries.retain(|seat| seat.strong_count() > 0);
            seats.sweep_at = FIRST_SWEEP_AT.max(seats.entries.len() * 2);
        }
        seats.entries.push(Arc::downgrade(&seat));
        StallTimeoutBody(seat)
    }

    /// Takes the answers that nobody reads; what they hold is free once they are dropped.
    fn take_stalled(&self, now: Instant) -> Vec<BoxedBody> {
        let mut seats = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stalled = Vec::new();
        seats.entries.retain(|seat| {
            let Some(seat) = seat.upgrade() else { return false };
            // Whoever holds it is reading it.
            let Ok(mut watch) = seat.0.try_lock() else { return true };
            if watch.since.is_none_or(|since| since + self.limit > now) {
                return watch.body.is_some();
            }
            watch.is_dropped = true;
            stalled.extend(watch.body.take());
            false
        });
        stalled
    }
}

/// Looks for answers that nobody reads, for as long as anybody holds the watch.
async fn check_loop(unread: Weak<StallDetector>, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let Some(unread) = unread.upgrade() else { return };
        // What ends with an answer may be much: outside of the lock.
        for body in unread.take_stalled(Instant::now()) {
            unread.record_dropped();
            tracing::debug!("a client reads nothing of an answer (limits.write_timeout): it is dropped");
            drop(body);
        }
    }
}

/// A body as its connection reads it.
pub(super) struct StallTimeoutBody(Arc<WatchedBody>);

impl WatchedBody {
    fn lock(&self) -> MutexGuard<'_, BodyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for StallTimeoutBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut watch = self.0.lock();
        // What has nothing to say waits for itself, and not for its reader.
        watch.since = None;
        if watch.is_dropped {
            // Its end would look like the whole of it.
            return Poll::Ready(Some(Err(axum::Error::new("the answer was not read (limits.write_timeout)"))));
        }
        let Some(body) = &mut watch.body else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(_)) => watch.since = Some(Instant::now()),
            Some(Err(_)) | None => watch.body = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let watch = self.0.lock();
        watch.body.as_ref().map_or(!watch.is_dropped, |body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.as_ref().map(|body| body.size_hint()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};
    use tokio::sync::oneshot;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn watch() -> Arc<StallDetector> {
        StallDetector::new(LIMIT, CounterHandle::new("dropped", "Dropped.").unwrap())
    }

    type Talk = Pin<Box<dyn futures_util::Stream<Item = Result<Frame<Bytes>, axum::Error>> + Send>>;

    /// An answer of so many frames, and then silent for ever; the other end hears when it is dropped.
    fn talking(frames: usize) -> (StreamBody<Talk>, oneshot::Receiver<()>) {
        let (held, dropped) = oneshot::channel::<()>();
        let rest = stream::once(async move {
            let _held = held;
            std::future::pending().await
        });
        let frames = stream::iter(0..frames).map(|_| Ok(Frame::data(Bytes::from_static(b"x"))));
        (StreamBody::new(frames.chain(rest).boxed()), dropped)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_has_more_and_is_not_asked_for_it_is_dropped() {
        let unread = watch();
        let (body, dropped) = talking(3);
        let mut read = unread.watch(body);
        for _ in 0..3 {
            tokio::time::sleep(LIMIT / 2).await;
            assert!(matches!(read.frame().await, Some(Ok(_))), "slow readers get everything");
        }
        tokio::time::sleep(LIMIT * 2).await;
        assert!(dropped.await.is_err(), "what it held is free");
        assert!(!read.is_end_stream() && matches!(read.frame().await, Some(Err(_))), "and it does not look whole");
        assert_eq!(unread.dropped.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_begins_to_read_is_dropped_too() {
        let unread = watch();
        let (body, dropped) = talking(1);
        let _read = unread.watch(body);
        tokio::time::sleep(LIMIT * 2).await;
        assert!(dropped.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_answer_stays() {
        let unread = watch();
        let (body, mut dropped) = talking(1);
        let mut read = unread.watch(body);
        assert!(read.frame().await.is_some());
        assert!(futures_util::poll!(read.frame()).is_pending());
        tokio::time::sleep(LIMIT * 10).await;
        assert!(futures_util::poll!(&mut dropped).is_pending());
        assert_eq!(unread.dropped.get(), 0);
    }

    #[tokio::test]
    async fn what_is_over_is_not_kept() {
        let unread = watch();
        for _ in 0..10 * FIRST_SWEEP_AT {
            drop(unread.watch(talking(1).0));
        }
        assert!(unread.watched.lock().unwrap().entries.len() <= FIRST_SWEEP_AT);
    }
}
