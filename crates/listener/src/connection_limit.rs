//! Connection limit shared by one or more listeners. Owns the slots, and ends connections that make
//! room for others.
//!
//! Does not accept or read connections, and does not choose (`eviction.rs`). An evicted connection
//! that had requests closes itself, and is dropped if it takes longer than [`LEAVE_TIMEOUT`]. All
//! others are dropped at once. Invariant: a connection with an admitted request is never evicted.
//!
//! A request is admitted once its sender is known, or once the admin listener answers it. Requests
//! that are not admitted cost their sender nothing. Without eviction they would hold the slots of
//! clients that have a key.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use http::Response;
use http_body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop;
use tokio::time::{Instant, Sleep};

use crate::answer_holders::{AnswerHolders, CurrentAnswer};
use crate::eviction::{self, Eviction};
use moongate_telemetry::{
    CountGuard, CounterHandle, DroppedItem, GaugeHandle, MemoryHolder, Metrics,
};

/// Slots of an operators' listener that are for probes.
const PROBE_SLOTS: usize = 16;
/// Time limit for an evicted connection to close.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(250);

/// Connection slots of one or several listeners.
pub struct ConnectionLimit {
    free: Arc<Semaphore>,
    /// Number of all slots.
    size: usize,
    /// Slots beyond the limit, for probes alone.
    probe_slots: Arc<Semaphore>,
    occupied: Mutex<HashMap<u64, Arc<ConnectionSlot>>>,
    next: AtomicU64,
    open: GaugeHandle,
    evicted: CounterHandle,
    /// Limit whose connections make room before these, where files are short.
    clients: Option<Arc<ConnectionLimit>>,
}

/// State of one connection's slot.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    begun: Instant,
    /// Admitted requests that are open.
    requests: AtomicUsize,
    /// End of the last admitted request, in milliseconds after `begun`. 0 means that there was
    /// none.
    last: AtomicU64,
    /// Bytes that were read of the connection, as far as hyper reads it.
    received: AtomicU64,
    /// True if another connection needs this slot.
    must_evict: AtomicBool,
    /// True for a slot beyond the limit, which serves probes alone.
    pub(super) is_for_probes: bool,
    task: AtomicWaker,
    /// Holders of the answer that is written.
    pub(super) answer: Arc<CurrentAnswer>,
}

/// Slot that is held until this is dropped.
pub(super) struct HeldSlot {
    slot: Arc<ConnectionSlot>,
    id: u64,
    limit: Arc<ConnectionLimit>,
    _permit: Option<OwnedSemaphorePermit>,
    _count: CountGuard,
}

/// Request of a connection, until its response is written.
pub struct SlotRequest {
    slot: Arc<ConnectionSlot>,
    is_admitted: AtomicBool,
    /// Holder of the request's memory, once its sender is known.
    holder: Mutex<Option<MemoryHolder>>,
    /// Bytes that had been read of the connection when the request started.
    received_before: u64,
}

impl ConnectionLimit {
    /// Creates a limit of `most` connections, counted in the gauge `open`.
    pub fn new(most: usize, open: &GaugeHandle, metrics: &Metrics) -> Arc<Self> {
        Arc::new(ConnectionLimit::with_probe_slots(most, 0, open, metrics))
    }

    /// Creates the limit of operators' listeners. It has some more slots, which serve probes alone
    /// while no other slot is free. Where files are short, the `clients` make room first.
    pub fn for_operators(
        most: usize,
        clients: &Arc<Self>,
        open: &GaugeHandle,
        metrics: &Metrics,
    ) -> Arc<Self> {
        let clients = Some(clients.clone());
        Arc::new(ConnectionLimit {
            clients,
            ..ConnectionLimit::with_probe_slots(most, PROBE_SLOTS, open, metrics)
        })
    }

    fn with_probe_slots(most: usize, probes: usize, open: &GaugeHandle, metrics: &Metrics) -> Self {
        // `Semaphore::new` panics above its maximum.
        let size = most.min(Semaphore::MAX_PERMITS);
        ConnectionLimit {
            free: Arc::new(Semaphore::new(size)),
            size,
            probe_slots: Arc::new(Semaphore::new(probes)),
            occupied: Mutex::default(),
            next: AtomicU64::new(0),
            open: open.clone(),
            evicted: metrics.calls.dropped.series(DroppedItem::IdleConnection),
            clients: None,
        }
    }

