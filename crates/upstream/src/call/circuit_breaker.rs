//! Circuit breaker of one server. Counts failures of the server as a whole: lost connections,
//! timeouts, and refusals with `Retry-After`. Does not send or classify calls (`call`). Invariant:
//! a JSON-RPC response, an error included, never opens the breaker, and an open one lets through
//! one probe at a time.
//!
//! The breaker opens after failures in a row, at a high rate of failures, or when the server asks
//! to wait (`Retry-After`). After a while, one probe call decides whether it closes.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::supervision_options::BreakerSettings;

/// Window in which failures are counted.
const WINDOW: Duration = Duration::from_secs(30);
/// Calls in a window from which on the rate of failures counts.
// A rate over a few calls is noise: two failures of three would open the breaker.
const CALLS_MIN: u64 = 20;
/// Percentage of failed calls that opens the breaker.
// High, since a server that answers more than a fifth of its calls is still of use to clients.
const FAULTS_PERCENT: u64 = 80;
/// Longest time that the breaker opens at the server's own request.
pub(crate) const OPEN_TIME_MAX: Duration = Duration::from_secs(60);

/// Circuit breaker of one server.
pub(crate) struct CircuitBreaker {
    settings: BreakerSettings,
    epoch: Instant,
    /// End of the open state, in milliseconds since the epoch. 0: closed.
    open_until_ms: AtomicU64,
    /// Failures since the last success.
    streak: AtomicU32,
    /// Successful calls of this window.
    successes: AtomicU64,
    inner: Mutex<BreakerWindow>,
    changed: Notify,
}

struct BreakerWindow {
    started: Instant,
    failures: u64,
    probing: bool,
    reason: String,
}

/// Permit of one call.
#[derive(Default)]
pub(crate) struct BreakerPermit {
    /// Probe, if this call decides whether the breaker closes.
    probe: Option<HalfOpenProbe>,
}

struct HalfOpenProbe(Arc<CircuitBreaker>);

/// State of an open breaker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenState {
    /// Failure that opened it.
    pub(crate) reason: String,
    /// Time until the next probe.
    pub(crate) remaining: Duration,
}

/// Class of a finished call.
#[derive(Debug, PartialEq)]
pub(crate) enum CallClass {
    /// The server is there and answers.
    Success,
    /// The server failed as a whole. The time is its own request to wait.
    Failure(String, Option<Duration>),
    /// The call says nothing about the server.
    Ignored,
}

impl CircuitBreaker {
    pub(crate) fn new(settings: BreakerSettings) -> Arc<Self> {
        Arc::new(CircuitBreaker {
            settings,
            epoch: Instant::now(),
            open_until_ms: AtomicU64::new(0),
            streak: AtomicU32::new(0),
            successes: AtomicU64::new(0),
            inner: Mutex::new(BreakerWindow {
                started: Instant::now(),
                failures: 0,
                probing: false,
                reason: String::new(),
            }),
            changed: Notify::new(),
        })
    }

