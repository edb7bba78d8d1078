//! Places of connections: how many listeners have together, and which connection makes room for another.
//!
//! Owns what each connection was last good for. Does not accept, read or end connections: who is asked to leave does so
//! itself. Invariant: a connection with an admitted request is never asked.
//!
//! An admitted request is one whose sender is known, or that the admin listener answers. All others cost nothing to make, and
//! would hold the places of those who have a key.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop;
use tokio::time::{Instant, Sleep};

use crate::telemetry::{CountGuard, CounterHandle, GaugeHandle, Metrics};

/// A connection is left alone for so long after it began, or after its last admitted request.
const EVICTION_GRACE: Duration = Duration::from_secs(1);
/// How long a connection may take to leave.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(250);

/// The places of one or several listeners.
pub struct ConnectionLimit {
    free: Arc<Semaphore>,
    occupied: Mutex<HashMap<u64, Arc<ConnectionSlot>>>,
    next: AtomicU64,
    open: GaugeHandle,
    evicted: CounterHandle,
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    begun: Instant,
    /// Admitted requests that are open.
    requests: AtomicUsize,
    /// When the last of them ended, in milliseconds after the beginning; 0: there was none.
    last: AtomicU64,
    /// Somebody else needs the place.
    must_evict: AtomicBool,
    task: AtomicWaker,
}

/// A place until it is dropped.
pub(super) struct HeldSlot {
    slot: Arc<ConnectionSlot>,
    id: u64,
    limit: Arc<ConnectionLimit>,
    _permit: Option<OwnedSemaphorePermit>,
    _count: CountGuard,
}

/// One request of a connection, until its answer is written.
pub(crate) struct SlotRequest {
    slot: Arc<ConnectionSlot>,
    is_admitted: AtomicBool,
}

impl ConnectionLimit {
    /// So many places, counted in a gauge.
    pub fn new(most: usize, open: &GaugeHandle, metrics: &Metrics) -> Arc<Self> {
        Arc::new(ConnectionLimit {
            free: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            occupied: Mutex::default(),
            next: AtomicU64::new(0),
            open: open.clone(),
            evicted: metrics.dropped.with_label_values(&["idle_connection"]),
        })
    }

    /// Takes a place for a connection that is there already; where there is none, one that is of no use makes room.
    pub(super) async fn acquire(self: &Arc<Self>) -> HeldSlot {
        loop {
            if let Ok(permit) = self.free.clone().try_acquire_owned() {
                return self.occupy(Some(permit));
            }
            let pause = self.evict_one();
            if let Ok(Ok(permit)) = tokio::time::timeout(pause, self.free.clone().acquire_owned()).await {
                return self.occupy(Some(permit));
            }
        }
    }

    /// Takes a place, or goes without: for those who are in line when the listener ends.
    pub(super) fn acquire_or_exceed(self: &Arc<Self>) -> HeldSlot {
        self.occupy(self.free.clone().try_acquire_owned().ok())
    }

