//! Retry of a token that was refused while it was new.
//!
//! Owns when it is due. Does not connect. Invariant: at most one retry happens in five minutes, so
//! a server that refuses every token is hardly tried more often.

use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between two retries: the pause of a server that refuses a credential.
const RETRY_PAUSE: Duration = Duration::from_secs(300);

/// Retry of a new token.
#[derive(Debug, Default)]
pub(super) struct RefusalRetry {
    due: Option<Instant>,
    last: Option<Instant>,
}

impl RefusalRetry {
    /// Schedules a retry after this time, unless the last one was a moment ago.
    pub(super) fn plan(&mut self, wait: Duration) {
        let is_early = self.last.is_some_and(|last| last.elapsed() < RETRY_PAUSE);
        if !is_early {
            self.due.get_or_insert(Instant::now() + wait);
        }
    }

    /// Returns true once when the retry is due.
    pub(super) fn take(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.due = None;
            self.last = Some(now);
        }
        is_due
    }
}
