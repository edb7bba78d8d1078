//! Stall detector for HTTP/2 responses. Owns the watch over their bodies.
//!
//! An exchange advances as its response is read, so that nothing piles up for a slow client. A
//! client that gives one stream no window would hold the resources of its call: permits of servers,
//! large results. Over HTTP/1.1 such a client blocks its whole connection, which `write_timeout`
//! ends.
//!
//! Does not write. Invariant: a response with more to send that is not polled within the limit is
//! dropped, as if its client had disconnected.

use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use moongate_telemetry::{CounterHandle, MemoryHolder, MemoryRelief};

use crate::answer_holders::AnswerHolders;
use crate::stalled_writes::{STALL_GRACE, StalledWrites};

/// Minimum and maximum time between two checks. In between, a quarter of the limit.
const CHECK_INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// Largest frame that a connection is given. It takes one whole, however small the window of its
/// client is.
const FRAME_MAX: usize = 64 * 1024;
/// Number of watched bodies at which finished ones are first swept out.
const FIRST_SWEEP_AT: usize = 64;

/// Body of a response.
type BoxedBody = Pin<Box<dyn Body<Data = Bytes, Error = axum::Error> + Send>>;

/// Watch over the bodies of all HTTP/2 responses.
pub struct StallDetector {
    limit: Duration,
    watched: Mutex<WatchedBodies>,
    /// Counter of dropped responses and connections.
    dropped: CounterHandle,
    /// True once the check loop runs: it starts with the first response.
    is_checking: AtomicBool,
    /// Writes of whole connections that wait.
    writes: Arc<StalledWrites>,
}

struct WatchedBodies {
    entries: Vec<Weak<WatchedBody>>,
    /// Number of entries at which finished ones are swept out: twice what the last sweep left.
    sweep_at: usize,
}

/// Body that both its reader and the detector can reach.
struct WatchedBody {
    state: Mutex<BodyState>,
    holders: AnswerHolders,
}

struct BodyState {
    body: Option<BoxedBody>,
    /// Rest of a large frame.
    rest: Bytes,
    /// True if the detector dropped it before its end.
    is_dropped: bool,
    /// Time since when it has had more to send and was not polled.
    since: Option<Instant>,
}

impl StallDetector {
    /// Creates a detector that drops a body after `limit`, and counts it in `dropped`.
    pub fn new(limit: Duration, dropped: CounterHandle) -> Arc<Self> {
        let watched = Mutex::new(WatchedBodies {
            entries: Vec::new(),
            sweep_at: FIRST_SWEEP_AT,
        });
        Arc::new(StallDetector {
            limit,
            watched,
            dropped,
            is_checking: AtomicBool::new(false),
            writes: Arc::default(),
        })
    }

    /// Counts a response or connection that was not read.
    pub(super) fn record_dropped(&self) {
        self.dropped.inc();
    }

    /// Returns the list of writes that wait.
    pub(super) fn writes(&self) -> Arc<StalledWrites> {
        self.writes.clone()
    }

    /// Watches a body with these holders. Needs a runtime.
    pub(super) fn watch(
        self: &Arc<Self>,
        body: impl Body<Data = Bytes, Error = axum::Error> + Send + 'static,
        holders: AnswerHolders,
    ) -> StallTimeoutBody {
        if !self.is_checking.swap(true, Ordering::Relaxed) {
            tokio::spawn(check_loop(
                // Weak, so that the loop ends with the detector.
                Arc::downgrade(self),
                (self.limit / 4).clamp(CHECK_INTERVALS.0, CHECK_INTERVALS.1),
            ));
        }
        let state = BodyState {
            body: Some(Box::pin(body)),
            rest: Bytes::new(),
            is_dropped: false,
            since: Some(Instant::now()),
        };
        let entry = Arc::new(WatchedBody {
            state: Mutex::new(state),
            holders,
        });
        let mut watched = self.watched.lock();
        if watched.entries.len() >= watched.sweep_at {
            watched.entries.retain(|entry| entry.strong_count() > 0);
            // Doubling the threshold keeps the cost of a sweep constant for each body.
            watched.sweep_at = FIRST_SWEEP_AT.max(watched.entries.len() * 2);
        }
        watched.entries.push(Arc::downgrade(&entry));
        StallTimeoutBody(entry)
    }

    /// Takes the bodies that stalled. What they hold is free once they are dropped.
    fn take_stalled(&self, now: Instant) -> Vec<BoxedBody> {
        let mut watched = self.watched.lock();
        let mut stalled = Vec::new();
        watched.entries.retain(|entry| {
            let Some(entry) = entry.upgrade() else {
                return false;
            };
            // A locked body is being read.
            // `try_lock`: the check of one body must not wait for another.
            let Some(mut state) = entry.state.try_lock() else {
                return true;
            };
            if state.since.is_none_or(|since| since + self.limit > now) {
                return state.body.is_some();
            }
            stalled.extend(state.drop_body());
            false
        });
        stalled
    }

