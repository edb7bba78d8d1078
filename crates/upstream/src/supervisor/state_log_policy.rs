//! Policy for when a server's state is logged: at changes, and once an hour. Owns whether a state
//! is worth a line. Does not write the line. Invariant: a lasting state has one line an hour, a
//! flapping one has few, and the latest state is always logged in the end.

use parking_lot::Mutex;
use std::time::Duration;

use moongate_model::UpstreamState;
use tokio::time::Instant;

/// Interval between lines about a lasting state.
const REPEAT_AFTER: Duration = Duration::from_secs(3600);
/// Lines in that time about one flapping state and reason, until the server was healthy in between.
const FLAP_LINES_MAX: usize = 3;
/// Limit of remembered states and reasons.
const STATES_MAX: usize = 16;
/// Length of a reason that distinguishes it from others, in characters.
const REASON_CHARS: usize = 200;

/// Log policy of one server's state, with the lines so far.
#[derive(Default)]
pub(crate) struct StateLogPolicy(Mutex<LoggedStates>);

#[derive(Default)]
struct LoggedStates {
    last: Option<StateKey>,
    recent: Vec<(StateKey, Instant)>,
    /// Changes without a line since the last one.
    suppressed: u64,
}

type StateKey = (UpstreamState, String);

impl StateLogPolicy {
    /// Records a state and its reason. Returns the number of suppressed changes if it is worth a
    /// line.
    pub(crate) fn record(&self, state: UpstreamState, reason: &str) -> Option<u64> {
        let now = Instant::now();
        let mut log = self.0.lock();
        let key = (state, stable_reason(reason));
        log.recent
            .retain(|(_, logged_at)| now < *logged_at + REPEAT_AFTER);
        let count = log.recent.iter().filter(|(known, _)| *known == key).count();
        let stays = log.last.as_ref() == Some(&key);
        log.last = Some(key.clone());
        // A lasting state has its line already. A flapping one has used up its lines.
        if stays && count > 0 || count >= FLAP_LINES_MAX {
            log.suppressed += 1;
            return None;
        }
        if log.recent.len() == STATES_MAX {
            log.recent.remove(0);
        }
        log.recent.push((key, now));
        Some(std::mem::take(&mut log.suppressed))
    }

    /// Records that the server was healthy for a while: its next failure is a new one. Returns the
    /// number of suppressed changes, if the present state had no line.
    pub(crate) fn settle(&self) -> Option<u64> {
        let mut log = self.0.lock();
        let last = log.last.clone();
        log.recent.retain(|(key, _)| Some(key) == last.as_ref());
        // Only the line about the present state is kept.
        let before = log.recent.len().saturating_sub(1);
        log.recent.drain(..before);
        let suppressed = std::mem::take(&mut log.suppressed);
        (suppressed > 0).then_some(suppressed)
    }
}

/// Removes the parts of a reason that differ each time: ports, process ids, times.
fn stable_reason(reason: &str) -> String {
    reason
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .take(REASON_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_state_that_stays_has_a_line_and_one_an_hour() {
        let log = StateLogPolicy::default();
        let mut lines = 0;
        for attempt in 0..2 * 60 * 8 {
            lines += usize::from(
                log.record(
                    UpstreamState::BackingOff,
                    &format!("refused, in {attempt} s"),
                )
                .is_some(),
            );
            tokio::time::sleep(Duration::from_millis(7500)).await;
        }
        assert_eq!(lines, 2, "in two hours");
        assert!(
            log.record(UpstreamState::BackingOff, "no such host")
                .is_some(),
            "another reason"
        );
        assert!(
            log.record(UpstreamState::Failed, "no such host").is_some(),
            "another state"
        );
        assert_eq!(log.record(UpstreamState::Failed, "no such host"), None);
        assert_eq!(
            log.record(UpstreamState::Ready, ""),
            Some(1),
            "with what was left out"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_flapping_server_is_logged_rarely_and_with_its_last_state() {
        let log = StateLogPolicy::default();
        let mut lines = 0;
        for _ in 0..100 {
            lines += usize::from(log.record(UpstreamState::Ready, "").is_some());
            lines += usize::from(log.record(UpstreamState::BackingOff, "it exited").is_some());
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(lines, 2 * FLAP_LINES_MAX);
        assert_eq!(log.record(UpstreamState::Ready, ""), None);
        assert!(
            log.settle().is_some_and(|suppressed| suppressed > 100),
            "it is well again, and that is told"
        );
        assert_eq!(log.settle(), None);
        assert_eq!(
            log.record(UpstreamState::BackingOff, "it exited"),
            Some(0),
            "a new trouble"
        );
    }
}
