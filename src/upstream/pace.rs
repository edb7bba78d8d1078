//! When a server is tried again.
//!
//! Owns the pauses between attempts, and who may end them early. Does not connect and does not wait. Invariant: there are
//! never more than [`BUDGET`] attempts in any [`WINDOW`], however they fail and whoever calls, and there is always a next one.
//! The last of them are spread over what is left of that time: short pauses spend the first ones in a second, and a server
//! that is back a moment later must not be left alone for a minute.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::link::LinkError;
use crate::random;
use crate::revision::ConnectError;
use crate::upstream::State;
use crate::upstream::settings::Backoff;

/// Attempts in any [`WINDOW`].
const BUDGET: usize = 8;
/// How many of them are made as soon as the pauses allow.
const FREE: usize = 6;
/// See [`BUDGET`].
const WINDOW: Duration = Duration::from_secs(60);
/// The pause after a failure that repeating will not mend, and the longest that a server can ask for.
const PARKED: Duration = Duration::from_secs(300);
/// A call ends a pause early, but not sooner after the last attempt than this.
const WAKE: Duration = Duration::from_secs(10);
/// The same where repeating will not mend it: somebody may have changed something meanwhile.
const WAKE_PARKED: Duration = Duration::from_secs(30);
/// After so long without a failure, the pauses begin small again.
const HEALTHY: Duration = Duration::from_secs(30);

/// The pauses of one server.
pub(super) struct Pace {
    backoff: Backoff,
    failures: u32,
    attempts: VecDeque<Instant>,
}

/// A pause.
#[derive(Debug, PartialEq)]
pub(super) struct Rest {
    /// What the server is meanwhile.
    pub(super) state: State,
    /// When the next attempt is made in any case.
    pub(super) until: Instant,
    /// From when on it is made as soon as somebody needs the server.
    pub(super) wake: Instant,
}

impl Pace {
    pub(super) fn new(backoff: Backoff) -> Self {
        Pace { backoff, failures: 0, attempts: VecDeque::with_capacity(BUDGET) }
    }

    /// An attempt begins.
    pub(super) fn attempt(&mut self, now: Instant) {
        if self.attempts.len() == BUDGET {
            self.attempts.pop_front();
        }
        self.attempts.push_back(now);
    }

    /// The attempt failed.
    pub(super) fn failed(&mut self, error: &ConnectError, now: Instant) -> Rest {
        self.failures = self.failures.saturating_add(1);
        let parked = |state| (state, PARKED, WAKE_PARKED);
        let (state, pause, wake) = match error {
            ConnectError::Link(LinkError::Unstartable(_)) | ConnectError::NoCommonRevision(_) => parked(State::Failed),
            ConnectError::Link(LinkError::Status { status: 401 | 403, .. }) => parked(State::NeedsLogin),
            // Whoever asks to be left alone is, whoever calls.
            ConnectError::Link(LinkError::Status { retry_after: Some(seconds), .. }) => {
                let pause = Duration::from_secs(*seconds).min(PARKED).max(self.pause());
                (State::BackingOff, pause, pause)
            }
            _ => (State::BackingOff, self.pause(), WAKE),
        };
        self.rest(state, pause, wake, now)
    }

    /// A connection that was up for so long was lost.
    pub(super) fn lost(&mut self, up: Duration, now: Instant) -> Rest {
        // One that ends soon after each start is a failure like any other: only time shows that it is well.
        if up >= HEALTHY {
            self.failures = 0;
            let pause = self.pause();
            return self.rest(State::BackingOff, pause, Duration::ZERO, now);
        }
        self.failures = self.failures.saturating_add(1);
        let pause = self.pause();
        self.rest(State::BackingOff, pause, WAKE, now)
    }

    /// The era that the server was opened in before was wrong: the next attempt looks for another, at once.
    pub(super) fn mistaken(&mut self, now: Instant) -> Rest {
        self.failures = self.failures.saturating_add(1);
        self.rest(State::BackingOff, Duration::ZERO, Duration::ZERO, now)
    }

    /// It ended because nobody needed it: that says nothing against it.
    pub(super) fn forgive(&mut self) {
        self.failures = 0;
        self.attempts.clear();
    }