    /// Returns a permit for a call, or the open state.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<BreakerPermit, OpenState> {
        // Fast path: a closed breaker costs one atomic load and no lock.
        if self.open_until_ms.load(Ordering::Acquire) == 0 {
            return Ok(BreakerPermit::default());
        }
        // Decided under the lock: two calls must not both become the probe.
        let mut inner = self.inner.lock();
        match self.remaining() {
            None => Ok(BreakerPermit::default()),
            Some(left) if !left.is_zero() || inner.probing => Err(OpenState {
                reason: inner.reason.clone(),
                remaining: left,
            }),
            Some(_) => {
                inner.probing = true;
                Ok(BreakerPermit {
                    probe: Some(HalfOpenProbe(self.clone())),
                })
            }
        }
    }

    /// Records the end of a call.
    pub(crate) fn record(&self, class: CallClass, permit: &BreakerPermit) {
        let probe = permit.probe.is_some();
        match class {
            CallClass::Ignored => {}
            CallClass::Success => {
                self.successes.fetch_add(1, Ordering::Relaxed);
                // Read first: a store at each success would bounce the cache line between cores.
                if self.streak.load(Ordering::Relaxed) != 0 {
                    self.streak.store(0, Ordering::Relaxed);
                }
                if probe {
                    self.reset();
                }
            }
            CallClass::Failure(reason, wait) => self.record_failure(reason, wait, probe),
        }
    }

    fn record_failure(&self, reason: String, wait: Option<Duration>, probe: bool) {
        let mut inner = self.inner.lock();
        if inner.started.elapsed() >= WINDOW {
            (inner.started, inner.failures) = (Instant::now(), 0);
            self.successes.store(0, Ordering::Relaxed);
        }
        inner.failures += 1;
        let streak = self
            .streak
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let all = inner.failures + self.successes.load(Ordering::Relaxed);
        let limit = self.settings.failures;
        // A failed probe decides alone. A limit of zero disables the counts, but not `Retry-After`.
        let failing = limit > 0
            && (probe
                || streak >= limit
                || (all >= CALLS_MIN && inner.failures * 100 >= all * FAULTS_PERCENT));
        let failing = failing.then_some(self.settings.open.0);
        let asked = wait
            .map(|wait| wait.min(OPEN_TIME_MAX))
            .filter(|wait| !wait.is_zero());
        // The longer of the two times counts.
        if let Some(time) = failing.max(asked) {
            // Never 0, which means closed.
            let until = self.now_ms().saturating_add(millis(time)).max(1);
            // Calls that were sent before the breaker opened must not prolong it.
            if probe || self.remaining().is_none() {
                self.open_until_ms.store(until, Ordering::Release);
                (inner.started, inner.failures, inner.reason) = (Instant::now(), 0, reason);
                self.successes.store(0, Ordering::Relaxed);
                self.changed.notify_one();
            }
        }
    }

    /// Closes the breaker and forgets all failures. Called for each new connection.
    pub(crate) fn reset(&self) {
        let mut inner = self.inner.lock();
        self.streak.store(0, Ordering::Relaxed);
        self.successes.store(0, Ordering::Relaxed);
        (inner.started, inner.failures) = (Instant::now(), 0);
        if self.open_until_ms.swap(0, Ordering::AcqRel) != 0 {
            self.changed.notify_one();
        }
    }

    /// Returns the open state, if the breaker is open.
    pub(crate) fn open_state(&self) -> Option<OpenState> {
        let inner = self.inner.lock();
        self.remaining().map(|left| OpenState {
            reason: inner.reason.clone(),
            remaining: left,
        })
    }

    /// Waits until the breaker opens or closes.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn remaining(&self) -> Option<Duration> {
        let until = self.open_until_ms.load(Ordering::Acquire);
        (until != 0).then(|| Duration::from_millis(until.saturating_sub(self.now_ms())))
    }

    fn now_ms(&self) -> u64 {
        millis(self.epoch.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A probe that ended, or was abandoned by its client, makes room for the next one.
impl Drop for HalfOpenProbe {
    fn drop(&mut self) {
        self.0.inner.lock().probing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_units::DurationSetting;

    const OPEN: Duration = Duration::from_secs(10);

    fn breaker(failures: u32) -> Arc<CircuitBreaker> {
        CircuitBreaker::new(BreakerSettings {
            failures,
            open: DurationSetting(OPEN),
        })
    }

    fn fault(wait: Option<u64>) -> CallClass {
        CallClass::Failure("HTTP status 503".to_owned(), wait.map(Duration::from_secs))
    }

    fn send(breaker: &Arc<CircuitBreaker>, class: CallClass) -> bool {
        breaker
            .admit()
            .map(|permit| breaker.record(class, &permit))
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_it_and_a_probe_closes_it() {
        let breaker = breaker(3);
        // A success between the failures starts the count again.
        for _ in 0..2 {
            assert!(send(&breaker, fault(None)) && send(&breaker, fault(None)));
            assert!(send(&breaker, CallClass::Success), "a good call in between");
        }
        for _ in 0..3 {
            assert!(send(&breaker, fault(None)));
        }
        let shut = OpenState {
            reason: "HTTP status 503".to_owned(),
            remaining: OPEN,
        };
        assert_eq!(breaker.admit().err(), Some(shut));
        tokio::time::advance(OPEN).await;
        let probe = breaker.admit().ok().unwrap();
        assert!(probe.probe.is_some(), "one is let through");
        assert!(breaker.admit().is_err(), "and only one");
        breaker.record(fault(None), &probe);
        drop(probe);
        assert_eq!(
            breaker.admit().err().map(|shut| shut.remaining),
            Some(OPEN),
            "it still fails"
        );
        tokio::time::advance(OPEN).await;
        // The client of the probe went away before the end.
        drop(breaker.admit());
        assert!(send(&breaker, CallClass::Success));
        assert!(
            send(&breaker, fault(None)) && send(&breaker, CallClass::Success),
            "as before"
        );
        assert_eq!(breaker.open_state(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_and_client_errors_do_not_open_it() {
        let breaker = breaker(1);
        for _ in 0..100 {
            assert!(send(&breaker, CallClass::Success) && send(&breaker, CallClass::Ignored));
        }
        let off = self::breaker(0);
        for _ in 0..100 {
            assert!(send(&off, fault(None)), "it is switched off");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_of_failures_opens_it_too() {
        let breaker = breaker(1000);
        // Nine of ten calls fail.
        let mut sent = 0;
        while send(
            &breaker,
            if sent % 10 == 0 {
                CallClass::Success
            } else {
                fault(None)
            },
        ) {
            sent += 1;
            assert!(sent < 100);
        }
        assert!(sent >= CALLS_MIN, "{sent}");
        // Half of the calls fail, which is below the limit.
        let half = self::breaker(1000);
        for n in 0..1000 {
            assert!(
                send(
                    &half,
                    if n % 2 == 0 {
                        CallClass::Success
                    } else {
                        fault(None)
                    }
                ),
                "half of the calls are served"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_opens_the_breaker_up_to_a_cap() {
        // The time that the server asks for, and the time that it gets.
        for (asked, waited) in [(2, 2), (1_000_000_000, 60)] {
            let breaker = breaker(1000);
            assert!(send(&breaker, fault(Some(0))), "that is no wish");
            assert!(send(&breaker, fault(Some(asked))));
            assert_eq!(
                breaker.admit().err().map(|shut| shut.remaining),
                Some(Duration::from_secs(waited))
            );
            tokio::time::advance(Duration::from_secs(waited)).await;
            assert!(send(&breaker, CallClass::Success));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_begins_anew() {
        let breaker = breaker(1);
        assert!(send(&breaker, fault(None)));
        assert!(breaker.admit().is_err());
        // One wake-up for the opening, one for the reset.
        breaker.changed().await;
        breaker.reset();
        breaker.changed().await;
        assert!(send(&breaker, CallClass::Success));
    }
}
