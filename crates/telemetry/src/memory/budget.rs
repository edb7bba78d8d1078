//! Byte budget of all messages that the gateway holds.
//!
//! Owns the total, and the bytes of each holder. Does not know what a message is
//! (`reservation.rs`). Invariant: the sum stays within the total, and no holder gets more than half
//! of what the others leave free, so there is always room for somebody else. Where memory is still
//! short, the largest holder makes room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::MemoryWatch;
use super::holder::MemoryHolder;
use super::pressure::{MemoryRelief, MemoryReliefs};
use super::reservation::{MemoryExhausted, MemoryReservation};
use crate::{CounterHandle, GaugeHandle, Limit, MemoryHolderKind, Metrics, process};

/// Part of the budget that one kind of buffer may take at most.
const SET_ASIDE_PART: usize = 8;
/// Number of things that end at most for the sake of one message.
const RELIEF_MAX: usize = 16;
/// Part of the budget that a holder takes at least before the process's own use of memory ends
/// something of it.
const RELIEF_PART: usize = 8;
/// Bytes of the budget that are never given to large messages: small calls, cancellations and
/// probes need them.
const KEPT_FREE: usize = 1 << 20;

/// Budget of all messages.
pub struct MemoryBudget {
    /// Limit as the settings have it, in bytes, for error messages.
    limit: usize,
    /// Bytes for messages: the limit without what the process used before the first one.
    /// `usize::MAX` without a limit.
    total: AtomicUsize,
    used: AtomicUsize,
    clients: GaugeHandle,
    servers: GaugeHandle,
    refused: CounterHandle,
    holders: Mutex<HashMap<MemoryHolder, Weak<AtomicUsize>>>,
    reliefs: MemoryReliefs,
}

/// Holder's share of the budget.
#[derive(Clone)]
pub struct MemoryShare {
    pub(super) budget: Arc<MemoryBudget>,
    own: Arc<AtomicUsize>,
    is_server: bool,
}

impl MemoryBudget {
    /// Creates the budget below the limit of a watch.
    pub fn new(watch: &MemoryWatch, metrics: &Metrics) -> Arc<Self> {
        let before = process::resident().unwrap_or_default() as usize;
        let total = watch
            .limit
            .map_or(usize::MAX, |limit| limit.saturating_sub(before));
        MemoryBudget::with_total(watch.limit.unwrap_or(usize::MAX), total, metrics)
    }

    /// Creates a budget without a limit, for programs that have no listener.
    pub fn unlimited(metrics: &Metrics) -> Arc<Self> {
        MemoryBudget::with_total(usize::MAX, usize::MAX, metrics)
    }

    fn with_total(limit: usize, total: usize, metrics: &Metrics) -> Arc<Self> {
        let reserved = &metrics.process.memory_reserved;
        Arc::new(MemoryBudget {
            limit,
            total: AtomicUsize::new(total),
            used: AtomicUsize::new(0),
            clients: reserved.series(MemoryHolderKind::Clients),
            servers: reserved.series(MemoryHolderKind::Servers),
            refused: metrics.calls.refused.series(Limit::Memory),
            holders: Mutex::default(),
            reliefs: MemoryReliefs::default(),
        })
    }

    /// Returns a holder's share. All shares of a holder have the same counter, which ends with the
    /// last one.
    pub fn share(self: &Arc<Self>, holder: MemoryHolder) -> MemoryShare {
        let is_server = matches!(holder, MemoryHolder::Server(_));
        let mut holders = self.holders.lock();
        let own = holders
            .get(&holder)
            .and_then(Weak::upgrade)
            .unwrap_or_else(|| {
                // Grows with those that hold something at the moment, and not with everybody who
                // ever came.
                holders.retain(|_, counter| counter.strong_count() > 0);
                let counter = Arc::default();
                holders.insert(holder, Arc::downgrade(&counter));
                counter
            });
        MemoryShare {
            budget: self.clone(),
            own,
            is_server,
        }
    }

    /// Takes bytes out of the budget for good, for buffers that have a limit for all holders
    /// together. Returns how many they are: what was asked for, or less where memory is small.
    pub fn set_aside(&self, bytes: usize) -> usize {
        let bytes = bytes.min(self.total() / SET_ASIDE_PART);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }

