//! Calls that are being served, of all and of each principal.
//!
//! Invariant: a call counts from the moment that it is routed until its exchange is dropped, whatever its end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::telemetry::{CountGuard, Metrics};

/// The counts.
#[derive(Default)]
pub(super) struct InFlight {
    /// By principal; there are as many as there are keys.
    each: RwLock<HashMap<u32, Arc<AtomicUsize>>>,
}

impl InFlight {
    fn count(&self, principal: u32) -> Arc<AtomicUsize> {
        let known = self.each.read().unwrap_or_else(PoisonError::into_inner).get(&principal).cloned();
        known.unwrap_or_else(|| {
            self.each.write().unwrap_or_else(PoisonError::into_inner).entry(principal).or_default().clone()
        })
    }

    /// Forgets principals that are gone; their calls still count among all.
    pub(super) fn retain(&self, stays: impl Fn(u32) -> bool) {
        self.each.write().unwrap_or_else(PoisonError::into_inner).retain(|principal, _| stays(*principal));
    }

    /// Calls of one principal.
    pub(super) fn of(&self, principal: u32) -> usize {
        self.count(principal).load(Ordering::Relaxed)
    }

    /// One more, until the guard is dropped.
    pub(super) fn enter(&self, principal: u32, metrics: &Metrics) -> Entered {
        let count = self.count(principal);
        count.fetch_add(1, Ordering::Relaxed);
        Entered { count, _all: CountGuard::new(&metrics.inflight) }
    }
}

/// A call that counts.
pub(super) struct Entered {
    count: Arc<AtomicUsize>,
    _all: CountGuard,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
