//! Reconnect backoff of one connection. Decides when the next attempt may start, and what may start
//! it early. Does not connect or sleep. Invariant: at most [`BUDGET`] attempts in any [`WINDOW`],
//! and there is always a next one. An idle stop isn't a failure, and starts a new count.
//!
//! The last attempts are spread over the rest of the window. Short delays would spend all of them
//! in a second. A server that is back a moment later would then wait for a minute.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::supervision_options::BackoffSettings;
use moongate_model::UpstreamState;
use moongate_protocol::ConnectError;
use moongate_transport::LinkError;

/// Limit of attempts in any [`WINDOW`].
pub(crate) const BUDGET: usize = 8;
/// Number of attempts in a [`WINDOW`] that only the delays space out.
const UNSPACED_ATTEMPTS: usize = 6;
/// Period of [`BUDGET`].
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Delay after a failure that a retry cannot fix, and the longest `Retry-After` that is honoured.
const LONG_DELAY: Duration = Duration::from_secs(300);
/// Shortest time between the last attempt and one that a call triggers.
pub(crate) const DEMAND_DELAY: Duration = Duration::from_secs(10);
/// Shortest time for a call to trigger an attempt that a retry cannot fix: an operator may have
/// fixed it meanwhile.
const DEMAND_DELAY_LONG: Duration = Duration::from_secs(30);
/// Time without a failure after which the delays start small again.
pub(crate) const HEALTHY: Duration = Duration::from_secs(30);

/// Backoff state of one connection.
pub(crate) struct ReconnectBackoff {
    backoff: BackoffSettings,
    failures: u32,
    attempts: VecDeque<Instant>,
}

/// Delay before the next attempt.
#[derive(Debug, PartialEq)]
pub(crate) struct ReconnectDelay {
    /// State of the server during the delay.
    pub(crate) state: UpstreamState,
    /// Time of the next attempt without demand.
    pub(crate) until: Instant,
    /// Earliest time of an attempt that demand triggers.
    pub(crate) demand_from: Instant,
}

impl ReconnectBackoff {
    pub(crate) fn new(backoff: BackoffSettings) -> Self {
        ReconnectBackoff {
            backoff,
            failures: 0,
            attempts: VecDeque::with_capacity(BUDGET),
        }
    }

    /// Records the start of an attempt.
    pub(crate) fn record_attempt(&mut self, now: Instant) {
        // A ring of the last attempts. Older ones cannot exceed the budget.
        if self.attempts.len() == BUDGET {
            self.attempts.pop_front();
        }
        self.attempts.push_back(now);
    }

    /// Returns the start of the last attempt that counts.
    pub(crate) fn last_attempt(&self) -> Option<Instant> {
        self.attempts.back().copied()
    }

    /// Records a failed attempt and returns the delay.
    pub(crate) fn on_failure(&mut self, error: &ConnectError, now: Instant) -> ReconnectDelay {
        self.failures = self.failures.saturating_add(1);
        let (state, delay, demand_delay) = match error {
            // Only an operator can fix these two, so attempts are rare, even on demand.
            ConnectError::Link(LinkError::Spawn(_)) | ConnectError::NoCommonRevision(_) => {
                (UpstreamState::Failed, LONG_DELAY, DEMAND_DELAY_LONG)
            }
            ConnectError::Link(LinkError::Status {
                status: 401 | 403, ..
            }) => (UpstreamState::NeedsLogin, LONG_DELAY, DEMAND_DELAY_LONG),
            // RFC 9110, 10.2.3: `Retry-After` says how long to wait. Demand does not shorten it.
            ConnectError::Link(LinkError::Status {
                retry_after: Some(seconds),
                ..
            }) => {
                let delay = Duration::from_secs(*seconds)
                    .min(LONG_DELAY)
                    .max(self.next_delay());
                (UpstreamState::BackingOff, delay, delay)
            }
            _ => (UpstreamState::BackingOff, self.next_delay(), DEMAND_DELAY),
        };
        self.delay(state, delay, demand_delay, now)
    }

    /// Records the loss of a connection that was up for this time.
    pub(crate) fn on_loss(&mut self, up: Duration, now: Instant) -> ReconnectDelay {
        // A server that ends soon after each start is failing. Only time shows that it is well.
        if up >= HEALTHY {
            self.failures = 0;
            let delay = self.next_delay();
            return self.delay(UpstreamState::BackingOff, delay, Duration::ZERO, now);
        }
        self.failures = self.failures.saturating_add(1);
        let delay = self.next_delay();
        self.delay(UpstreamState::BackingOff, delay, DEMAND_DELAY, now)
    }

