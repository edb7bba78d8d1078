//! Time limits of calls on one server, shared by all its connections.
//!
//! Owns the limits, the timers and the background sender. Does not cancel calls. Invariant: a
//! change applies to calls that start after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::background_sender::BackgroundSender;
use crate::lazy_timer::TimerPool;

/// Time limits and background sender shared by all connections to a server.
///
/// A change applies to calls that start after it.
#[derive(Debug)]
pub struct CallTimeouts {
    call_ms: AtomicU64,
    input_ms: AtomicU64,
    timers: Arc<TimerPool>,
    background_sender: BackgroundSender,
}

impl CallTimeouts {
    /// Creates the limits. `call` covers a call from sending to its end, `input` a client's answer
    /// to an input request.
    pub fn new(call: Duration, input: Duration) -> Self {
        let call_ms = AtomicU64::new(0);
        let input_ms = AtomicU64::new(0);
        let timeouts = CallTimeouts {
            call_ms,
            input_ms,
            timers: Arc::default(),
            background_sender: BackgroundSender::default(),
        };
        timeouts.update(call, input);
        timeouts
    }

    /// Changes both limits.
    pub fn update(&self, call: Duration, input: Duration) {
        self.call_ms.store(whole_millis(call), Ordering::Relaxed);
        self.input_ms.store(whole_millis(input), Ordering::Relaxed);
    }

    /// Returns the timers of the server's calls.
    pub fn timers(&self) -> &Arc<TimerPool> {
        &self.timers
    }

    /// Returns the sender of messages that no call waits for.
    pub(super) fn background_sender(&self) -> &BackgroundSender {
        &self.background_sender
    }

    /// Returns the time limit of a call.
    pub fn call(&self) -> Duration {
        Duration::from_millis(self.call_ms.load(Ordering::Relaxed))
    }

    /// Returns the time limit for a client to answer an input request.
    pub fn input_timeout(&self) -> Duration {
        Duration::from_millis(self.input_ms.load(Ordering::Relaxed))
    }
}

/// Returns the milliseconds of a time limit. At least 1 ms: a limit of zero would end every call at
/// once.
fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}