    fn rest(&self, state: State, pause: Duration, wake: Duration, now: Instant) -> Rest {
        let earliest = self.earliest(now);
        let until = (now + pause).max(earliest);
        // Measured from the attempt that failed: what it took counts.
        let last = self.attempts.back().copied().unwrap_or(now);
        Rest { state, until, wake: (last + wake).max(earliest).min(until) }
    }

    /// Before when there is no attempt, whatever the pause and whoever calls.
    fn earliest(&self, now: Instant) -> Instant {
        let counts = |attempt: &&Instant| **attempt + WINDOW > now;
        let made = self.attempts.iter().filter(counts).count();
        let (Some(first), Some(last)) = (self.attempts.iter().find(counts), self.attempts.back()) else { return now };
        if made < FREE {
            return now;
        }
        // The whole rest of the time where this was the last attempt, half of it where one is left, and so on.
        let shares = u32::try_from(BUDGET - made).unwrap_or(0) + 1;
        (*last + (*first + WINDOW).duration_since(*last) / shares).max(now)
    }

    fn pause(&self) -> Duration {
        pause(self.backoff, self.failures)
    }
}

/// Doubled with each failure, capped, and spread over the upper half so that many gateways do not come together.
pub(super) fn pause(backoff: Backoff, failures: u32) -> Duration {
    let full = backoff.min.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(backoff.max);
    let byte: [u8; 1] = random::bytes();
    full.mul_f64(0.5 + f64::from(byte[0]) / 510.0)
}

/// Who waits for a server that is away.
#[derive(Default)]
pub(super) struct Wake {
    waiting: AtomicUsize,
    notify: Notify,
}

/// Somebody waits until this is dropped.
pub(super) struct Waiter<'a>(&'a Wake);

