//! Streams that their clients read no more.
//!
//! Owns the watch over event streams. What an exchange does, it does as its stream is read, so that nothing piles up for a
//! client that is slow; one that reads nothing at all, over a connection that stays open, would keep what its calls hold
//! (places at their servers) from everybody else for as long as it likes. Does not write. Invariant: a stream that has
//! more to say, and is not asked for it within the limit, ends as if its client had gone.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::Response;
use tokio::time::Instant;

use crate::body::{Body, Chunks};
use crate::telemetry::Counter;

/// Between two looks, at the most and at the least; else a quarter of the limit.
const LOOKS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// Streams that are noted before it is looked for the first time which of them are over.
const FIRST: usize = 64;

/// The watch over all event streams.
pub struct Unread {
    /// In milliseconds.
    limit: AtomicU64,
    watched: Mutex<Watched>,
    /// Streams that ended by it.
    ended: Counter,
}

struct Watched {
    seats: Vec<Weak<Seat>>,
    /// When there are so many, those that are over are taken out: twice what was left the last time.
    full: usize,
}

/// A stream, where both its reader and the watch find it.
struct Seat(Mutex<Watch>);

struct Watch {
    chunks: Option<Chunks>,
    /// Since when it has not been asked for more.
    since: Option<Instant>,
}

impl Unread {
    /// A watch that ends streams after so long, and counts them. It needs a runtime.
    pub fn new(limit: Duration, ended: Counter) -> Arc<Self> {
        let watched = Mutex::new(Watched { seats: Vec::new(), full: FIRST });
        let unread = Arc::new(Unread { limit: AtomicU64::new(millis(limit)), watched, ended });
        tokio::spawn(look(Arc::downgrade(&unread)));
        unread
    }

    /// Another limit, also for the streams that are open.
    pub fn adjust(&self, limit: Duration) {
        self.limit.store(millis(limit), Ordering::Relaxed);
    }

    /// The response, with its stream watched if it is one.
    pub(super) fn watch(&self, response: Response<Body>) -> Response<Body> {
        response.map(|body| match body {
            Body::Stream(chunks) => Body::Stream(Box::pin(self.read(chunks))),
            parts @ Body::Parts(_) => parts,
        })
    }

    fn read(&self, chunks: Chunks) -> Read {
        let seat = Arc::new(Seat(Mutex::new(Watch { chunks: Some(chunks), since: Some(Instant::now()) })));
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.seats.len() >= watched.full {
            watched.seats.retain(|seat| seat.strong_count() > 0);
            watched.full = FIRST.max(watched.seats.len() * 2);
        }
        watched.seats.push(Arc::downgrade(&seat));
        Read(seat)
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.limit.load(Ordering::Relaxed))
    }

    /// Takes the streams that nobody reads; they end when they are dropped.
    fn stalled(&self, now: Instant) -> Vec<Chunks> {
        let limit = self.limit();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stalled = Vec::new();
        watched.seats.retain(|seat| {
            let Some(seat) = seat.upgrade() else { return false };
            // Whoever holds it is reading it.
            let Ok(mut watch) = seat.0.try_lock() else { return true };
            if watch.since.is_none_or(|since| since + limit > now) {
                return watch.chunks.is_some();
            }
            stalled.extend(watch.chunks.take());
            false
        });
        stalled
    }
}

fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}

/// Looks for streams that nobody reads, for as long as anybody holds the watch.
async fn look(unread: Weak<Unread>) {
    loop {
        let Some(limit) = unread.upgrade().map(|unread| unread.limit()) else { return };
        tokio::time::sleep((limit / 4).clamp(LOOKS.0, LOOKS.1)).await;
        let Some(unread) = unread.upgrade() else { return };
        // What ends with a stream may be much: outside of the lock.
        for chunks in unread.stalled(Instant::now()) {
            unread.ended.inc();
            tracing::debug!("a client reads nothing of an answer's stream (limits.write_timeout): it is ended");
            drop(chunks);
        }
    }
}

/// A stream as its connection reads it.
struct Read(Arc<Seat>);

impl Seat {
    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Read {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut watch = self.0.lock();
        // What has nothing to say waits for itself, and not for its reader.
        watch.since = None;
        let Some(chunks) = &mut watch.chunks else { return Poll::Ready(None) };
        let chunk = ready!(chunks.as_mut().poll_next(cx));
        match &chunk {
            Some(_) => watch.since = Some(Instant::now()),
            None => watch.chunks = None,
        }
        Poll::Ready(chunk)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use tokio::sync::oneshot;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn watch() -> Arc<Unread> {
        Unread::new(LIMIT, Counter::new("ended", "Ended.").unwrap())
    }

    /// A stream with so many chunks, then silent for ever; the other end hears when it is dropped.
    fn talking(chunks: usize) -> (Chunks, oneshot::Receiver<()>) {
        let (held, dropped) = oneshot::channel::<()>();
        let rest = stream::once(async move {
            let _held = held;
            std::future::pending().await
        });
        (Box::pin(stream::iter(vec![Bytes::from_static(b"x"); chunks]).chain(rest)), dropped)
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_has_more_and_is_not_asked_for_it_ends() {
        let unread = watch();
        let (chunks, mut dropped) = talking(3);
        let mut read = unread.read(chunks);
        for _ in 0..3 {
            tokio::time::sleep(LIMIT / 2).await;
            assert!(read.next().await.is_some(), "slow readers get everything");
        }
        tokio::time::sleep(LIMIT * 2).await;
        assert!((&mut dropped).await.is_err(), "what it held is free");
        assert_eq!((read.next().await, unread.ended.get()), (None, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_nobody_begins_to_read_ends_too() {
        let unread = watch();
        let (chunks, dropped) = talking(1);
        let _read = unread.read(chunks);
        tokio::time::sleep(LIMIT * 2).await;
        assert!(dropped.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_stays() {
        let unread = watch();
        let (chunks, mut dropped) = talking(1);
        let mut read = unread.read(chunks);
        read.next().await;
        assert!(futures_util::poll!(read.next()).is_pending());
        tokio::time::sleep(LIMIT * 10).await;
        assert!(futures_util::poll!(&mut dropped).is_pending());
        assert_eq!(unread.ended.get(), 0);
    }

    #[tokio::test]
    async fn what_is_over_is_not_kept() {
        let unread = watch();
        for _ in 0..10 * FIRST {
            drop(unread.read(talking(1).0));
        }
        assert!(unread.watched.lock().unwrap().seats.len() <= FIRST);
    }
}
