//! Locks for people's renewals at the company's login.
//!
//! Owns one lock per person. Does not renew (`recheck.rs`). Invariant: one renewal per person at a
//! time, because a provider that rotates tokens treats a second use as theft.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use moongate_model::PrincipalKey;
use parking_lot::Mutex;
use tokio::sync::{Mutex as RenewalMutex, OwnedMutexGuard};
use tokio::time::Instant;

/// Maximum number of people with concurrent renewals.
const RENEWALS_MAX: usize = 1000;

/// Time of a person's last renewal without an answer, for those who waited meanwhile.
pub(crate) type LastFailure = Option<Instant>;

/// Locks of people's renewals.
#[derive(Default)]
pub(crate) struct RenewalLocks(Mutex<HashMap<PrincipalKey, Weak<RenewalMutex<LastFailure>>>>);

impl RenewalLocks {
    /// Waits for the lock of a person. `None`: too many people have a renewal now.
    pub(crate) async fn acquire(
        &self,
        mark: &PrincipalKey,
    ) -> Option<OwnedMutexGuard<LastFailure>> {
        let lock = self.lock_of(mark)?;
        Some(lock.lock_owned().await)
    }

    /// Returns the lock of a person, which whoever holds it or waits for it keeps alive.
    fn lock_of(&self, mark: &PrincipalKey) -> Option<Arc<RenewalMutex<LastFailure>>> {
        let mut locks = self.0.lock();
        if let Some(known) = locks.get(mark).and_then(Weak::upgrade) {
            return Some(known);
        }
        if locks.len() >= RENEWALS_MAX {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        if locks.len() >= RENEWALS_MAX {
            return None;
        }
        let made = Arc::new(RenewalMutex::new(None));
        locks.insert(*mark, Arc::downgrade(&made));
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_person_waits_and_others_do_not() {
        let locks = RenewalLocks::default();
        let first = locks.acquire(&[1; 16]).await;
        assert!(first.is_some());
        assert!(locks.acquire(&[1; 16]).now_or_never().is_none());
        assert!(locks.acquire(&[2; 16]).now_or_never().is_some());
        drop(first);
        assert!(locks.acquire(&[1; 16]).now_or_never().is_some());
    }

    #[tokio::test]
    async fn the_number_of_locks_is_bounded_and_unused_ones_go() {
        let locks = RenewalLocks::default();
        let marks: Vec<PrincipalKey> = (0..=RENEWALS_MAX as u128).map(u128::to_be_bytes).collect();
        let mut held = Vec::new();
        for mark in &marks[..RENEWALS_MAX] {
            held.push(locks.acquire(mark).await.unwrap());
        }
        assert!(locks.acquire(&marks[RENEWALS_MAX]).await.is_none());
        held.pop();
        assert!(locks.acquire(&marks[RENEWALS_MAX]).await.is_some());
        assert!(locks.0.lock().len() <= RENEWALS_MAX);
    }
}
