//! Byte budget of all messages that the gateway holds.
//!
//! Owns the total, and the bytes of each holder. Does not know what a message is (`reservation.rs`). Invariant: the sum
//! stays within the total, and no holder gets more than half of what the others leave free. So there is always room for
//! somebody else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::MemoryWatch;
use super::reservation::{MemoryExhausted, MemoryReservation};
use crate::{CounterHandle, GaugeHandle, Limit, MemoryHolderKind, Metrics, process};

/// Bytes of the budget that are never given to large messages: small calls, cancellations and probes need them.
const KEPT_FREE: usize = 1 << 20;

/// Who makes the gateway hold bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemoryHolder {
    /// Principal of a request with a key.
    Principal(u32),
    /// Peer of a request without a key.
    Peer(IpAddr),
    /// Clients without a key and without an address: those of a Unix socket, a pipe or the program itself.
    Local,
    /// Server, for its messages.
    Server(Arc<str>),
}

/// Budget of all messages.
pub struct MemoryBudget {
    /// Limit as the settings have it, in bytes, for error messages.
    limit: usize,
    /// Bytes for messages: the limit without what the process used before the first one. `usize::MAX` without a limit.
    total: usize,
    used: AtomicUsize,
    clients: GaugeHandle,
    servers: GaugeHandle,
    refused: CounterHandle,
    holders: Mutex<HashMap<MemoryHolder, Weak<AtomicUsize>>>,
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
        let total = watch.limit.map_or(usize::MAX, |limit| limit.saturating_sub(before));
        MemoryBudget::with_total(watch.limit.unwrap_or(usize::MAX), total, metrics)
    }

    /// Creates a budget without a limit, for programs that have no listener.
    pub fn unlimited(metrics: &Metrics) -> Arc<Self> {
        MemoryBudget::with_total(usize::MAX, usize::MAX, metrics)
    }

    fn with_total(limit: usize, total: usize, metrics: &Metrics) -> Arc<Self> {
        let gauge = |kind| metrics.process.memory_reserved.series(kind);
        Arc::new(MemoryBudget {
            limit,
            total,
            used: AtomicUsize::new(0),
            clients: gauge(MemoryHolderKind::Clients),
            servers: gauge(MemoryHolderKind::Servers),
            refused: metrics.calls.refused.series(Limit::Memory),
            holders: Mutex::default(),
        })
    }

    /// Returns a holder's share. All shares of a holder have the same counter, which ends with the last one.
    pub fn share(self: &Arc<Self>, holder: MemoryHolder) -> MemoryShare {
        let is_server = matches!(holder, MemoryHolder::Server(_));
        let mut holders = self.holders.lock();
        let own = holders.get(&holder).and_then(Weak::upgrade).unwrap_or_else(|| {
            // Grows with those that hold something at the moment, and not with everybody who ever came.
            holders.retain(|_, counter| counter.strong_count() > 0);
            let counter = Arc::default();
            holders.insert(holder, Arc::downgrade(&counter));
            counter
        });
        MemoryShare { budget: self.clone(), own, is_server }
    }

    /// Returns the reserved bytes.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl MemoryShare {
    /// Begins a reservation of nothing, to be grown with the message that arrives.
    pub fn begin(&self) -> MemoryReservation {
        MemoryReservation::new(self.clone())
    }

    fn gauge(&self) -> &GaugeHandle {
        if self.is_server { &self.budget.servers } else { &self.budget.clients }
    }

    pub(super) fn take(&self, bytes: usize) -> Result<(), MemoryExhausted> {
        let budget = &self.budget;
        // Not atomic with the total: two messages at once may exceed the holder's share, but never the total.
        let own = self.own.load(Ordering::Relaxed).saturating_add(bytes);
        let fits = |used: usize| {
            let sum = used.checked_add(bytes)?;
            let free = budget.total.checked_sub(sum)?.checked_sub(KEPT_FREE)?;
            (own <= free).then_some(sum)
        };
        let taken = budget.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
        if taken.is_err() {
            budget.refused.inc();
            return Err(MemoryExhausted { limit: budget.limit });
        }
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.gauge().add(i64::try_from(bytes).unwrap_or(i64::MAX));
        Ok(())
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
        assert_eq!(fill(&again), 0, "another share of the same holder isn't somebody else");
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
        assert_eq!(fill(&budget.share(MemoryHolder::Peer([127, 0, 0, 1].into()))), 64);
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
    fn without_a_limit_everything_fits() {
        let budget = MemoryBudget::unlimited(&Metrics::new());
        let share = budget.share(MemoryHolder::Local);
        assert!(share.take(1 << 40).is_ok());
    }
}