impl Wake {
    pub(super) fn wait(&self) -> Waiter<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.look();
        Waiter(self)
    }

    /// Whoever would try again looks whether somebody needs that.
    pub(super) fn look(&self) {
        self.notify.notify_waiters();
    }

    /// Ends as soon as somebody waits, or something else needs the server.
    pub(super) async fn needed(&self, otherwise: impl Fn() -> bool) {
        loop {
            // Made before the look, so that nothing that happens in between is missed.
            let notified = self.notify.notified();
            if self.waiting.load(Ordering::Acquire) > 0 || otherwise() {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn backoff() -> Backoff {
        Backoff::default()
    }

    fn refused() -> ConnectError {
        LinkError::Unreachable("refused".to_owned()).into()
    }

    fn status(status: u16, retry_after: Option<u64>) -> ConnectError {
        LinkError::Status { status, hint: String::new(), message: None, retry_after }.into()
    }

    #[test]
    fn pauses_grow_to_the_cap_and_begin_anew_after_health() {
        let (mut pace, start) = (Pace::new(backoff()), Instant::now());
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            pace.attempt(now);
            let rest = pace.failed(&refused(), now);
            assert_eq!(rest.state, State::BackingOff);
            pauses.push(rest.until - now);
            now = rest.until;
        }
        assert!(pauses[0] <= Duration::from_millis(500) && pauses[9] >= Duration::from_secs(15), "{pauses:?}");
        assert!(pauses[8..].iter().all(|pause| *pause <= backoff().max), "{pauses:?}");
        pace.attempt(now);
        let rest = pace.lost(HEALTHY, now + HEALTHY);
        assert!(rest.until - (now + HEALTHY) <= backoff().min && rest.wake <= now + HEALTHY, "a call finds it at once");
    }

    #[test]
    fn what_repeating_cannot_mend_is_parked_and_may_be_woken_rarely() {
        let now = Instant::now();
        let unstartable = LinkError::Unstartable("command not found".to_owned()).into();
        for (error, state) in [(unstartable, State::Failed), (status(401, None), State::NeedsLogin)] {
            let mut pace = Pace::new(backoff());
            pace.attempt(now);
            let rest = pace.failed(&error, now);
            assert_eq!(rest, Rest { state, until: now + PARKED, wake: now + WAKE_PARKED });
        }
        let mut pace = Pace::new(backoff());
        pace.attempt(now);
        let rest = pace.failed(&status(429, Some(100)), now);
        assert_eq!((rest.until - now, rest.wake), (Duration::from_secs(100), rest.until), "it asked for that");
        let rest = pace.failed(&status(503, Some(u64::MAX)), now);
        assert_eq!(rest.until - now, PARKED);
    }

    #[test]
    fn a_crash_loop_has_at_most_so_many_starts() {
        for called in [false, true] {
            let (mut pace, start) = (Pace::new(backoff()), Instant::now());
            let (mut now, mut starts) = (start, Vec::new());
            while now < start + Duration::from_secs(60) {
                pace.attempt(now);
                starts.push(now - start);
                // Each start succeeds, and dies a moment later.
                now += Duration::from_millis(50);
                let rest = pace.lost(Duration::from_millis(40), now);
                now = if called { rest.wake } else { rest.until };
            }
            assert!(starts.len() <= BUDGET, "{starts:?}");
        }
    }

    #[test]
    fn short_pauses_leave_no_server_alone_for_long() {
        let short = Backoff { min: Duration::from_millis(50), max: Duration::from_millis(200) };
        let (mut pace, start) = (Pace::new(short), Instant::now());
        let (mut now, mut longest) = (start, Duration::ZERO);
        for attempt in 1..40 {
            pace.attempt(now);
            let rest = pace.failed(&refused(), now);
            if attempt < FREE {
                assert!(rest.until - now <= short.max, "the first follow at once");
            }
            longest = longest.max(rest.until - now);
            now = rest.until;
        }
        assert!(longest <= WINDOW / 3, "{longest:?}");
    }

    #[derive(Clone, Debug)]
    enum Happens {
        Refused,
        Parked,
        AsksToWait(u64),
        Lost(u64),
        Mistaken,
    }

    fn happens() -> impl Strategy<Value = (Happens, u64, bool)> {
        let what = prop_oneof![
            Just(Happens::Refused),
            Just(Happens::Parked),
            any::<u64>().prop_map(Happens::AsksToWait),
            (0..100_000_u64).prop_map(Happens::Lost),
            Just(Happens::Mistaken),
        ];
        (what, 0..5000_u64, any::<bool>())
    }

    proptest! {
        /// Whatever happens in whatever order, and whoever calls: attempts keep within the budget, and go on for ever.
        #[test]
        fn attempts_are_bounded_and_never_end(events in prop::collection::vec(happens(), 1..80)) {
            let mut pace = Pace::new(backoff());
            let (mut now, mut attempts) = (Instant::now(), Vec::new());
            for (what, took, called) in events {
                pace.attempt(now);
                attempts.push(now);
                now += Duration::from_millis(took);
                let rest = match what {
                    Happens::Refused => pace.failed(&refused(), now),
                    Happens::Parked => pace.failed(&status(403, None), now),
                    Happens::AsksToWait(seconds) => pace.failed(&status(503, Some(seconds)), now),
                    Happens::Lost(up) => {
                        now += Duration::from_millis(up);
                        pace.lost(Duration::from_millis(up), now)
                    }
                    Happens::Mistaken => pace.mistaken(now),
                };
                prop_assert!(rest.wake <= rest.until);
                prop_assert!(rest.until <= now + PARKED, "there is always a next attempt");
                now = if called { rest.wake.max(now) } else { rest.until };
            }
            for window in attempts.windows(BUDGET + 1) {
                prop_assert!(window[BUDGET] - window[0] >= WINDOW);
            }
            // Faults are over: the next attempt is the last, and health makes the pauses small again.
            pace.attempt(now);
            let rest = pace.lost(HEALTHY, now + HEALTHY);
            prop_assert!(rest.until <= now + HEALTHY + WINDOW);
            prop_assert_eq!(pace.failures, 0);
        }
    }

    #[tokio::test]
    async fn whoever_waits_is_noticed_before_and_after() {
        let wake = Wake::default();
        let waiter = wake.wait();
        wake.needed(|| false).await;
        drop(waiter);
        wake.needed(|| true).await;
        let ((), _waiter) = tokio::join!(wake.needed(|| false), async { wake.wait() });
    }
}
