//! Calls to a server that keeps failing end at once.
//!
//! Owns the decision whether a call is sent at all: after so many transport faults in a row, or where most calls fail, or
//! where the server asks to wait, calls are shut out for a while; then one is let through to see. Knows faults only as
//! such. Invariant: what a server answers, an error included, never shuts anybody out, and one that fails is not asked
//! more than once in that while.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::upstream::settings::BreakerSettings;

/// Faults are also counted over this time,
const WINDOW: Duration = Duration::from_secs(30);
/// and where there were at least so many calls,
const CALLS_MIN: u64 = 20;
/// of which so many in a hundred failed, others are shut out.
const FAULTS_PERCENT: u64 = 80;
/// The longest that calls are kept from a server because it asks for that.
pub(super) const OPEN_TIME_MAX: Duration = Duration::from_secs(60);

/// The breaker of one server.
pub(super) struct CircuitBreaker {
    settings: BreakerSettings,
    epoch: Instant,
    /// Until when calls are shut out, in milliseconds since the epoch; 0: they are not.
    open_until_ms: AtomicU64,
    /// Faults without a good call in between.
    streak: AtomicU32,
    /// Good calls of this window.
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

/// A call may be sent.
#[derive(Default)]
pub(super) struct BreakerPermit {
    /// Whether it is the one that is let through to see whether others may be.
    probe: Option<HalfOpenProbe>,
}

struct HalfOpenProbe(Arc<CircuitBreaker>);

/// Calls are shut out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OpenState {
    /// Why.
    pub(super) reason: String,
    /// For how long.
    pub(super) remaining: Duration,
}

/// What a call showed of its server.
#[derive(Debug, PartialEq)]
pub(super) enum CallClass {
    /// It is there and answers.
    Success,
    /// It failed as a whole, and perhaps said for how long to leave it alone.
    Failure(String, Option<Duration>),
    /// Nothing.
    Ignored,
}

