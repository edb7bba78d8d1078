//! Deadline of a call on a legacy server, which is on hold while a user is answering.
//!
//! Owns the count of the call's input requests, and the time that they take. Does not forward them
//! (`forward_responses.rs`). Invariant: the time and the number of input requests are bounded, and
//! a request that reached nobody prolongs nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::correlation::InputGuard;
use crate::input_clock::InputClock;

/// Limit of input requests in one call. A server beyond it is taken to loop.
pub(crate) const INPUT_REQUESTS_MAX: usize = 64;

/// Deadline of one call.
pub(crate) struct CallDeadline {
    /// Deadline without input requests.
    base: Instant,
    at: Instant,
    inputs: Arc<InputCounter>,
}

impl CallDeadline {
    pub(crate) fn new(at: Instant) -> Self {
        CallDeadline {
            base: at,
            at,
            inputs: Arc::default(),
        }
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Moves the deadline if input requests extend the call. Returns false if they do not.
    ///
    /// The call's timeout is on hold while a user is answering and starts again after the response.
    pub(crate) fn extend(&mut self, timeout: Duration) -> bool {
        self.at = self.inputs.clock.extend(self.base, timeout);
        self.at > Instant::now()
    }

    /// Returns true if the call has time left for a message other than its response.
    ///
    /// Without this check, a server that always sends something could extend its call without end.
    pub(crate) fn has_time(&mut self, timeout: Duration) -> bool {
        Instant::now() < self.at || self.extend(timeout)
    }

    /// Counts another input request. Returns `None` if there were too many.
    pub(crate) fn begin_input(
        &self,
        pending: impl FnOnce() -> InputGuard,
    ) -> Option<CountedInputGuard> {
        // Counted in total and not those that are open: a loop asks one after the other.
        if self.inputs.total.fetch_add(1, Ordering::Relaxed) >= INPUT_REQUESTS_MAX {
            return None;
        }
        // Before the guard exists, whose drop takes it back.
        self.inputs.clock.begin();
        Some(CountedInputGuard {
            inputs: self.inputs.clone(),
            has_response: false,
            _pending: pending(),
        })
    }

    /// Records that the call has its response.
    pub(crate) fn mark_answered(&self) {
        self.inputs.is_answered.store(true, Ordering::Release);
    }
}

/// Input requests of one call.
#[derive(Default)]
struct InputCounter {
    /// Number of input requests since the call started.
    total: AtomicUsize,
    /// True once the call has its response. Later input requests belong to another call.
    is_answered: AtomicBool,
    clock: InputClock,
}

/// Guard of one input request that waits for its user.
pub(crate) struct CountedInputGuard {
    inputs: Arc<InputCounter>,
    has_response: bool,
    _pending: InputGuard,
}

impl CountedInputGuard {
    /// Returns true if the call has its response.
    pub(crate) fn is_call_answered(&self) -> bool {
        self.inputs.is_answered.load(Ordering::Acquire)
    }

    /// Records that a client responded, so that the call's time starts again.
    pub(crate) fn mark_responded(&mut self) {
        self.has_response = true;
    }
}

impl Drop for CountedInputGuard {
    fn drop(&mut self) {
        self.inputs.clock.end(self.has_response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_refused_prolongs_nothing() {
        // The time in which each was open does not count, and nothing else is added.
        let mut deadline = CallDeadline::new(Instant::now() + TIMEOUT);
        let began = Instant::now();
        let mut count = 0;
        while deadline.has_time(TIMEOUT) {
            deadline.inputs.clock.begin();
            deadline.inputs.clock.end(false);
            count += 1;
            tokio::time::sleep(SECOND).await;
        }
        assert_eq!(began.elapsed(), TIMEOUT);
        assert_eq!(count, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_stands_still_while_a_request_is_open_and_starts_again_after_a_response() {
        let began = Instant::now();
        let mut deadline = CallDeadline::new(began + TIMEOUT);
        tokio::time::sleep(SECOND * 4).await;
        deadline.inputs.clock.begin();
        tokio::time::sleep(SECOND * 100).await;
        assert!(deadline.has_time(TIMEOUT));
        deadline.inputs.clock.end(false);
        tokio::time::sleep(SECOND * 5).await;
        assert!(deadline.extend(TIMEOUT), "a second is left of its own time");
        tokio::time::sleep(SECOND * 2).await;
        assert!(!deadline.has_time(TIMEOUT));
        deadline.inputs.clock.begin();
        deadline.inputs.clock.end(true);
        tokio::time::sleep(TIMEOUT - SECOND).await;
        assert!(deadline.has_time(TIMEOUT));
        tokio::time::sleep(SECOND * 2).await;
        assert!(!deadline.has_time(TIMEOUT));
    }
}