    /// Takes a slot for an accepted connection. Evicts idle connections if none is free.
    pub(super) async fn acquire(self: &Arc<Self>) -> HeldSlot {
        loop {
            if let Ok(permit) = self.free.clone().try_acquire_owned() {
                return self.occupy(Some(permit), ConnectionSlot::new());
            }
            let pause = match self.choose() {
                Eviction::Chosen(slots) => self.evict(slots),
                Eviction::Wait(pause) => match self.acquire_for_probe().await {
                    Some(held) => return held,
                    None => pause,
                },
            };
            // Wakes when a slot is free or the wait is over. In both cases another connection may
            // have taken the slot.
            if let Ok(Ok(permit)) =
                tokio::time::timeout(pause, self.free.clone().acquire_owned()).await
            {
                return self.occupy(Some(permit), ConnectionSlot::new());
            }
        }
    }

    /// Takes a slot for probes. Half a request does not keep one.
    async fn acquire_for_probe(self: &Arc<Self>) -> Option<HeldSlot> {
        let permit = match self.probe_slots.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let oldest = eviction::oldest_for_probes(self.occupied.lock().values())?;
                let pause = self.evict(vec![oldest]);
                tokio::time::timeout(pause, self.probe_slots.clone().acquire_owned())
                    .await
                    .ok()?
                    .ok()?
            }
        };
        Some(self.occupy(Some(permit), ConnectionSlot::for_probes()))
    }

    /// Takes a slot, or exceeds the limit. For connections that the kernel accepted before the
    /// listener closed.
    pub(super) fn acquire_or_exceed(self: &Arc<Self>) -> HeldSlot {
        self.occupy(
            self.free.clone().try_acquire_owned().ok(),
            ConnectionSlot::new(),
        )
    }

    /// Evicts connections although there are free slots. False if none can go.
    pub(super) fn make_room(&self) -> bool {
        if self
            .clients
            .as_ref()
            .is_some_and(|clients| clients.make_room())
        {
            return true;
        }
        let eviction = eviction::choose_without_files(self.occupied.lock().values());
        match eviction {
            Eviction::Chosen(slots) => {
                self.evict(slots);
                true
            }
            Eviction::Wait(_) => false,
        }
    }

    fn occupy(
        self: &Arc<Self>,
        permit: Option<OwnedSemaphorePermit>,
        slot: ConnectionSlot,
    ) -> HeldSlot {
        let slot = Arc::new(slot);
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.occupied.lock().insert(id, slot.clone());
        HeldSlot {
            slot,
            id,
            limit: self.clone(),
            _permit: permit,
            _count: CountGuard::new(&self.open),
        }
    }

    fn choose(&self) -> Eviction {
        eviction::choose(self.occupied.lock().values(), self.size)
    }

    /// Evicts connections. Returns the time to wait for a slot before the next attempt.
    fn evict(&self, slots: Vec<Arc<ConnectionSlot>>) -> Duration {
        for slot in slots {
            slot.must_evict.store(true, Ordering::Release);
            slot.task.wake();
            self.evicted.inc();
        }
        // An evicted connection has LEAVE_TIMEOUT to end. Twice that lets its slot arrive before a
        // second eviction.
        LEAVE_TIMEOUT * 2
    }
}

impl HeldSlot {
    /// Returns the slot's state.
    pub(super) fn slot(&self) -> Arc<ConnectionSlot> {
        self.slot.clone()
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.limit.occupied.lock().remove(&self.id);
    }
}

impl ConnectionSlot {
    /// Creates a slot that no limit counts.
    pub(super) fn new() -> Self {
        ConnectionSlot {
            begun: Instant::now(),
            requests: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            received: AtomicU64::new(0),
            must_evict: AtomicBool::new(false),
            is_for_probes: false,
            task: AtomicWaker::new(),
            answer: Arc::default(),
        }
    }

    /// Creates a slot beyond the limit.
    fn for_probes() -> Self {
        ConnectionSlot {
            is_for_probes: true,
            ..ConnectionSlot::new()
        }
    }

    /// True if the connection had an admitted request that has ended.
    pub(super) fn had_requests(&self) -> bool {
        self.last.load(Ordering::Acquire) > 0
    }

    /// True if the connection was asked to make room.
    pub(super) fn is_evicted(&self) -> bool {
        self.must_evict.load(Ordering::Acquire)
    }