impl CircuitBreaker {
    pub(super) fn new(settings: BreakerSettings) -> Arc<Self> {
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

    /// Whether a call may be sent now.
    pub(super) fn admit(self: &Arc<Self>) -> Result<BreakerPermit, OpenState> {
        if self.open_until_ms.load(Ordering::Acquire) == 0 {
            return Ok(BreakerPermit::default());
        }
        let mut inner = self.lock();
        match self.remaining() {
            None => Ok(BreakerPermit::default()),
            Some(left) if !left.is_zero() || inner.probing => {
                Err(OpenState { reason: inner.reason.clone(), remaining: left })
            }
            Some(_) => {
                inner.probing = true;
                Ok(BreakerPermit { probe: Some(HalfOpenProbe(self.clone())) })
            }
        }
    }

    /// A call ended.
    pub(super) fn record(&self, verdict: CallClass, pass: &BreakerPermit) {
        let probe = pass.probe.is_some();
        match verdict {
            CallClass::Ignored => {}
            CallClass::Success => {
                self.successes.fetch_add(1, Ordering::Relaxed);
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
        let mut inner = self.lock();
        if inner.started.elapsed() >= WINDOW {
            (inner.started, inner.failures) = (Instant::now(), 0);
            self.successes.store(0, Ordering::Relaxed);
        }
        inner.failures += 1;
        let streak = self.streak.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let all = inner.failures + self.successes.load(Ordering::Relaxed);
        let limit = self.settings.failures;
        let failing = limit > 0
            && (probe || streak >= limit || (all >= CALLS_MIN && inner.failures * 100 >= all * FAULTS_PERCENT));
        let failing = failing.then_some(self.settings.open);
        let asked = wait.map(|wait| wait.min(OPEN_TIME_MAX)).filter(|wait| !wait.is_zero());
        if let Some(time) = failing.max(asked) {
            let until = self.now_ms().saturating_add(millis(time)).max(1);
            // Late ends of calls that were sent before make it no longer.
            if probe || self.remaining().is_none() {
                self.open_until_ms.store(until, Ordering::Release);
                (inner.started, inner.failures, inner.reason) = (Instant::now(), 0, reason);
                self.successes.store(0, Ordering::Relaxed);
                self.changed.notify_one();
            }
        }
    }

    /// As if nothing had been: it is another connection.
    pub(super) fn reset(&self) {
        let mut inner = self.lock();
        self.streak.store(0, Ordering::Relaxed);
        self.successes.store(0, Ordering::Relaxed);
        (inner.started, inner.failures) = (Instant::now(), 0);
        if self.open_until_ms.swap(0, Ordering::AcqRel) != 0 {
            self.changed.notify_one();
        }
    }

    /// Why and for how long calls are shut out, if they are.
    pub(super) fn open_state(&self) -> Option<OpenState> {
        let inner = self.lock();
        self.remaining().map(|left| OpenState { reason: inner.reason.clone(), remaining: left })
    }

    /// Waits until calls are shut out, or let in again.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn remaining(&self) -> Option<Duration> {
        let until = self.open_until_ms.load(Ordering::Acquire);
        (until != 0).then(|| Duration::from_millis(until.saturating_sub(self.now_ms())))
    }

    fn now_ms(&self) -> u64 {
        millis(self.epoch.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, BreakerWindow> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// However it ended, or if nobody waited for its end: another may be sent to see.
impl Drop for HalfOpenProbe {
    fn drop(&mut self) {
        self.0.lock().probing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Duration = Duration::from_secs(10);

    fn breaker(failures: u32) -> Arc<CircuitBreaker> {
        CircuitBreaker::new(BreakerSettings { failures, open: OPEN })
    }

    fn fault(wait: Option<u64>) -> CallClass {
        CallClass::Failure("HTTP status 503".to_owned(), wait.map(Duration::from_secs))
    }

    fn send(breaker: &Arc<CircuitBreaker>, verdict: CallClass) -> bool {
        breaker.admit().map(|pass| breaker.record(verdict, &pass)).is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn faults_in_a_row_shut_it_and_one_call_opens_it() {
        let breaker = breaker(3);
        for _ in 0..2 {
            assert!(send(&breaker, fault(None)) && send(&breaker, fault(None)));
            assert!(send(&breaker, CallClass::Success), "a good call in between");
        }
        for _ in 0..3 {
            assert!(send(&breaker, fault(None)));
        }
        let shut = OpenState { reason: "HTTP status 503".to_owned(), remaining: OPEN };
        assert_eq!(breaker.admit().err(), Some(shut));
        tokio::time::advance(OPEN).await;
        let probe = breaker.admit().ok().unwrap();
        assert!(probe.probe.is_some(), "one is let through");
        assert!(breaker.admit().is_err(), "and only one");
        breaker.record(fault(None), &probe);
        drop(probe);
        assert_eq!(breaker.admit().err().map(|shut| shut.remaining), Some(OPEN), "it still fails");
        tokio::time::advance(OPEN).await;
        // Its client went away before there was an end.
        drop(breaker.admit());
        assert!(send(&breaker, CallClass::Success));
        assert!(send(&breaker, fault(None)) && send(&breaker, CallClass::Success), "as before");
        assert_eq!(breaker.open_state(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_and_the_clients_own_errors_shut_nothing() {
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
    async fn a_share_of_faults_shuts_it_too() {
        let breaker = breaker(1000);
        let mut sent = 0;
        while send(&breaker, if sent % 10 == 0 { CallClass::Success } else { fault(None) }) {
            sent += 1;
            assert!(sent < 100);
        }
        assert!(sent >= CALLS_MIN, "{sent}");
        let half = self::breaker(1000);
        for n in 0..1000 {
            assert!(
                send(&half, if n % 2 == 0 { CallClass::Success } else { fault(None) }),
                "half of the calls are served"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_to_wait_is_left_alone_within_reason() {
        for (asked, waited) in [(2, 2), (1_000_000_000, 60)] {
            let breaker = breaker(1000);
            assert!(send(&breaker, fault(Some(0))), "that is no wish");
            assert!(send(&breaker, fault(Some(asked))));
            assert_eq!(breaker.admit().err().map(|shut| shut.remaining), Some(Duration::from_secs(waited)));
            tokio::time::advance(Duration::from_secs(waited)).await;
            assert!(send(&breaker, CallClass::Success));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_begins_anew() {
        let breaker = breaker(1);
        assert!(send(&breaker, fault(None)));
        assert!(breaker.admit().is_err());
        breaker.changed().await;
        breaker.reset();
        breaker.changed().await;
        assert!(send(&breaker, CallClass::Success));
    }
}
