//! Turns of list requests to servers that announce no changes. Owns their rate over all servers.
//! Does not poll (`lists/polls.rs`). Invariant: at most [`POLLS_PER_SECOND`] requests start in a
//! second, however many servers there are.

use parking_lot::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Limit of requests in a second, over all servers.
const POLLS_PER_SECOND: u32 = 10;

/// Turns of all servers' polls.
#[derive(Default)]
pub(crate) struct PollTurns {
    next: Mutex<Option<Instant>>,
}

impl PollTurns {
    /// Reserves the next turn for so many requests. Returns its time.
    pub(crate) fn reserve(&self, requests: usize) -> Instant {
        let mut next = self.next.lock();
        let now = Instant::now();
        let turn = next.map_or(now, |next| next.max(now));
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        *next = Some(turn + (Duration::from_secs(1) / POLLS_PER_SECOND).saturating_mul(requests));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn polls_of_many_servers_are_spread() {
        let turns = PollTurns::default();
        let began = Instant::now();
        let reserved: Vec<Duration> = (0..100).map(|_| turns.reserve(1) - began).collect();
        assert_eq!(reserved[0], Duration::ZERO);
        assert_eq!(reserved[99], Duration::from_millis(9_900));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(
            turns.reserve(4),
            Instant::now(),
            "what was not used is not saved up"
        );
        assert_eq!(
            turns.reserve(1) - Instant::now(),
            Duration::from_millis(400)
        );
    }
}
