//! How fast the gateway answers a server's own requests, and the count of them.
//!
//! Owns the rate. Does not send. Invariant: no server gets more than [`PER_SECOND`] answers a second after a first
//! [`AT_ONCE`], so that one that asks in a loop costs next to nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::telemetry::{Metrics, ServerRequests};

/// Answers a second.
const PER_SECOND: u32 = 1000;
/// Answers that go out without a pause after a quiet time.
const BURST: u32 = 100;

/// The turns of answers.
#[derive(Debug, Default)]
pub struct ReplyRateLimit(Mutex<Option<Instant>>);

impl ReplyRateLimit {
    /// Waits for the turn of one answer. True: it had to.
    pub async fn wait_turn(&self) -> bool {
        let Some(at) = self.reserve_slot(Instant::now()) else { return false };
        sleep_until(at).await;
        true
    }

    /// Takes a turn; `None`: it is now.
    fn reserve_slot(&self, now: Instant) -> Option<Instant> {
        let step = Duration::from_secs(1) / PER_SECOND;
        let mut paid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Until when all turns that were taken would last, one at a time.
        let until = paid.map_or(now, |until| until.max(now)) + step;
        *paid = Some(until);
        (until > now + step * BURST).then(|| until - step * BURST)
    }
}

/// Counts the requests of one server that the gateway answers by itself.
#[derive(Clone)]
pub struct ReplyMeter {
    server: String,
    requests: ServerRequests,
}

impl ReplyMeter {
    /// Of this server.
    pub fn new(server: &str, metrics: &Metrics) -> Self {
        ReplyMeter { server: server.to_owned(), requests: metrics.server_requests.clone() }
    }

    /// One was answered. `late`: the server had to wait, since it asks too much.
    pub fn answered(&self, late: bool) {
        self.count(if late { "delayed" } else { "answered" });
    }

    /// One gets no answer: the server takes none.
    pub fn dropped(&self) {
        self.count("dropped");
    }

    fn count(&self, outcome: &str) {
        self.requests.with_label_values(&[&self.server, outcome]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_paced_after_the_first_hundred() {
        let (pace, start) = (ReplyRateLimit::default(), Instant::now());
        for _ in 0..BURST {
            assert!(!pace.wait_turn().await);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 * PER_SECOND {
            pace.wait_turn().await;
        }
        assert!(start.elapsed() >= Duration::from_secs(10), "{:?}", start.elapsed());
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!pace.wait_turn().await, "a quiet time makes it good");
    }
}
