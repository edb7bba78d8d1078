//! Time that the input requests of one call take.
//!
//! Owns the moved deadline. Does not wait for it. Invariant: a request that reached nobody moves a
//! deadline by the time in which it was open, and by nothing more.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Shortest time between two checks of a deadline that is on hold.
const STEP_MIN: Duration = Duration::from_millis(50);

/// Clock of the input requests of one call.
#[derive(Default)]
pub(crate) struct InputClock(Mutex<ClockState>);

#[derive(Default)]
struct ClockState {
    /// Number of input requests without a response.
    open: usize,
    /// Start of the time in which some request is open.
    open_since: Option<Instant>,
    /// Time in which requests were open that nobody answered: the gateway or the client refused
    /// them.
    stood_still: Duration,
    /// Time of the last input response.
    answered: Option<Instant>,
}

impl InputClock {
    /// Records an input request.
    pub(crate) fn begin(&self) {
        let mut clock = self.0.lock();
        clock.open += 1;
        clock.open_since.get_or_insert_with(Instant::now);
    }

    /// Records the end of one. `has_response`: somebody answered it.
    pub(crate) fn end(&self, has_response: bool) {
        let now = Instant::now();
        let mut clock = self.0.lock();
        clock.open = clock.open.saturating_sub(1);
        let since = clock.open_since.take().unwrap_or(now);
        if has_response {
            (clock.answered, clock.stood_still) = (Some(now), Duration::ZERO);
            clock.open_since = (clock.open > 0).then_some(now);
        } else if clock.open > 0 {
            clock.open_since = Some(since);
        } else {
            clock.stood_still += now - since;
        }
    }

    /// Returns the deadline that `base` was moved to. It is on hold while a request is open, and
    /// each response starts another `timeout`, because the server starts to work only then.
    pub(crate) fn extend(&self, base: Instant, timeout: Duration) -> Instant {
        let clock = self.0.lock();
        let base = clock
            .answered
            .map_or(base, |answered| base.max(answered + timeout))
            + clock.stood_still;
        match clock.open_since {
            Some(since) if since < base => {
                Instant::now() + base.duration_since(since).max(STEP_MIN)
            }
            _ => base,
        }
    }
}
