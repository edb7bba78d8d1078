//! Rate limit and counter of the gateway's own replies to server requests.
//!
//! Owns the rate. Does not send. Invariant: after a first [`BURST`], a server gets at most
//! [`PER_SECOND`] replies a second. A server that asks in a loop costs next to nothing.

use parking_lot::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use moongate_telemetry::{ByServer, CounterFamily, Metrics, ReplyOutcome};

/// Limit of replies in a second.
const PER_SECOND: u32 = 1000;
/// Replies sent without delay after a quiet time.
const BURST: u32 = 100;

/// Schedule of replies: the time until which past replies use up the rate.
#[derive(Debug, Default)]
pub struct ReplyRateLimit(Mutex<Option<Instant>>);

impl ReplyRateLimit {
    /// Waits for the slot of one reply. True if it had to wait.
    pub async fn wait_turn(&self) -> bool {
        let Some(slot_time) = self.reserve_slot(Instant::now()) else {
            return false;
        };
        sleep_until(slot_time).await;
        true
    }

    /// Reserves a slot and returns its time. `None` if it is now.
    fn reserve_slot(&self, now: Instant) -> Option<Instant> {
        let step = Duration::from_secs(1) / PER_SECOND;
        let mut reserved_until = self.0.lock();
        // Time at which all reserved slots would end, one after another.
        let until = reserved_until.map_or(now, |until| until.max(now)) + step;
        // A virtual clock (GCRA): no task refills the allowance.
        *reserved_until = Some(until);
        (until > now + step * BURST).then(|| until - step * BURST)
    }
}

/// Counter of server requests that the gateway answers itself.
#[derive(Clone)]
pub struct ReplyMeter {
    server: String,
    requests: CounterFamily<(ByServer, ReplyOutcome)>,
}

impl ReplyMeter {
    /// Creates a counter for this server.
    pub fn new(server: &str, metrics: &Metrics) -> Self {
        ReplyMeter {
            server: server.to_owned(),
            requests: metrics.servers.requests.clone(),
        }
    }

    /// Counts a reply. `late` is true if the server asks too often and had to wait.
    pub fn record_answered(&self, was_delayed: bool) {
        self.count(if was_delayed {
            ReplyOutcome::Delayed
        } else {
            ReplyOutcome::Answered
        });
    }

    /// Counts a request without a reply: the server reads none.
    pub fn record_dropped(&self) {
        self.count(ReplyOutcome::Dropped);
    }

    fn count(&self, outcome: ReplyOutcome) {
        self.requests.inc((&*self.server, outcome));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_paced_after_the_first_hundred() {
        let pace = ReplyRateLimit::default();
        let start = Instant::now();
        for _ in 0..BURST {
            assert!(!pace.wait_turn().await);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 * PER_SECOND {
            pace.wait_turn().await;
        }
        assert!(
            start.elapsed() >= Duration::from_secs(10),
            "{:?}",
            start.elapsed()
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!pace.wait_turn().await, "a quiet time makes it good");
    }
}