    /// Takes the body of a holder that has stalled longest, if it has stalled for more than a
    /// moment.
    fn take_oldest(&self, holder: &MemoryHolder, now: Instant) -> Option<BoxedBody> {
        let watched = self.watched.lock();
        let live = watched.entries.iter().filter_map(Weak::upgrade);
        let oldest = live
            .filter(|entry| entry.holders.include(holder))
            .filter_map(|entry| {
                let since = entry.state.try_lock()?.since?;
                (since + STALL_GRACE <= now).then_some((since, entry))
            })
            .min_by_key(|(since, _)| *since);
        let (_, entry) = oldest?;
        let mut state = entry.state.try_lock()?;
        state.drop_body()
    }
}

impl BodyState {
    /// Ends the body before its end. The caller drops it once no lock is held.
    fn drop_body(&mut self) -> Option<BoxedBody> {
        self.is_dropped = true;
        self.rest = Bytes::new();
        self.body.take()
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        if self.rest.is_empty() {
            match ready!(body.as_mut().poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) if data.len() > FRAME_MAX => self.rest = data,
                Some(Ok(Ok(data))) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        // Copied: the connection keeps what it was given, and a slice would keep the whole message.
        let piece = self.rest.split_to(FRAME_MAX.min(self.rest.len()));
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&piece)))))
    }
}

impl MemoryRelief for StallDetector {
    /// Ends the response to a client, or of a server, that nobody reads for the longest time.
    fn end_oldest(&self, holder: &MemoryHolder) -> bool {
        let body = self.take_oldest(holder, Instant::now());
        let has_ended = body.is_some();
        // Outside of the lock: dropping a body may end many things.
        drop(body);
        if has_ended {
            self.record_dropped();
        }
        has_ended || self.writes.end_oldest(holder)
    }
}

/// Checks for stalled bodies until the detector is dropped.
async fn check_loop(detector: Weak<StallDetector>, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let Some(detector) = detector.upgrade() else {
            return;
        };
        // Outside of the lock: dropping a body may end many things.
        for body in detector.take_stalled(Instant::now()) {
            detector.record_dropped();
            tracing::debug!("response dropped: its client reads nothing (limits.write_timeout)");
            drop(body);
        }
    }
}

/// Body as its connection reads it.
pub(super) struct StallTimeoutBody(Arc<WatchedBody>);

