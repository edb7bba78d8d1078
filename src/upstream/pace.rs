//! When a server is tried again.
//!
//! Owns the pauses between attempts, and who may end them early. Does not connect and does not wait. Invariant: there are
//! never more than [`BUDGET`] attempts in any [`WINDOW`], however they fail and whoever calls, and there is always a next one.
//! The last of them are spread over what is left of that time: short pauses spend the first ones in a second, and a server
//! that is back a moment later must not be left alone for a minute.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::json::Text;
use crate::link::LinkError;
use crate::random;
use crate::revision::ConnectError;
use crate::telemetry::logs;
use crate::upstream::State;
use crate::upstream::settings::Backoff;

/// Attempts in any [`WINDOW`].
pub(super) const BUDGET: usize = 8;
/// How many of them are made as soon as the pauses allow.
const FREE: usize = 6;
/// See [`BUDGET`].
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// The pause after a failure that repeating will not mend, and the longest that a server can ask for.
const PARKED: Duration = Duration::from_secs(300);
/// A call ends a pause early, but not sooner after the last attempt than this.
const WAKE: Duration = Duration::from_secs(10);
/// The same where repeating will not mend it: somebody may have changed something meanwhile.
const WAKE_PARKED: Duration = Duration::from_secs(30);
/// After so long without a failure, the pauses begin small again.
pub(super) const HEALTHY: Duration = Duration::from_secs(30);
/// Connections of single clients whose pauses are remembered for one server; of more, those that may be tried again first
/// are forgotten.
const RESTING_MAX: usize = 1024;

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
        spread(self.attempts.iter().copied(), FREE, BUDGET, now)
    }

    fn pause(&self) -> Duration {
        pause(self.backoff, self.failures)
    }
}

/// Before when there is no attempt after those that were made: the first are free, the last are spread over what is left
/// of the time.
pub(super) fn spread(attempts: impl Iterator<Item = Instant>, free: usize, budget: usize, now: Instant) -> Instant {
    let counted: Vec<Instant> = attempts.filter(|attempt| *attempt + WINDOW > now).collect();
    // Where there were more than may be, the first of those that count is not the first of all.
    let counted = &counted[counted.len().saturating_sub(budget)..];
    let (made, [first, .., last] | [first @ last]) = (counted.len(), counted) else { return now };
    if made < free {
        return now;
    }
    // The whole rest of the time where this was the last attempt, half of it where one is left, and so on.
    let shares = u32::try_from(budget - made).unwrap_or(0) + 1;
    (*last + (*first + WINDOW).duration_since(*last) / shares).max(now)
}

/// The pauses of one server's connections for single clients, by what each is found by. They are opened on use, and by
/// nothing else.
#[derive(Default)]
pub(super) struct Paces {
    resting: HashMap<Text, (Pace, Pause)>,
    /// Why the last one failed, or was lost.
    last: Option<Arc<str>>,
    /// Its program cannot be started, for whomever: that is no matter of one connection.
    unstartable: Option<Pause>,
}

/// A pause of such a connection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pause {
    /// Why.
    pub(super) reason: Arc<str>,
    /// There is no attempt before this.
    pub(super) until: Instant,
    /// Calls wait for that where it is no later than this: the connection was lost a moment ago.
    patience: Option<Instant>,
}

impl Pause {
    /// Whether a call waits for its end, rather than hearing of it.
    pub(super) fn is_waited_for(&self) -> bool {
        self.patience.is_some_and(|patience| self.until <= patience)
    }
}

impl Paces {
    /// An attempt begins, unless it is too soon for that.
    pub(super) fn begin(&mut self, key: &Text, backoff: Backoff, now: Instant) -> Result<Pace, Pause> {
        let own = self.resting.get(key).map(|(_, pause)| pause);
        if let Some(pause) = self.unstartable.iter().chain(own).find(|pause| pause.until > now) {
            return Err(pause.clone());
        }
        // One finds out for all whether it can be started by now.
        if let Some(pause) = &mut self.unstartable {
            pause.until = now + WAKE;
        }
        let mut pace = self.resting.remove(key).map_or_else(|| Pace::new(backoff), |(pace, _)| pace);
        pace.attempt(now);
        Ok(pace)
    }

