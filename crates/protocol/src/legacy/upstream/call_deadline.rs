//! Deadline of a call on a legacy server, which stands still while a user is answering.
//!
//! Owns the count of the call's input requests. Does not forward them (`forward_responses.rs`). Invariant: the time and
//! the number of input requests are bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::correlation::InputGuard;

/// Limit of input requests in one call. A server beyond it is taken to loop.
pub(crate) const INPUT_REQUESTS_MAX: usize = 64;

/// Deadline of one call.
pub(crate) struct CallDeadline {
    at: Instant,
    inputs: Arc<InputCounter>,
}

impl CallDeadline {
    pub(crate) fn new(at: Instant) -> Self {
        CallDeadline { at, inputs: Arc::default() }
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Moves the deadline if input requests extend the call. Returns false if they do not.
    ///
    /// The call's timeout stands still while a user is answering and starts again after the response.
    pub(crate) fn extend(&mut self, timeout: Duration) -> bool {
        if self.inputs.open.load(Ordering::Acquire) > 0 {
            self.at = Instant::now() + timeout;
            return true;
        }
        let answered = *self.inputs.last_answered.lock();
        // The time after an answer counts anew: the server begins to work only then.
        let later = answered.map(|answered| answered + timeout).filter(|deadline| *deadline > Instant::now());
        self.at = later.unwrap_or(self.at);
        later.is_some()
    }

    /// Returns true if the call has time left for a message other than its response.
    ///
    /// Without this check, a server that always sends something could extend its call without end.
    pub(crate) fn has_time(&mut self, timeout: Duration) -> bool {
        Instant::now() < self.at || self.extend(timeout)
    }

    /// Counts one more input request. Returns `None` if there were too many.
    pub(crate) fn begin_input(&self, pending: impl FnOnce() -> InputGuard) -> Option<CountedInputGuard> {
        // Counted in total and not those that are open: a loop asks one after the other.
        if self.inputs.total.fetch_add(1, Ordering::Relaxed) >= INPUT_REQUESTS_MAX {
            return None;
        }
        // Before the guard exists, whose drop takes it back.
        self.inputs.open.fetch_add(1, Ordering::AcqRel);
        Some(CountedInputGuard { inputs: self.inputs.clone(), _pending: pending() })
    }

    /// Records that the call has its response.
    pub(crate) fn mark_answered(&self) {
        self.inputs.is_answered.store(true, Ordering::Release);
    }
}

/// Input requests of one call.
#[derive(Default)]
struct InputCounter {
    /// Number of input requests since the call began.
    total: AtomicUsize,
    /// Number of input requests without a response.
    open: AtomicUsize,
    /// True once the call has its response. Later input requests belong to another call.
    is_answered: AtomicBool,
    /// Time of the last input response.
    last_answered: Mutex<Option<Instant>>,
}

/// Guard of one input request that waits for its user.
pub(crate) struct CountedInputGuard {
    inputs: Arc<InputCounter>,
    _pending: InputGuard,
}

impl CountedInputGuard {
    /// Returns true if the call has its response.
    pub(crate) fn is_call_answered(&self) -> bool {
        self.inputs.is_answered.load(Ordering::Acquire)
    }
}

impl Drop for CountedInputGuard {
    fn drop(&mut self) {
        // The time first: once `open` is zero, `extend` reads it.
        *self.inputs.last_answered.lock() = Some(Instant::now());
        self.inputs.open.fetch_sub(1, Ordering::AcqRel);
    }
}
