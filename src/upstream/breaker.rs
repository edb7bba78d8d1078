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
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);

/// The breaker of one server.
pub(super) struct Breaker {
    settings: BreakerSettings,
    epoch: Instant,
    /// Until when calls are shut out, in milliseconds since the epoch; 0: they are not.
    until_ms: AtomicU64,
    /// Faults without a good call in between.
    streak: AtomicU32,
    /// Good calls of this window.
    good: AtomicU64,
    inner: Mutex<Inner>,
    changed: Notify,
}

struct Inner {
    window: Instant,
    faults: u64,
    probing: bool,
    reason: String,
}

/// A call may be sent.
#[derive(Default)]
pub(super) struct Pass {
    /// Whether it is the one that is let through to see whether others may be.
    probe: Option<Probe>,
}

struct Probe(Arc<Breaker>);

/// Calls are shut out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shut {
    /// Why.
    pub(super) reason: String,
    /// For how long.
    pub(super) left: Duration,
}

/// What a call showed of its server.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is there and answers.
    Good,
    /// It failed as a whole, and perhaps said for how long to leave it alone.
    Fault(String, Option<Duration>),
    /// Nothing.
    Nothing,
}

impl Breaker {
    pub(super) fn new(settings: BreakerSettings) -> Arc<Self> {
        Arc::new(Breaker {
            settings,
            epoch: Instant::now(),
            until_ms: AtomicU64::new(0),
            streak: AtomicU32::new(0),
            good: AtomicU64::new(0),
            inner: Mutex::new(Inner { window: Instant::now(), faults: 0, probing: false, reason: String::new() }),
            changed: Notify::new(),
        })
    }