    /// Records an attempt in the wrong era. The next one looks for the other era at once.
    pub(crate) fn wrong_era(&mut self, now: Instant) -> ReconnectDelay {
        self.failures = self.failures.saturating_add(1);
        self.delay(
            UpstreamState::BackingOff,
            Duration::ZERO,
            Duration::ZERO,
            now,
        )
    }

    /// Resets the backoff after an idle stop, which isn't a failure.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
        self.attempts.clear();
    }

    fn delay(
        &self,
        state: UpstreamState,
        delay: Duration,
        demand_delay: Duration,
        now: Instant,
    ) -> ReconnectDelay {
        let earliest = self.earliest(now);
        let until = (now + delay).max(earliest);
        // Measured from the start of the attempt, so that its duration counts.
        let last = self.last_attempt().unwrap_or(now);
        ReconnectDelay {
            state,
            until,
            demand_from: (last + demand_delay).max(earliest).min(until),
        }
    }

    /// Returns the earliest time that the budget allows, whatever the delay and the demand.
    fn earliest(&self, now: Instant) -> Instant {
        spread(
            self.attempts.iter().copied(),
            UNSPACED_ATTEMPTS,
            BUDGET,
            now,
        )
    }

    fn next_delay(&self) -> Duration {
        backoff_delay(self.backoff, self.failures)
    }
}

/// Returns the earliest time of the next attempt. The first `free` attempts are not spaced. The
/// last ones are spread over the rest of the [`WINDOW`].
pub(crate) fn spread(
    attempts: impl Iterator<Item = Instant>,
    free: usize,
    budget: usize,
    now: Instant,
) -> Instant {
    let counted: Vec<Instant> = attempts.filter(|attempt| *attempt + WINDOW > now).collect();
    // Beyond the budget, the oldest attempts that count no longer decide.
    let counted = &counted[counted.len().saturating_sub(budget)..];
    let (made, [first, .., last] | [first @ last]) = (counted.len(), counted) else {
        return now;
    };
    if made < free {
        return now;
    }
    // The whole rest of the window after the last attempt, half of it where one is left, and so on.
    let shares = u32::try_from(budget - made).unwrap_or(0) + 1;
    (*last + (*first + WINDOW).duration_since(*last) / shares).max(now)
}