    /// Returns the time since when no admitted request is open, or `None` while there is one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let last = Duration::from_millis(self.last.load(Ordering::Acquire));
        (self.requests.load(Ordering::Acquire) == 0).then(|| self.begun + last)
    }

    /// True if the connection must close to make room for another.
    pub(super) fn must_leave(&self) -> bool {
        self.must_evict.load(Ordering::Acquire) && self.requests.load(Ordering::Acquire) == 0
    }

    /// Runs a connection until it ends, or until it was evicted and does not leave in time.
    pub(super) async fn run(self: &Arc<Self>, connection: impl Future<Output = ()>) {
        let mut connection = pin!(connection);
        let mut leave_timeout: Option<LeaveTimeout> = None;
        poll_fn(|cx| {
            // Registered before `must_evict` is read: an eviction after that read wakes this task.
            self.task.register(cx.waker());
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if !self.must_leave() {
                leave_timeout = None;
                return Poll::Pending;
            }
            // It has shown nothing that would be lost: half a request, half a handshake, or no key.
            if !self.had_requests() {
                return Poll::Ready(());
            }
            leave_timeout
                .get_or_insert_with(|| LeaveTimeout::new(self))
                .poll(cx)
        })
        .await;
    }

    /// Starts a request that is not admitted yet.
    pub(super) fn begin(self: &Arc<Self>) -> SlotRequest {
        let received_before = self.received.load(Ordering::Relaxed);
        SlotRequest {
            slot: self.clone(),
            is_admitted: AtomicBool::new(false),
            holder: Mutex::default(),
            received_before,
        }
    }

    /// Counts bytes that were read of the connection.
    pub(super) fn add_received(&self, bytes: usize) {
        self.received
            .fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl SlotRequest {
    /// True if the connection has a slot beyond the limit, and nothing but probes may be answered.
    pub fn is_for_probes(&self) -> bool {
        self.slot.is_for_probes
    }

    /// Returns the bytes that were read of the connection since the head of this request.
    pub(super) fn received(&self) -> u64 {
        self.slot.received.load(Ordering::Relaxed) - self.received_before
    }

    /// Sets whose memory the request takes.
    pub(super) fn set_holder(&self, holder: MemoryHolder) {
        // A request has one sender, so that any further value is the same.
        *self.holder.lock() = Some(holder);
    }

    /// Returns the holders of the response to this request.
    pub(super) fn holders_of<B: Body>(&self, response: &Response<B>) -> AnswerHolders {
        AnswerHolders::of(|| self.holder.lock().clone(), response)
    }

    /// Sets the holders of what the connection writes from now on.
    pub(super) fn set_answer(&self, holders: AnswerHolders) {
        self.slot.answer.set(holders);
    }

    /// Marks the request as admitted: its sender is known.
    pub fn admit(&self) {
        if !self.is_admitted.swap(true, Ordering::AcqRel) {
            self.slot.requests.fetch_add(1, Ordering::AcqRel);
            // This slot is no longer available. The connection that needed it tries another.
            self.slot.must_evict.store(false, Ordering::Release);
        }
    }
}

impl Drop for SlotRequest {
    fn drop(&mut self) {
        if *self.is_admitted.get_mut() {
            let last = self.slot.begun.elapsed().as_millis().max(1);
            self.slot
                .last
                .store(u64::try_from(last).unwrap_or(u64::MAX), Ordering::Release);
            self.slot.requests.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Idle timeout of a connection. Ends it after too long without an admitted request. Other traffic
/// does not prolong the time.
pub(super) struct IdleTimeout {
    slot: Arc<ConnectionSlot>,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl IdleTimeout {
    /// Starts the timeout.
    pub(super) fn new(slot: Arc<ConnectionSlot>, limit: Duration) -> Self {
        IdleTimeout {
            slot,
            limit,
            timer: Box::pin(tokio::time::sleep(limit)),
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // A chatty peer uses up the whole cooperative budget of the task. The timer must
            // be polled anyway.
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

/// Time limit for a connection to finish after it was asked to close.
pub(super) struct LeaveTimeout {
    slot: Arc<ConnectionSlot>,
    timer: Pin<Box<Sleep>>,
}

impl LeaveTimeout {
    pub(super) fn new(slot: &Arc<ConnectionSlot>) -> Self {
        LeaveTimeout {
            slot: slot.clone(),
            timer: Box::pin(tokio::time::sleep(LEAVE_TIMEOUT)),
        }
    }

    /// Waits for the limit. A request that was admitted meanwhile gets all its time.
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

    fn connection_limit(most: usize) -> (Arc<ConnectionLimit>, Metrics) {
        let metrics = Metrics::new();
        (
            ConnectionLimit::new(most, &metrics.clients.connections, &metrics),
            metrics,
        )
    }

    /// Connection that does nothing, in its own task. Returns its slot and the time of its end.
    fn idle(held: HeldSlot) -> (Arc<ConnectionSlot>, tokio::task::JoinHandle<Instant>) {
        let slot = held.slot();
        let task = tokio::spawn(async move {
            let slot = held.slot();
            slot.run(std::future::pending()).await;
            Instant::now()
        });
        (slot, task)
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_is_longest_without_an_admitted_request_makes_room() {
        let (limit, metrics) = connection_limit(3);
        let second = Duration::from_secs(1);
        // One that works, one that has worked, and one that only took a slot.
        let (busy, _busy) = idle(limit.acquire().await);
        let working = busy.begin();
        working.admit();
        let (worked, worked_end) = idle(limit.acquire().await);
        tokio::time::sleep(second * 5).await;
        drop({
            let request = worked.begin();
            request.admit();
            request
        });
        let (empty, empty_end) = idle(limit.acquire().await);
        // A request whose sender is not known changes nothing.
        drop(empty.begin());
        tokio::time::sleep(second * 5).await;
        let (_, last) = idle(limit.acquire().await);
        assert!(empty_end.is_finished() && !worked_end.is_finished());
        assert_eq!(metrics.calls.dropped.get(DroppedItem::IdleConnection), 1);
        // The newest connection is safe for a moment. Only after it is the one that has worked
        // next.
        let before = Instant::now();
        let (_, _) = idle(limit.acquire().await);
        assert!(
            before.elapsed() < LEAVE_TIMEOUT * 2 && worked_end.is_finished() && !last.is_finished()
        );
        // A new connection waits where all others work.
        let (limit, _metrics) = connection_limit(1);
        let held = limit.acquire().await;
        let working = held.slot().begin();
        working.admit();
        tokio::time::sleep(second * 60).await;
        assert!(
            tokio::time::timeout(second * 60, limit.acquire())
                .await
                .is_err()
        );
        drop(working);
        assert!(
            limit.acquire().now_or_never().is_none(),
            "asked to leave, and not gone yet"
        );
        drop(held);
        assert!(limit.acquire().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_an_admitted_request_is_not_evicted() {
        let (limit, _metrics) = connection_limit(1);
        let (slot, end) = idle(limit.acquire().await);
        tokio::time::sleep(LEAVE_TIMEOUT).await;
        slot.must_evict.store(true, Ordering::Release);
        let working = slot.begin();
        working.admit();
        slot.task.wake();
        tokio::time::sleep(LEAVE_TIMEOUT * 40).await;
        assert!(!end.is_finished() && !slot.must_leave());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_an_admitted_request_makes_room_at_once() {
        const PLACES: usize = 256;
        let (limit, _metrics) = connection_limit(PLACES);
        let began = Instant::now();
        // Each is a half request that does not react to anything.
        for _ in 0..PLACES * 10 {
            let (slot, _) = idle(limit.acquire().await);
            drop(slot.begin());
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn probes_have_places_of_their_own_while_all_others_work() {
        let metrics = Metrics::new();
        let open = &metrics.clients.connections;
        let limit = Arc::new(ConnectionLimit::with_probe_slots(2, 1, open, &metrics));
        let held = [limit.acquire().await, limit.acquire().await];
        let working: Vec<_> = held.iter().map(|held| held.slot().begin()).collect();
        working.iter().for_each(SlotRequest::admit);
        let probe = limit.acquire().await;
        assert!(probe.slot().begin().is_for_probes() && !held[0].slot().begin().is_for_probes());
        // The next one waits for that slot, which half a request does not keep.
        let (_, ended) = idle(probe);
        let next = limit.acquire().await;
        assert!(next.slot().is_for_probes && ended.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_time_begins_with_the_last_admitted_request() {
        let limit = Duration::from_secs(30);
        let start = Instant::now();
        let slot = Arc::new(ConnectionSlot::new());
        let mut watch = IdleTimeout::new(slot.clone(), limit);
        let working = slot.begin();
        working.admit();
        let waits = async {
            poll_fn(|cx| watch.poll(cx)).await;
            start.elapsed()
        };
        let ends = async {
            tokio::time::sleep(limit * 3).await;
            drop(working);
            // These requests are never admitted.
            for _ in 0..20 {
                tokio::time::sleep(limit / 10).await;
                drop(slot.begin());
            }
        };
        let (waited, ()) = tokio::join!(waits, ends);
        assert_eq!(waited.as_secs(), (limit * 4).as_secs());
    }
}
