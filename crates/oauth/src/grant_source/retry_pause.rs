//! Pause after a failed renewal.
//!
//! Owns how long it is. Does not wait. Invariant: an authorization server that is down is asked at
//! most once in five seconds, however many requests need its token.

use std::time::Duration;

use tokio::time::Instant;

/// Pause after the first failure. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Pause until the next attempt.
#[derive(Debug, Default)]
pub(super) struct RetryPause {
    last: Duration,
    until: Option<Instant>,
}

impl RetryPause {
    /// Starts a pause, and returns how long it is.
    pub(super) fn start(&mut self) -> Duration {
        self.last = (self.last * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.until = Some(Instant::now() + self.last);
        self.last
    }

    /// Returns true until the next attempt may start.
    pub(super) fn is_active(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_five_minutes() {
        let mut pause = RetryPause::default();
        assert!(!pause.is_active());
        for seconds in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(pause.start(), Duration::from_secs(seconds));
            tokio::time::advance(Duration::from_secs(seconds - 1)).await;
            assert!(pause.is_active());
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(!pause.is_active());
        }
    }
}
