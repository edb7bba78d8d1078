//! Support of a legacy server for resource subscriptions, as far as it is known.
//!
//! Owns the results of trials and of real subscriptions. Does not send requests
//! (`subscription_trial.rs`). Invariant: only a server that declares `"subscribe": false` is
//! doubted.

use std::sync::atomic::{AtomicU8, Ordering};

use moongate_model::ServerDescription;

const UNKNOWN: u8 = 0;
const SERVES: u8 = 1;
const REFUSES: u8 = 2;

/// Support for subscriptions on one connection, as far as it is known.
#[derive(Default)]
pub(crate) struct SubscriptionSupport(AtomicU8);

impl SubscriptionSupport {
    /// Records that the server serves subscriptions.
    pub(crate) fn mark_served(&self) {
        self.0.store(SERVES, Ordering::Relaxed);
    }

    /// Records that the server has no subscriptions.
    pub(crate) fn mark_refused(&self) {
        self.0.store(REFUSES, Ordering::Relaxed);
    }

    /// Corrects a server's description by what is known.
    pub(crate) fn correct(&self, description: &mut ServerDescription) {
        if !description.capabilities.subscribe_untried {
            return;
        }
        let known = self.0.load(Ordering::Relaxed);
        description.capabilities.subscribe = known == SERVES;
        description.capabilities.subscribe_untried = known == UNKNOWN;
    }
}
