//! Lifetime of a session: its uses and its end.
//!
//! Owns the idle time and the token of the end. Does not decide who expires. Invariant: a session
//! with an open activity is never idle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Clock of all sessions of one table.
#[derive(Clone, Copy)]
pub(super) struct SessionClock(Instant);

impl SessionClock {
    pub(super) fn start() -> Self {
        SessionClock(Instant::now())
    }

    pub(super) fn now_ms(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Uses and end of one session.
pub(super) struct SessionLifetime {
    /// Cancelled when the session ends.
    pub(super) ended: CancellationToken,
    clock: SessionClock,
    used_ms: AtomicU64,
    activities: AtomicU64,
    streams: AtomicU64,
    /// Time of the beginning, in milliseconds since 1970. The wall clock, since a session may
    /// outlive the process.
    began: u64,
}

impl SessionLifetime {
    pub(super) fn new(clock: SessionClock, ended: CancellationToken, began: u64) -> Self {
        let used_ms = AtomicU64::new(clock.now_ms());
        let activities = AtomicU64::new(0);
        let streams = AtomicU64::new(0);
        SessionLifetime {
            ended,
            clock,
            used_ms,
            activities,
            streams,
            began,
        }
    }

    /// Returns the time of the beginning, in milliseconds since 1970.
    pub(super) fn began(&self) -> u64 {
        self.began
    }

    /// Marks the session as used now.
    pub(super) fn mark_active(&self) {
        // Relaxed: the value orders nothing, and a lost race is wrong by less than a request takes.
        self.used_ms.store(self.clock.now_ms(), Ordering::Relaxed);
    }

    pub(super) fn begin_activity(&self) {
        self.activities.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_activity(&self) {
        // Idle time starts here, not at the last request.
        self.mark_active();
        self.activities.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn begin_stream(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_stream(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of open streams, apart from those of calls.
    pub(super) fn streams(&self) -> u64 {
        self.streams.load(Ordering::Relaxed)
    }

    /// Returns the last use, on the table's clock.
    pub(super) fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.activities.load(Ordering::Relaxed) == 0
    }

    /// Returns true if the session has been idle for this long. `now_ms` is the time on the table's
    /// clock.
    pub(super) fn is_idle_for(&self, time: Duration, now_ms: u64) -> bool {
        self.is_idle() && Duration::from_millis(now_ms.saturating_sub(self.used_ms())) >= time
    }

    /// Returns the time since the last use. An open activity counts as a use now.
    pub(super) fn idle_time(&self) -> Duration {
        if !self.is_idle() {
            return Duration::ZERO;
        }
        Duration::from_millis(self.clock.now_ms().saturating_sub(self.used_ms()))
    }
}
