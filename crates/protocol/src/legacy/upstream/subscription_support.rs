//! Knowledge if a server that denies having subscriptions serves them after all.
//!
//! Owns what trials and subscriptions found out. Does not send requests (`trial.rs`). Invariant: a server that declares
//! subscriptions, or leaves them out, is taken at its word.

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
        if !description.features.subscribe_untried {
            return;
        }
        let known = self.0.load(Ordering::Relaxed);
        description.features.subscribe = known == SERVES;
        description.features.subscribe_untried = known == UNKNOWN;
    }
}
