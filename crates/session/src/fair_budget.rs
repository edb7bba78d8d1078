//! Byte budget that all sessions share, in fair parts.
//!
//! Owns the counting. Does not know what the bytes are for (`resumption.rs`, `outbox.rs`).
//! Invariant: the sum stays within the total, and no principal can fill it. The more a principal
//! has, the more must be free for it to get more. A newcomer finds room without taking it from
//! anybody.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use moongate_model::Principal;
use moongate_telemetry::GaugeHandle;

/// Maximum ratio of a principal's bytes to the free bytes. One principal alone gets eight ninths,
/// two get eight seventeenths each, and so on.
// A fixed quota would leave most memory unused with few principals. A ratio lets one use nearly
// all.
const MAX_SHARE: usize = 8;
/// Minimum number of principals before those whose sessions have ended are removed.
const PRUNE_MIN: usize = 64;

/// Byte budget of all sessions.
pub(super) struct FairByteBudget {
    total: usize,
    used: AtomicUsize,
    gauge: GaugeHandle,
    /// Bytes of each principal that has sessions.
    each: Mutex<PrincipalCounters>,
}

/// Counters of principals.
#[derive(Default)]
struct PrincipalCounters {
    by_id: HashMap<u32, Weak<AtomicUsize>>,
    /// Number of entries at which those of principals without sessions are removed.
    prune_at: usize,
}

/// Share of one session. All sessions of its principal use the same counter.
#[derive(Clone)]
pub(super) struct PrincipalShare {
    budget: Arc<FairByteBudget>,
    own: Arc<AtomicUsize>,
}

impl FairByteBudget {
    pub(super) fn new(total: usize, gauge: GaugeHandle) -> Arc<Self> {
        Arc::new(FairByteBudget {
            total,
            used: AtomicUsize::new(0),
            gauge,
            each: Mutex::default(),
        })
    }

    /// Returns a session's share. Anonymous callers cannot be distinguished, so each session counts
    /// as a principal.
    pub(super) fn share(self: &Arc<Self>, principal: &Principal) -> PrincipalShare {
        let counter = if principal.id == Principal::ANONYMOUS {
            Arc::default()
        } else {
            self.counter_of(principal.id)
        };
        PrincipalShare {
            budget: self.clone(),
            own: counter,
        }
    }

    fn counter_of(&self, principal: u32) -> Arc<AtomicUsize> {
        let mut each = self.each.lock();
        if let Some(counter) = each.by_id.get(&principal).and_then(Weak::upgrade) {
            return counter;
        }
        // Not each time, because a client without a session id opens a session for each POST, and
        // would search all principals with it.
        if each.by_id.len() >= each.prune_at {
            each.by_id.retain(|_, counter| counter.strong_count() > 0);
            each.prune_at = (each.by_id.len() * 2).max(PRUNE_MIN);
        }
        // Weak in the table: the counter ends with the last session of its principal.
        let counter = Arc::default();
        each.by_id.insert(principal, Arc::downgrade(&counter));
        counter
    }
}

impl PrincipalShare {
    /// Reserves bytes. Returns false if the total, or the principal's share, has no room.
    pub(super) fn try_reserve(&self, size: usize) -> bool {
        // Not atomic with the total: concurrent sessions may exceed the share of their principal,
        // but never the total.
        let counter = self.own.load(Ordering::Relaxed);
        let taken = self
            .budget
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                let sum = used.checked_add(size)?;
                let free = self.budget.total.checked_sub(sum)?;
                (counter.saturating_add(size) <= free.saturating_mul(MAX_SHARE)).then_some(sum)
            })
            .is_ok();
        if taken {
            self.own.fetch_add(size, Ordering::Relaxed);
            self.budget
                .gauge
                .add(i64::try_from(size).unwrap_or(i64::MAX));
        }
        taken
    }

    pub(super) fn release(&self, size: usize) {
        self.own.fetch_sub(size, Ordering::Relaxed);
        self.budget.used.fetch_sub(size, Ordering::AcqRel);
        self.budget
            .gauge
            .sub(i64::try_from(size).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_telemetry::Metrics;
    use moongate_testing::principal;

    fn fill(share: &PrincipalShare) -> usize {
        (0..).take_while(|_| share.try_reserve(10)).count() * 10
    }

    #[test]
    fn no_principal_fills_the_budget_for_others() {
        let budget = FairByteBudget::new(9000, Metrics::new().clients.outbox_bytes.clone());
        let first = budget.share(&principal(1));
        let again = budget.share(&principal(1));
        let second = budget.share(&principal(2));
        let most = fill(&first);
        assert_eq!(most, 8000);
        assert_eq!(
            fill(&again),
            0,
            "another session of the same principal is not somebody else"
        );
        let late = fill(&second);
        assert!(late >= 800, "{late}");
        // As the first returns what exceeds its share, both get the same.
        for _ in 0..2000 {
            first.release(10);
            fill(&second);
            fill(&first);
        }
        let one = first.own.load(Ordering::Relaxed);
        let two = second.own.load(Ordering::Relaxed);
        assert!(one.abs_diff(two) <= 900, "{one}, {two}");
        assert!(budget.used.load(Ordering::Relaxed) <= 9000);
        assert_eq!(budget.gauge.get(), i64::try_from(one + two).unwrap());
    }

    #[test]
    fn a_new_share_seldom_searches_the_others_and_ended_ones_are_few() {
        let budget = FairByteBudget::new(9000, Metrics::new().clients.outbox_bytes.clone());
        let entries = || budget.each.lock().by_id.len();
        let open: Vec<PrincipalShare> = (0..100).map(|id| budget.share(&principal(id))).collect();
        drop(budget.share(&principal(100)));
        drop(budget.share(&principal(101)));
        assert_eq!(entries(), 102, "no search for each of them");
        for id in 102..10_000 {
            drop(budget.share(&principal(id)));
            assert!(entries() <= 2 * open.len().max(PRUNE_MIN), "{}", entries());
        }
        drop(open);
        for id in 0..1000 {
            drop(budget.share(&principal(id)));
        }
        assert!(entries() <= PRUNE_MIN, "{}", entries());
    }

    #[test]
    fn anonymous_sessions_have_separate_shares() {
        let budget = FairByteBudget::new(900, Metrics::new().clients.outbox_bytes.clone());
        let one = budget.share(&principal(Principal::ANONYMOUS));
        let two = budget.share(&principal(Principal::ANONYMOUS));
        assert_eq!(fill(&one), 800);
        assert!(fill(&two) >= 80);
    }
}