    fn occupy(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> HeldSlot {
        let (place, id) = (Arc::new(ConnectionSlot::new()), self.next.fetch_add(1, Ordering::Relaxed));
        self.lock().insert(id, place.clone());
        HeldSlot { slot: place, id, limit: self.clone(), _permit: permit, _count: CountGuard::new(&self.open) }
    }

    /// Asks the connection that is longest without an admitted request to leave; first those that never had one. Gives how
    /// long to wait for a place before the next look.
    fn evict_one(&self) -> Duration {
        let now = Instant::now();
        let taken = self.lock();
        let idle = taken.values().filter(|place| !place.must_evict.load(Ordering::Acquire));
        let idle = idle.filter_map(|place| Some((place.had_requests(), place.idle_since()?, place)));
        let (mut longest, mut next) = (None, EVICTION_GRACE);
        for (had_requests, since, place) in idle {
            let left = (since + EVICTION_GRACE).saturating_duration_since(now);
            if !left.is_zero() {
                next = next.min(left);
            } else if longest.is_none_or(|(had, before, _)| (had_requests, since) < (had, before)) {
                longest = Some((had_requests, since, place));
            }
        }
        let Some((_, _, place)) = longest else { return next };
        place.must_evict.store(true, Ordering::Release);
        place.task.wake();
        self.evicted.inc();
        LEAVE_TIMEOUT * 2
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<ConnectionSlot>>> {
        self.occupied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldSlot {
    /// The place.
    pub(super) fn slot(&self) -> Arc<ConnectionSlot> {
        self.slot.clone()
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.limit.lock().remove(&self.id);
    }
}

impl ConnectionSlot {
    /// A place that nobody else wants.
    pub(super) fn new() -> Self {
        ConnectionSlot {
            begun: Instant::now(),
            requests: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            must_evict: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }
    }

    fn had_requests(&self) -> bool {
        self.last.load(Ordering::Acquire) > 0
    }

    /// Since when there is no admitted request; `None`: there is one.
    fn idle_since(&self) -> Option<Instant> {
        let last = Duration::from_millis(self.last.load(Ordering::Acquire));
        (self.requests.load(Ordering::Acquire) == 0).then(|| self.begun + last)
    }

    /// Whether the connection is to end for another's sake.
    pub(super) fn must_leave(&self) -> bool {
        self.must_evict.load(Ordering::Acquire) && self.requests.load(Ordering::Acquire) == 0
    }

    /// Runs a connection until it ends, or until it was asked to leave and does not.
    pub(super) async fn run(self: &Arc<Self>, connection: impl Future<Output = ()>) {
        let mut connection = pin!(connection);
        let mut patience: Option<LeaveTimeout> = None;
        poll_fn(|cx| {
            // Before the look at `is_wanted`: whoever asks after that wakes this task.
            self.task.register(cx.waker());
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if !self.must_leave() {
                patience = None;
                return Poll::Pending;
            }
            patience.get_or_insert_with(|| LeaveTimeout::new(self)).poll(cx)
        })
        .await;
    }

    /// A request that is not admitted yet.
    pub(super) fn begin(self: &Arc<Self>) -> SlotRequest {
        SlotRequest { slot: self.clone(), is_admitted: AtomicBool::new(false) }
    }
}

impl SlotRequest {
    /// The sender is known.
    pub(crate) fn admit(&self) {
        if !self.is_admitted.swap(true, Ordering::AcqRel) {
            self.slot.requests.fetch_add(1, Ordering::AcqRel);
            // Its place is no longer to be had; whoever wants one looks again.
            self.slot.must_evict.store(false, Ordering::Release);
        }
    }
}

impl Drop for SlotRequest {
    fn drop(&mut self) {
        if *self.is_admitted.get_mut() {
            let last = self.slot.begun.elapsed().as_millis().max(1);
            self.slot.last.store(u64::try_from(last).unwrap_or(u64::MAX), Ordering::Release);
            self.slot.requests.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The end of a connection that has no admitted request for too long, whatever else is heard of it.
pub(super) struct IdleTimeout {
    slot: Arc<ConnectionSlot>,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl IdleTimeout {
    /// Begins to watch.
    pub(super) fn new(slot: Arc<ConnectionSlot>, limit: Duration) -> Self {
        IdleTimeout { slot, limit, timer: Box::pin(tokio::time::sleep(limit)) }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // A peer that always has something to say spends the whole turn of its task.
            ready!(pin!(coop::unconstrained(self.timer.as_mut())).poll(cx));
            let now = Instant::now();
            let until = self.slot.idle_since().unwrap_or(now) + self.limit;
            if until <= now {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until);
        }
    }
}

/// The time that a connection has to end well, after it was told to.
pub(super) struct LeaveTimeout {
    slot: Arc<ConnectionSlot>,
    timer: Pin<Box<Sleep>>,
}

impl LeaveTimeout {
    pub(super) fn new(place: &Arc<ConnectionSlot>) -> Self {
        LeaveTimeout { slot: place.clone(), timer: Box::pin(tokio::time::sleep(LEAVE_TIMEOUT)) }
    }

    /// Waits for the end of patience; a request that was admitted meanwhile has all its time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(pin!(coop::unconstrained(self.timer.as_mut())).poll(cx));
            if self.slot.idle_since().is_some() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(Instant::now() + LEAVE_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn places(most: usize) -> (Arc<ConnectionLimit>, Metrics) {
        let metrics = Metrics::new();
        (ConnectionLimit::new(most, &metrics.connections, &metrics), metrics)
    }

    /// A connection of nothing, in its own task; gives its place, and when it ended.
    fn idle(held: HeldSlot) -> (Arc<ConnectionSlot>, tokio::task::JoinHandle<Instant>) {
        let place = held.slot();
        let task = tokio::spawn(async move {
            let place = held.slot();
            place.run(std::future::pending()).await;
            Instant::now()
        });
        (place, task)
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_is_longest_without_an_admitted_request_makes_room() {
        let (places, metrics) = places(3);
        let second = Duration::from_secs(1);
        // One that works, one that has worked, and one that only ever took the place.
        let (busy, _busy) = idle(places.acquire().await);
        let working = busy.begin();
        working.admit();
        let (worked, worked_end) = idle(places.acquire().await);
        tokio::time::sleep(second * 5).await;
        drop({
            let request = worked.begin();
            request.admit();
            request
        });
        let (empty, empty_end) = idle(places.acquire().await);
        // A request whose sender is not known changes nothing.
        drop(empty.begin());
        tokio::time::sleep(second * 5).await;
        let (_, last) = idle(places.acquire().await);
        assert!(empty_end.is_finished() && !worked_end.is_finished());
        assert_eq!(metrics.dropped.with_label_values(&["idle_connection"]).get(), 1);
        // The one that came last is spared for a moment: then who has worked is next only after it.
        let before = Instant::now();
        let (_, _) = idle(places.acquire().await);
        assert!(before.elapsed() < LEAVE_TIMEOUT * 2 && worked_end.is_finished() && !last.is_finished());
        // Where all work, whoever comes waits.
        let (places, _metrics) = self::places(1);
        let held = places.acquire().await;
        let working = held.slot().begin();
        working.admit();
        tokio::time::sleep(second * 60).await;
        assert!(tokio::time::timeout(second * 60, places.acquire()).await.is_err());
        drop(working);
        assert!(places.acquire().now_or_never().is_none(), "asked to leave, and not gone yet");
        drop(held);
        assert!(places.acquire().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_to_work_stays() {
        let (places, _metrics) = places(1);
        let (place, end) = idle(places.acquire().await);
        tokio::time::sleep(EVICTION_GRACE).await;
        place.must_evict.store(true, Ordering::Release);
        let working = place.begin();
        working.admit();
        place.task.wake();
        tokio::time::sleep(EVICTION_GRACE * 10).await;
        assert!(!end.is_finished() && !place.must_leave());
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_time_begins_with_the_last_admitted_request() {
        let (limit, start) = (Duration::from_secs(30), Instant::now());
        let place = Arc::new(ConnectionSlot::new());
        let mut watch = IdleTimeout::new(place.clone(), limit);
        let working = place.begin();
        working.admit();
        let waits = async {
            poll_fn(|cx| watch.poll(cx)).await;
            start.elapsed()
        };
        let ends = async {
            tokio::time::sleep(limit * 3).await;
            drop(working);
            // Nobody knows whose these are.
            for _ in 0..20 {
                tokio::time::sleep(limit / 10).await;
                drop(place.begin());
            }
        };
        let (waited, ()) = tokio::join!(waits, ends);
        assert_eq!(waited.as_secs(), (limit * 4).as_secs());
    }
}