    /// Returns the bytes that there are for messages.
    fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Has `relief` end something where memory is short, for as long as somebody else keeps it.
    pub fn relieved_by(&self, relief: Arc<dyn MemoryRelief>) {
        self.reliefs.add(&relief);
    }

    /// Ends the oldest thing of the largest holder. Returns true if bytes are free because of it.
    ///
    /// Nothing ends where messages are not what fills the memory: an end would free next to
    /// nothing.
    pub fn relieve(&self) -> bool {
        let is_cause =
            |own: &AtomicUsize| own.load(Ordering::Relaxed) >= self.total() / RELIEF_PART;
        self.largest().is_some_and(|(_, own)| is_cause(&own)) && self.relieve_for(None)
    }

    /// Does the same for the sake of a holder with this counter. A client that is the largest
    /// holder gets no room. A server does: it is not to blame for answers that one of its clients
    /// leaves unread.
    fn relieve_for(&self, asking: Option<&Arc<AtomicUsize>>) -> bool {
        let Some((holder, counter)) = self.largest() else {
            return false;
        };
        let is_asking = asking.is_some_and(|asking| Arc::ptr_eq(asking, &counter));
        if is_asking && !matches!(holder, MemoryHolder::Server(_)) {
            return false;
        }
        let before = self.used();
        self.reliefs.end_oldest(&holder) && self.used() < before
    }

    fn largest(&self) -> Option<(MemoryHolder, Arc<AtomicUsize>)> {
        let holders = self.holders.lock();
        let live = holders
            .iter()
            .filter_map(|(holder, counter)| Some((holder, counter.upgrade()?)));
        let largest = live.max_by_key(|(_, counter)| counter.load(Ordering::Relaxed))?;
        (largest.1.load(Ordering::Relaxed) > 0).then(|| (largest.0.clone(), largest.1))
    }

    /// Returns the reserved bytes.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl MemoryShare {
    /// Starts an empty reservation, which grows with the message that arrives.
    pub fn begin(&self) -> MemoryReservation {
        MemoryReservation::new(self.clone())
    }

    fn gauge(&self) -> &GaugeHandle {
        if self.is_server {
            &self.budget.servers
        } else {
            &self.budget.clients
        }
    }

    pub(super) fn take(&self, bytes: usize) -> Result<(), MemoryExhausted> {
        for _ in 0..RELIEF_MAX {
            if self.try_take(bytes) {
                return Ok(());
            }
            if !self.budget.relieve_for(Some(&self.own)) {
                break;
            }
        }
        Err(self.refuse())
    }

    /// Counts a refusal, and returns its error.
    pub(super) fn refuse(&self) -> MemoryExhausted {
        self.budget.refused.inc();
        MemoryExhausted {
            limit: self.budget.limit,
        }
    }