    /// Whether a call may be sent now.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Pass, Shut> {
        if self.until_ms.load(Ordering::Acquire) == 0 {
            return Ok(Pass::default());
        }
        let mut inner = self.lock();
        match self.left() {
            None => Ok(Pass::default()),
            Some(left) if !left.is_zero() || inner.probing => Err(Shut { reason: inner.reason.clone(), left }),
            Some(_) => {
                inner.probing = true;
                Ok(Pass { probe: Some(Probe(self.clone())) })
            }
        }
    }

    /// A call ended.
    pub(super) fn record(&self, verdict: Verdict, pass: &Pass) {
        let probe = pass.probe.is_some();
        match verdict {
            Verdict::Nothing => {}
            Verdict::Good => {
                self.good.fetch_add(1, Ordering::Relaxed);
                if self.streak.load(Ordering::Relaxed) != 0 {
                    self.streak.store(0, Ordering::Relaxed);
                }
                if probe {
                    self.reset();
                }
            }
            Verdict::Fault(reason, wait) => self.fault(reason, wait, probe),
        }
    }

    fn fault(&self, reason: String, wait: Option<Duration>, probe: bool) {
        let mut inner = self.lock();
        if inner.window.elapsed() >= WINDOW {
            (inner.window, inner.faults) = (Instant::now(), 0);
            self.good.store(0, Ordering::Relaxed);
        }
        inner.faults += 1;
        let streak = self.streak.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let all = inner.faults + self.good.load(Ordering::Relaxed);
        let limit = self.settings.failures;
        let failing =
            limit > 0 && (probe || streak >= limit || (all >= CALLS_MIN && inner.faults * 100 >= all * FAULTS_PERCENT));
        let failing = failing.then_some(self.settings.open);
        let asked = wait.map(|wait| wait.min(WAIT_MAX)).filter(|wait| !wait.is_zero());
        if let Some(time) = failing.max(asked) {
            let until = self.now_ms().saturating_add(millis(time)).max(1);
            // Late ends of calls that were sent before make it no longer.
            if probe || self.left().is_none() {
                self.until_ms.store(until, Ordering::Release);
                (inner.window, inner.faults, inner.reason) = (Instant::now(), 0, reason);
                self.good.store(0, Ordering::Relaxed);
                self.changed.notify_one();
            }
        }
    }

    /// As if nothing had been: it is another connection.
    pub(super) fn reset(&self) {
        let mut inner = self.lock();
        self.streak.store(0, Ordering::Relaxed);
        self.good.store(0, Ordering::Relaxed);
        (inner.window, inner.faults) = (Instant::now(), 0);
        if self.until_ms.swap(0, Ordering::AcqRel) != 0 {
            self.changed.notify_one();
        }
    }

    /// Why and for how long calls are shut out, if they are.
    pub(super) fn shut(&self) -> Option<Shut> {
        let inner = self.lock();
        self.left().map(|left| Shut { reason: inner.reason.clone(), left })
    }

    /// Waits until calls are shut out, or let in again.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn left(&self) -> Option<Duration> {
        let until = self.until_ms.load(Ordering::Acquire);
        (until != 0).then(|| Duration::from_millis(until.saturating_sub(self.now_ms())))
    }

    fn now_ms(&self) -> u64 {
        millis(self.epoch.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// However it ended, or if nobody waited for its end: another may be sent to see.
impl Drop for Probe {
    fn drop(&mut self) {
        self.0.lock().probing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Duration = Duration::from_secs(10);

    fn breaker(failures: u32) -> Arc<Breaker> {
        Breaker::new(BreakerSettings { failures, open: OPEN })
    }

    fn fault(wait: Option<u64>) -> Verdict {
        Verdict::Fault("HTTP status 503".to_owned(), wait.map(Duration::from_secs))
    }

    fn send(breaker: &Arc<Breaker>, verdict: Verdict) -> bool {
        breaker.admit().map(|pass| breaker.record(verdict, &pass)).is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn faults_in_a_row_shut_it_and_one_call_opens_it() {
        let breaker = breaker(3);
        for _ in 0..2 {
            assert!(send(&breaker, fault(None)) && send(&breaker, fault(None)));
            assert!(send(&breaker, Verdict::Good), "a good call in between");
        }
        for _ in 0..3 {
            assert!(send(&breaker, fault(None)));
        }
        let shut = Shut { reason: "HTTP status 503".to_owned(), left: OPEN };
        assert_eq!(breaker.admit().err(), Some(shut));
        tokio::time::advance(OPEN).await;
        let probe = breaker.admit().ok().unwrap();
        assert!(probe.probe.is_some(), "one is let through");
        assert!(breaker.admit().is_err(), "and only one");
        breaker.record(fault(None), &probe);
        drop(probe);
        assert_eq!(breaker.admit().err().map(|shut| shut.left), Some(OPEN), "it still fails");
        tokio::time::advance(OPEN).await;
        // Its client went away before there was an end.
        drop(breaker.admit());
        assert!(send(&breaker, Verdict::Good));
        assert!(send(&breaker, fault(None)) && send(&breaker, Verdict::Good), "as before");
        assert_eq!(breaker.shut(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_and_the_clients_own_errors_shut_nothing() {
        let breaker = breaker(1);
        for _ in 0..100 {
            assert!(send(&breaker, Verdict::Good) && send(&breaker, Verdict::Nothing));
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
        while send(&breaker, if sent % 10 == 0 { Verdict::Good } else { fault(None) }) {
            sent += 1;
            assert!(sent < 100);
        }
        assert!(sent >= CALLS_MIN, "{sent}");
        let half = self::breaker(1000);
        for n in 0..1000 {
            assert!(send(&half, if n % 2 == 0 { Verdict::Good } else { fault(None) }), "half of the calls are served");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_to_wait_is_left_alone_within_reason() {
        for (asked, waited) in [(2, 2), (1_000_000_000, 60)] {
            let breaker = breaker(1000);
            assert!(send(&breaker, fault(Some(0))), "that is no wish");
            assert!(send(&breaker, fault(Some(asked))));
            assert_eq!(breaker.admit().err().map(|shut| shut.left), Some(Duration::from_secs(waited)));
            tokio::time::advance(Duration::from_secs(waited)).await;
            assert!(send(&breaker, Verdict::Good));
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
        assert!(send(&breaker, Verdict::Good));
    }
}