impl Body for StallTimeoutBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut state = self.0.state.lock();
        // While the body has nothing to send, the wait is not its reader's fault.
        state.since = None;
        if state.is_dropped {
            // A plain end would look like the complete body.
            return Poll::Ready(Some(Err(axum::Error::new(
                "the answer was not read (limits.write_timeout)",
            ))));
        }
        let frame = ready!(state.poll_next(cx));
        match &frame {
            Some(Ok(_)) => state.since = Some(Instant::now()),
            // Frees what the body holds now, even if its connection keeps this value.
            Some(Err(_)) | None => state.body = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.state.lock();
        state.body.as_ref().map_or(!state.is_dropped, |body| {
            state.rest.is_empty() && body.is_end_stream()
        })
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.0.state.lock();
        let after = state
            .body
            .as_ref()
            .map(|body| body.size_hint())
            .unwrap_or_default();
        let rest = u64::try_from(state.rest.len()).unwrap_or(u64::MAX);
        after.exact().map_or(after, |exact| {
            SizeHint::with_exact(exact.saturating_add(rest))
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use http_body_util::{BodyExt, Full, StreamBody};
    use tokio::sync::oneshot;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn stall_detector() -> Arc<StallDetector> {
        StallDetector::new(LIMIT, CounterHandle::new("dropped", "Dropped.").unwrap())
    }

    fn of(client: u32, server: &'static str) -> AnswerHolders {
        let server = Some(moongate_jsonrpc::json::ByteString::literal(server));
        AnswerHolders {
            client: Some(MemoryHolder::Principal(client)),
            server,
        }
    }

    type Talk = Pin<Box<dyn futures_util::Stream<Item = Result<Frame<Bytes>, axum::Error>> + Send>>;

    /// Body of some frames, then silence. The receiver learns when it is dropped.
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
        let detector = stall_detector();
        let (body, dropped) = talking(3);
        let mut read = detector.watch(body, of(1, "a"));
        for _ in 0..3 {
            tokio::time::sleep(LIMIT / 2).await;
            assert!(
                matches!(read.frame().await, Some(Ok(_))),
                "slow readers get everything"
            );
        }
        tokio::time::sleep(LIMIT * 2).await;
        assert!(dropped.await.is_err(), "what it held is free");
        assert!(
            !read.is_end_stream() && matches!(read.frame().await, Some(Err(_))),
            "and it does not look whole"
        );
        assert_eq!(detector.dropped.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_begins_to_read_is_dropped_too() {
        let detector = stall_detector();
        let (body, dropped) = talking(1);
        let _read = detector.watch(body, of(1, "a"));
        tokio::time::sleep(LIMIT * 2).await;
        assert!(dropped.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_read_ends_early_where_memory_is_short() {
        let detector = stall_detector();
        let (body, dropped) = talking(2);
        let mut read = detector.watch(body, of(1, "a"));
        assert!(read.frame().await.is_some());
        assert!(
            !detector.end_oldest(&MemoryHolder::Principal(1)),
            "it is slow for a moment only"
        );
        tokio::time::sleep(STALL_GRACE).await;
        assert!(detector.end_oldest(&MemoryHolder::Principal(1)));
        assert!(dropped.await.is_err());
        assert!(matches!(read.frame().await, Some(Err(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_answer_ends_for_its_own_holders_only() {
        let detector = stall_detector();
        let ((first, first_dropped), (second, second_dropped)) = (talking(1), talking(1));
        let _first = detector.watch(first, of(1, "a"));
        let _second = detector.watch(second, of(2, "b"));
        tokio::time::sleep(STALL_GRACE).await;
        assert!(
            !detector.end_oldest(&MemoryHolder::Principal(3)),
            "another client's load"
        );
        assert!(
            !detector.end_oldest(&MemoryHolder::Server("c".into())),
            "another server's load"
        );
        assert!(detector.end_oldest(&MemoryHolder::Server("b".into())));
        assert!(
            second_dropped.await.is_err(),
            "not the one that waits longest"
        );
        assert!(!detector.end_oldest(&MemoryHolder::Principal(2)));
        assert!(detector.end_oldest(&MemoryHolder::Principal(1)));
        assert!(first_dropped.await.is_err());
    }

    /// Bytes that report when their memory is free.
    struct HeldBytes {
        bytes: Vec<u8>,
        _freed: oneshot::Sender<()>,
    }

    impl AsRef<[u8]> for HeldBytes {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    /// Body of more than two frames, in one piece. The receiver learns when its memory is free.
    fn large_answer() -> (
        impl Body<Data = Bytes, Error = axum::Error> + Send + 'static,
        oneshot::Receiver<()>,
    ) {
        let (_freed, freed) = oneshot::channel();
        let bytes = (0..=u8::MAX).cycle().take(FRAME_MAX * 5 / 2).collect();
        let body = Full::new(Bytes::from_owner(HeldBytes { bytes, _freed }));
        let body = body.map_err(|never| -> axum::Error { match never {} });
        (body, freed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_is_held_by_its_body_alone() {
        let detector = stall_detector();
        let (body, mut freed) = large_answer();
        let mut read = detector.watch(body, of(1, "a"));
        assert_eq!(read.size_hint().exact(), Some(FRAME_MAX as u64 * 5 / 2));
        let piece = read.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(piece.len(), FRAME_MAX);
        assert!(!read.is_end_stream() && futures_util::poll!(&mut freed).is_pending());
        tokio::time::sleep(STALL_GRACE).await;
        assert!(detector.end_oldest(&MemoryHolder::Principal(1)));
        assert!(
            freed.await.is_err(),
            "the connection may keep the piece that it has"
        );
        assert!(matches!(read.frame().await, Some(Err(_))));
        let whole = detector
            .watch(large_answer().0, of(1, "a"))
            .collect()
            .await
            .unwrap()
            .to_bytes();
        assert!(
            whole
                .iter()
                .copied()
                .eq((0..=u8::MAX).cycle().take(FRAME_MAX * 5 / 2))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_answer_stays() {
        let detector = stall_detector();
        let (body, mut dropped) = talking(1);
        let mut read = detector.watch(body, of(1, "a"));
        assert!(read.frame().await.is_some());
        assert!(futures_util::poll!(read.frame()).is_pending());
        tokio::time::sleep(LIMIT * 10).await;
        assert!(futures_util::poll!(&mut dropped).is_pending());
        assert_eq!(detector.dropped.get(), 0);
    }

    #[tokio::test]
    async fn finished_responses_are_forgotten() {
        let detector = stall_detector();
        for _ in 0..10 * FIRST_SWEEP_AT {
            drop(detector.watch(talking(1).0, AnswerHolders::default()));
        }
        assert!(detector.watched.lock().entries.len() <= FIRST_SWEEP_AT);
    }
}