    fn try_take(&self, bytes: usize) -> bool {
        let budget = &self.budget;
        // Not atomic with the total: two messages at once may exceed the holder's share, but never
        // the total.
        let own = self.own.load(Ordering::Relaxed).saturating_add(bytes);
        let reserved = budget
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                let sum = used.checked_add(bytes)?;
                let free = budget.total().checked_sub(sum)?.checked_sub(KEPT_FREE)?;
                (own <= free).then_some(sum)
            });
        if reserved.is_err() {
            return false;
        }
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.gauge().add(i64::try_from(bytes).unwrap_or(i64::MAX));
        true
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.own.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(bytes, Ordering::AcqRel);
        self.gauge().sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryReservation;

    const MIB: usize = 1 << 20;

    fn budget(total: usize) -> Arc<MemoryBudget> {
        MemoryBudget::with_total(total, total, &Metrics::new())
    }

    /// Takes mebibytes until one is refused. Returns what was taken.
    fn fill(share: &MemoryShare) -> usize {
        (0..1000).take_while(|_| share.take(MIB).is_ok()).count()
    }

    #[test]
    fn a_holder_gets_half_of_what_is_free() {
        let budget = budget(129 * MIB);
        let first = budget.share(MemoryHolder::Principal(1));
        let again = budget.share(MemoryHolder::Principal(1));
        assert_eq!(fill(&first), 64);
        assert_eq!(
            fill(&again),
            0,
            "another share of the same holder isn't somebody else"
        );
        let second = budget.share(MemoryHolder::Server("a".into()));
        assert_eq!(fill(&second), 32);
        assert_eq!(budget.used(), 96 * MIB);
    }

    #[test]
    fn what_is_given_back_is_free_for_others() {
        let budget = budget(129 * MIB);
        let first = budget.share(MemoryHolder::Local);
        fill(&first);
        first.give_back(64 * MIB);
        assert_eq!(
            fill(&budget.share(MemoryHolder::Peer([127, 0, 0, 1].into()))),
            64
        );
    }

    #[test]
    fn holders_that_hold_nothing_are_forgotten() {
        let budget = budget(129 * MIB);
        for id in 0..1000 {
            budget.share(MemoryHolder::Principal(id));
        }
        assert_eq!(budget.holders.lock().len(), 1);
    }

    #[test]
    fn buffers_take_their_bytes_out_of_the_budget() {
        let small = budget(64 * MIB);
        assert_eq!(small.set_aside(64 * MIB), 8 * MIB);
        assert_eq!(small.total(), 56 * MIB);
        assert_eq!(budget(1024 * MIB).set_aside(64 * MIB), 64 * MIB);
        assert_eq!(
            MemoryBudget::unlimited(&Metrics::new()).set_aside(64 * MIB),
            64 * MIB
        );
    }

    #[test]
    fn without_a_limit_everything_fits() {
        let budget = MemoryBudget::unlimited(&Metrics::new());
        let share = budget.share(MemoryHolder::Local);
        assert!(share.take(1 << 40).is_ok());
    }

    /// Reservations that each can be ended, of one holder.
    struct Parked(MemoryHolder, Mutex<Vec<MemoryReservation>>);

    impl MemoryRelief for Parked {
        fn end_oldest(&self, holder: &MemoryHolder) -> bool {
            let mut parked = self.1.lock();
            let is_one = *holder == self.0 && !parked.is_empty();
            is_one.then(|| parked.remove(0)).is_some()
        }
    }

    /// Fills the memory with messages of 8 MiB of one holder, as far as it may.
    fn filled(holder: MemoryHolder) -> (Arc<MemoryBudget>, Arc<Parked>) {
        let budget = budget(1 << 30);
        let share = budget.share(holder.clone());
        let messages = std::iter::from_fn(|| {
            let mut message = share.begin();
            message.cover(8 * MIB).is_ok().then_some(message)
        });
        let parked = Arc::new(Parked(holder, Mutex::new(messages.collect())));
        budget.relieved_by(parked.clone());
        (budget, parked)
    }

    #[test]
    fn the_largest_holder_makes_room_for_another() {
        let (budget, parked) = filled(MemoryHolder::Principal(1));
        let before = parked.1.lock().len();
        let mut other = budget.share(MemoryHolder::Principal(2)).begin();
        // More than half of what is left.
        other
            .cover((budget.total() - budget.used()) / 2 + 4 * MIB)
            .unwrap();
        let ended = before - parked.1.lock().len();
        assert!((1..=2).contains(&ended), "{ended} of {before} ended");
    }

    #[test]
    fn the_largest_holder_does_not_make_room_for_itself() {
        let (budget, parked) = filled(MemoryHolder::Principal(1));
        let before = parked.1.lock().len();
        assert!(
            budget
                .share(MemoryHolder::Principal(1))
                .begin()
                .cover(8 * MIB)
                .is_err()
        );
        assert_eq!(parked.1.lock().len(), before);
    }

    #[test]
    fn nothing_ends_where_messages_do_not_fill_the_memory() {
        let (budget, parked) = filled(MemoryHolder::Principal(1));
        parked.1.lock().truncate(10);
        assert!(!budget.relieve());
        assert_eq!(parked.1.lock().len(), 10, "80 of 1024 MiB");
        let (budget, parked) = filled(MemoryHolder::Principal(1));
        let before = parked.1.lock().len();
        assert!(budget.relieve());
        assert_eq!(parked.1.lock().len(), before - 1);
    }

    #[test]
    fn nothing_ends_where_nothing_is_held() {
        let (budget, parked) = filled(MemoryHolder::Principal(1));
        parked.1.lock().clear();
        assert!(!budget.relieve());
    }
}
