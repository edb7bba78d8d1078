//! Failures to accept a connection.
//!
//! Owns the pause after each, and the log line about them. Does not choose who makes room
//! (`eviction.rs`). Invariant: however many attempts fail, there is at most one line a minute, and
//! no loop without a pause.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use moongate_platform::open_files;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ConnectionLimit;

/// Pause after a failure, if nothing can be done about it.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for evicted connections to end. Those without an admitted request end at once.
const EVICTION_PAUSE: Duration = Duration::from_millis(10);
/// Minimum time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Failures of one listener.
pub(super) struct AcceptFailures {
    limit: Arc<ConnectionLimit>,
    logged: Mutex<LoggedFailures>,
}

#[derive(Default)]
struct LoggedFailures {
    last: Option<Instant>,
    /// Failures since the last line.
    suppressed: u64,
}

impl AcceptFailures {
    pub(super) fn new(limit: Arc<ConnectionLimit>) -> Self {
        AcceptFailures {
            limit,
            logged: Mutex::default(),
        }
    }

    /// Logs a failure and waits. Without free files, connections make room, as they do at the
    /// limit.
    pub(super) async fn handle(&self, error: &io::Error) {
        if let Some(repeated) = self.due_count(Instant::now()) {
            tracing::warn!(repeated, "connection not accepted: {error}");
        }
        let pause = match open_files::is_exhausted(error) && self.limit.make_room() {
            true => EVICTION_PAUSE,
            // An immediate retry would only spin.
            false => PAUSE,
        };
        tokio::time::sleep(pause).await;
    }

    /// Returns the number of failures without a line since the last one, or `None` if it is too
    /// early for another.
    fn due_count(&self, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock();
        if logged.last.is_some_and(|last| now < last + LOG_INTERVAL) {
            logged.suppressed += 1;
            return None;
        }
        logged.last = Some(now);
        Some(std::mem::take(&mut logged.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use moongate_telemetry::Metrics;
    use moongate_testing::logs::capture;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_a_minute_tells_of_all_failures() {
        let metrics = Metrics::new();
        let logged = capture();
        let failures = AcceptFailures::new(ConnectionLimit::new(
            1,
            &metrics.clients.connections,
            &metrics,
        ));
        let error = io::Error::other("no files");
        let began = Instant::now();
        while began.elapsed() < LOG_INTERVAL {
            failures.handle(&error).await;
        }
        failures.handle(&error).await;
        let lines = logged.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("connection not accepted") && lines[1].contains("repeated=599"),
            "{lines:?}"
        );
    }
}
