//! Budget of attempts that all connections of one server share. Owns which recent attempts failed,
//! or are still pending. Does not connect or sleep, and does not know the delays of one connection
//! (`reconnect_backoff.rs`). Invariant: while nothing succeeds, dedicated attempts start only below
//! [`BUDGET`] attempts in a [`WINDOW`]. The shared connection never waits for them.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::reconnect_backoff::{BUDGET, WINDOW, spread};

/// Number of attempts that only the delays space out. The others are spread, so that a server that
/// is back is found soon.
const UNSPACED_ATTEMPTS: usize = 4;
/// Limit of pending attempts for dedicated connections.
// A server that hangs holds a process or a connection for each of them.
const PENDING_MAX: usize = 6;
/// Uptime after which a connection counts as serving, although no call on it has ended.
pub(crate) const PROVEN: Duration = Duration::from_secs(5);
/// Time within which several losses count as one event, for example the end of one process.
const LOSS_EVENT_TIME: Duration = Duration::from_secs(1);

/// Attempts at connections to one server.
#[derive(Clone, Default)]
pub(crate) struct ConnectBudget(Arc<AttemptLedger>);

#[derive(Default)]
struct AttemptLedger {
    entries: Mutex<AttemptLog>,
    changed: Notify,
}

#[derive(Default)]
struct AttemptLog {
    all: VecDeque<AttemptEntry>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct AttemptEntry {
    id: u64,
    started_at: Instant,
    has_failed: bool,
}

/// Attempt that counts until it is settled: for a [`WINDOW`] if it failed, else until this is
/// dropped.
pub(crate) struct CountedAttempt {
    budget: ConnectBudget,
    id: u64,
    has_failed: bool,
}

/// Reason why no attempt may start.
#[derive(Debug, PartialEq)]
pub(crate) enum BudgetDenied {
    /// Too many attempts are pending. The time says when to look again at the latest.
    Pending(Instant),
    /// Recent attempts failed. There is none before this time.
    Failed(Instant),
}

impl ConnectBudget {
    /// Starts an attempt of the shared connection.
    pub(crate) fn begin_shared(&self, now: Instant) -> CountedAttempt {
        let mut entries = self.lock(now);
        // Counted and never refused: all clients wait for the shared connection.
        self.add_attempt(&mut entries, now)
    }

    /// Starts an attempt of a dedicated connection.
    pub(crate) fn try_begin(&self, now: Instant) -> Result<CountedAttempt, BudgetDenied> {
        let mut entries = self.lock(now);
        // Without failures, attempts are not spaced, so many clients of a healthy server connect at
        // once.
        if entries.all.iter().any(|entry| entry.has_failed) {
            let until = spread(
                entries.all.iter().map(|entry| entry.started_at),
                UNSPACED_ATTEMPTS,
                BUDGET,
                now,
            );
            if until > now {
                return Err(BudgetDenied::Failed(until));
            }
        }
        match entries.all.front() {
            // The attempts of a server that hangs never settle. They leave the count with the
            // window.
            Some(first)
                if entries.all.len() >= PENDING_MAX
                    && !entries.all.iter().any(|entry| entry.has_failed) =>
            {
                Err(BudgetDenied::Pending(first.started_at + WINDOW))
            }
            _ => Ok(self.add_attempt(&mut entries, now)),
        }
    }

    /// Forgets failures, because a connection serves.
    pub(crate) fn reset(&self) {
        let mut entries = self.0.entries.lock();
        // Attempts that are pending stay in the count, since they still are under way.
        entries.all.retain(|entry| !entry.has_failed);
        drop(entries);
        self.0.changed.notify_waiters();
    }

    /// Counts the loss of a connection after a short uptime.
    pub(crate) fn record_loss(&self, now: Instant) {
        let mut entries = self.lock(now);
        // A crash breaks all connections at the same moment, and counts once.
        if !entries
            .all
            .iter()
            .any(|entry| entry.has_failed && entry.started_at + LOSS_EVENT_TIME > now)
        {
            entries.add(true, now);
        }
    }

    /// Waits until another attempt settles, from the moment of this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> {
        self.0.changed.notified()
    }

    fn add_attempt(&self, entries: &mut AttemptLog, now: Instant) -> CountedAttempt {
        CountedAttempt {
            budget: self.clone(),
            id: entries.add(false, now),
            has_failed: false,
        }
    }

    fn lock(&self, now: Instant) -> MutexGuard<'_, AttemptLog> {
        let mut entries = self.0.entries.lock();
        entries.all.retain(|entry| entry.started_at + WINDOW > now);
        entries
    }
}

impl AttemptLog {
    fn add(&mut self, has_failed: bool, now: Instant) -> u64 {
        // Twice the budget is more than `spread` looks at. Older entries no longer matter.
        if self.all.len() >= BUDGET * 2 {
            self.all.pop_front();
        }
        self.last += 1;
        self.all.push_back(AttemptEntry {
            id: self.last,
            started_at: now,
            has_failed,
        });
        self.last
    }
}

impl CountedAttempt {
    /// Settles the attempt as failed, or its connection as lost before it served anyone.
    pub(crate) fn fail(mut self) {
        self.has_failed = true;
    }

    /// Settles the attempt as successful: a call was answered on its connection.
    pub(crate) fn succeed(self) {
        self.budget.reset();
    }
}

impl Drop for CountedAttempt {
    fn drop(&mut self) {
        // Unlocked before the waiters wake up.
        {
            let mut entries = self.budget.0.entries.lock();
            match self.has_failed {
                true => entries
                    .all
                    .iter_mut()
                    .filter(|entry| entry.id == self.id)
                    .for_each(|e| e.has_failed = true),
                false => entries.all.retain(|entry| entry.id != self.id),
            }
        }
        self.budget.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_attempts_of_all_connections_are_bounded_together() {
        let attempts = ConnectBudget::default();
        let mut made = Vec::new();
        let start = Instant::now();
        // Twenty clients try again and again.
        while start.elapsed() < WINDOW * 3 {
            for _ in 0..20 {
                if let Ok(attempt) = attempts.try_begin(Instant::now()) {
                    made.push(Instant::now());
                    attempt.fail();
                }
            }
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert!(made.len() > BUDGET * 2, "they go on: {}", made.len());
        for window in made.windows(BUDGET + 1) {
            assert!(window[BUDGET] - window[0] >= WINDOW, "{window:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_wait_for_pending_attempts_get_their_result() {
        let attempts = ConnectBudget::default();
        let now = Instant::now();
        let mut pending: Vec<CountedAttempt> = (0..PENDING_MAX)
            .map(|_| attempts.try_begin(now).ok().unwrap())
            .collect();
        assert_eq!(
            attempts.try_begin(now).err(),
            Some(BudgetDenied::Pending(now + WINDOW))
        );
        let changed = attempts.changed();
        // Dropped without a result: the attempt no longer counts.
        drop(pending.pop());
        changed.await;
        assert!(attempts.try_begin(now).is_ok(), "there is room again");
        let last = pending.pop().unwrap();
        for attempt in pending {
            attempt.fail();
        }
        assert!(matches!(attempts.try_begin(now), Err(BudgetDenied::Failed(until)) if until > now));
        last.succeed();
        assert!(attempts.try_begin(now).is_ok(), "one of them serves");
        attempts.begin_shared(now).fail();
        // All of these are one event.
        for _ in 0..100 {
            attempts.record_loss(now);
        }
        assert!(attempts.0.entries.lock().all.len() <= 2);
    }
}