/// Returns the delay: doubled with each failure, capped, and jittered over its upper half. The
/// jitter keeps many gateways from reconnecting at the same moment.
pub(crate) fn backoff_delay(backoff: BackoffSettings, failures: u32) -> Duration {
    // The shift is capped, because a `u32` overflows at 32.
    let full = backoff
        .min
        .0
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(backoff.max.0);
    let byte: [u8; 1] = moongate_random::random_bytes();
    // From 0.5 to 1.0, in 256 steps.
    full.mul_f64(0.5 + f64::from(byte[0]) / 510.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use moongate_units::DurationSetting;

    fn backoff() -> BackoffSettings {
        BackoffSettings::default()
    }

    pub(crate) fn refused() -> ConnectError {
        LinkError::Unreachable("refused".to_owned()).into()
    }

    pub(crate) fn status(status: u16, retry_after: Option<u64>) -> ConnectError {
        LinkError::Status {
            status,
            hint: String::new(),
            message: None,
            retry_after,
            challenge: None,
        }
        .into()
    }

    #[test]
    fn pauses_grow_to_the_cap_and_begin_anew_after_health() {
        let mut pace = ReconnectBackoff::new(backoff());
        let start = Instant::now();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            pace.record_attempt(now);
            let rest = pace.on_failure(&refused(), now);
            assert_eq!(rest.state, UpstreamState::BackingOff);
            pauses.push(rest.until - now);
            now = rest.until;
        }
        assert!(
            pauses[0] <= Duration::from_millis(500) && pauses[9] >= Duration::from_secs(15),
            "{pauses:?}"
        );
        assert!(
            pauses[8..].iter().all(|pause| *pause <= backoff().max.0),
            "{pauses:?}"
        );
        pace.record_attempt(now);
        let rest = pace.on_loss(HEALTHY, now + HEALTHY);
        assert!(
            rest.until - (now + HEALTHY) <= backoff().min.0 && rest.demand_from <= now + HEALTHY,
            "a call finds it at once"
        );
    }

    #[test]
    fn permanent_failures_are_parked_and_rarely_retried() {
        let now = Instant::now();
        let unstartable = LinkError::Spawn("command not found".to_owned()).into();
        for (error, state) in [
            (unstartable, UpstreamState::Failed),
            (status(401, None), UpstreamState::NeedsLogin),
        ] {
            let mut pace = ReconnectBackoff::new(backoff());
            pace.record_attempt(now);
            let rest = pace.on_failure(&error, now);
            assert_eq!(
                rest,
                ReconnectDelay {
                    state,
                    until: now + LONG_DELAY,
                    demand_from: now + DEMAND_DELAY_LONG
                }
            );
        }
        let mut pace = ReconnectBackoff::new(backoff());
        pace.record_attempt(now);
        let rest = pace.on_failure(&status(429, Some(100)), now);
        assert_eq!(
            rest.until - now,
            Duration::from_secs(100),
            "it asked for that"
        );
        assert_eq!(rest.demand_from, rest.until, "it asked for that");
        let rest = pace.on_failure(&status(503, Some(u64::MAX)), now);
        assert_eq!(rest.until - now, LONG_DELAY);
    }

    #[test]
    fn a_crash_loop_has_at_most_so_many_starts() {
        for called in [false, true] {
            let mut pace = ReconnectBackoff::new(backoff());
            let start = Instant::now();
            let mut now = start;
            let mut starts = Vec::new();
            while now < start + Duration::from_secs(60) {
                pace.record_attempt(now);
                starts.push(now - start);
                // Each start succeeds, and the process dies a moment later.
                now += Duration::from_millis(50);
                let rest = pace.on_loss(Duration::from_millis(40), now);
                now = if called { rest.demand_from } else { rest.until };
            }
            assert!(starts.len() <= BUDGET, "{starts:?}");
        }
    }

    #[test]
    fn short_pauses_leave_no_server_alone_for_long() {
        let short = BackoffSettings {
            min: DurationSetting(Duration::from_millis(50)),
            max: DurationSetting(Duration::from_millis(200)),
        };
        let mut pace = ReconnectBackoff::new(short);
        let start = Instant::now();
        let mut now = start;
        let mut longest = Duration::ZERO;
        for attempt in 1..40 {
            pace.record_attempt(now);
            let rest = pace.on_failure(&refused(), now);
            if attempt < UNSPACED_ATTEMPTS {
                assert!(rest.until - now <= short.max.0, "the first follow at once");
            }
            // Follows the schedule without any demand.
            longest = longest.max(rest.until - now);
            now = rest.until;
        }
        assert!(longest <= WINDOW / 3, "{longest:?}");
    }

    #[derive(Clone, Debug)]
    enum ScriptedOutcome {
        Refused,
        Parked,
        AsksToWait(u64),
        Lost(u64),
        Mistaken,
    }

    fn happens() -> impl Strategy<Value = (ScriptedOutcome, u64, bool)> {
        let what = prop_oneof![
            Just(ScriptedOutcome::Refused),
            Just(ScriptedOutcome::Parked),
            any::<u64>().prop_map(ScriptedOutcome::AsksToWait),
            (0..100_000_u64).prop_map(ScriptedOutcome::Lost),
            Just(ScriptedOutcome::Mistaken),
        ];
        (what, 0..5000_u64, any::<bool>())
    }

    proptest! {
        /// Attempts stay within the budget and never end, for any order of events and any demand.
        #[test]
        fn attempts_are_bounded_and_never_end(events in prop::collection::vec(happens(), 1..80)) {
            let mut pace = ReconnectBackoff::new(backoff());
            let mut now = Instant::now();
            let mut attempts = Vec::new();
            for (what, took, called) in events {
                pace.record_attempt(now);
                attempts.push(now);
                now += Duration::from_millis(took);
                let rest = match what {
                    ScriptedOutcome::Refused => pace.on_failure(&refused(), now),
                    ScriptedOutcome::Parked => pace.on_failure(&status(403, None), now),
                    ScriptedOutcome::AsksToWait(seconds) => pace.on_failure(&status(503,
                        Some(seconds)), now),
                    ScriptedOutcome::Lost(up) => {
                        now += Duration::from_millis(up);
                        pace.on_loss(Duration::from_millis(up), now)
                    }
                    ScriptedOutcome::Mistaken => pace.wrong_era(now),
                };
                prop_assert!(rest.demand_from <= rest.until);
                prop_assert!(rest.until <= now + LONG_DELAY, "there is always a next attempt");
                now = if called { rest.demand_from.max(now) } else { rest.until };
            }
            for window in attempts.windows(BUDGET + 1) {
                prop_assert!(window[BUDGET] - window[0] >= WINDOW);
            }
            // After the faults, the next attempt is the last one, and health makes the delays small
            // again.
            pace.record_attempt(now);
            let rest = pace.on_loss(HEALTHY, now + HEALTHY);
            prop_assert!(rest.until <= now + HEALTHY + WINDOW);
            prop_assert_eq!(pace.failures, 0);
        }
    }
}