    /// A pause that others caused: all attempts of a minute were made.
    pub(super) fn spent(&self, until: Instant) -> Pause {
        let last = self.last.clone().unwrap_or_else(|| "other connections to it fail".into());
        Pause { reason: last, until, patience: None }
    }

    /// An attempt succeeded.
    pub(super) fn opened(&mut self) {
        self.unstartable = None;
    }

    /// An attempt failed.
    pub(super) fn failed(&mut self, key: &Text, mut pace: Pace, error: &ConnectError, now: Instant) -> Pause {
        let rest = pace.failed(error, now);
        // Nobody tries before a call needs it, so that the pause ends where a call may end it.
        let pause = Pause { reason: logs::one_line(&error.to_string()).into(), until: rest.wake, patience: None };
        let unstartable = matches!(error, ConnectError::Link(LinkError::Unstartable(_)));
        self.unstartable = unstartable.then(|| pause.clone());
        self.rest(key, pace, pause.clone(), now);
        pause
    }

    /// What was tried says nothing of what is tried next.
    pub(super) fn forgive(&mut self, key: &Text) {
        self.resting.remove(key);
    }

    /// A connection that was up for so long was lost; calls have this much patience.
    pub(super) fn lost(&mut self, key: &Text, mut pace: Pace, up: Duration, reason: &str, patience: Duration) {
        let now = Instant::now();
        let until = pace.lost(up, now).wake;
        let pause = Pause { reason: logs::one_line(reason).into(), until, patience: Some(now + patience) };
        self.rest(key, pace, pause, now);
    }

    fn rest(&mut self, key: &Text, pace: Pace, pause: Pause, now: Instant) {
        // A pause that is over still counts what was tried before it.
        self.resting
            .retain(|_, (pace, pause)| pause.until.max(pace.attempts.back().map_or(now, |last| *last + WINDOW)) > now);
        if self.resting.len() >= RESTING_MAX && !self.resting.contains_key(key) {
            let first = self.resting.iter().min_by_key(|(_, (_, pause))| pause.until).map(|(key, _)| key.clone());
            first.and_then(|key| self.resting.remove(&key));
        }
        self.last = Some(pause.reason.clone());
        self.resting.insert(key.clone(), (pace, pause));
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

    #[tokio::test(start_paused = true)]
    async fn a_connection_rests_alone_unless_nobody_could_be_started() {
        let (mut paces, one, other) = (Paces::default(), Text::literal("one"), Text::literal("other"));
        let fail = |paces: &mut Paces, key: &Text, error: &ConnectError| {
            let pace = paces.begin(key, backoff(), Instant::now()).unwrap();
            paces.failed(key, pace, error, Instant::now())
        };
        let pause = fail(&mut paces, &one, &status(401, None));
        let began = |paces: &mut Paces, key: &Text| paces.begin(key, backoff(), Instant::now()).map(drop);
        assert_eq!(began(&mut paces, &one), Err(pause), "refused credentials are one client's");
        assert!(began(&mut paces, &other).is_ok());
        paces.forgive(&one);
        assert!(began(&mut paces, &one).is_ok(), "it was tried in the wrong era");
        let unstartable = LinkError::Unstartable("no such command".to_owned()).into();
        let pause = fail(&mut paces, &other, &unstartable);
        let third = Text::literal("third");
        assert_eq!(began(&mut paces, &third), Err(pause.clone()));
        tokio::time::advance(pause.until - Instant::now()).await;
        assert!(began(&mut paces, &third).is_ok());
        assert!(began(&mut paces, &other).is_err(), "one tries for all");
        paces.opened();
        assert!(began(&mut paces, &other).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_rests_is_bounded_and_forgotten_in_time() {
        let mut paces = Paces::default();
        for n in 0..RESTING_MAX + 10 {
            let key = Text::from(format!("{n}"));
            let pace = paces.begin(&key, backoff(), Instant::now()).unwrap();
            paces.failed(&key, pace, &refused(), Instant::now());
        }
        assert_eq!(paces.resting.len(), RESTING_MAX);
        tokio::time::advance(WINDOW).await;
        let key = Text::literal("last");
        let pace = paces.begin(&key, backoff(), Instant::now()).unwrap();
        paces.lost(&key, pace, Duration::ZERO, "gone", WINDOW);
        assert_eq!(paces.resting.len(), 1);
        assert!(paces.begin(&key, backoff(), Instant::now()).err().is_some_and(|pause| pause.is_waited_for()));
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
