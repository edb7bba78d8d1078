//! Demand of callers for the shared connection while there is none. Owns the count of waiting
//! callers. Does not connect (`supervisor`). Invariant: a caller that waits wakes the supervisor,
//! whichever of the two comes first.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Demand of callers for a server that is disconnected.
#[derive(Default)]
pub(crate) struct ConnectDemand {
    waiting: AtomicUsize,
    notify: Notify,
}

/// Guard of one waiting caller.
pub(crate) struct DemandGuard<'a>(&'a ConnectDemand);

impl ConnectDemand {
    /// Counts a waiting caller until the guard is dropped, and wakes the supervisor.
    pub(crate) fn register(&self) -> DemandGuard<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.recheck();
        DemandGuard(self)
    }

    /// Wakes the supervisor to check the demand again.
    pub(crate) fn recheck(&self) {
        self.notify.notify_waiters();
    }

    /// Waits until a caller waits, or `is_needed` returns true.
    pub(crate) async fn wait_for_demand(&self, is_needed: impl Fn() -> bool) {
        loop {
            // Created before the check, so that no signal in between is missed.
            let notified = self.notify.notified();
            if self.waiting.load(Ordering::Acquire) > 0 || is_needed() {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for DemandGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn demand_registered_before_or_during_a_wait_ends_it() {
        let demand = ConnectDemand::default();
        let waiter = demand.register();
        demand.wait_for_demand(|| false).await;
        drop(waiter);
        demand.wait_for_demand(|| true).await;
        let ((), _waiter) = tokio::join!(demand.wait_for_demand(|| false), async {
            demand.register()
        });
    }
}
