//! Signals that ask a command to stop, such as SIGTERM and Ctrl-C. Owns which of them count.
//!
//! Does not stop anything. Invariant: signals within [`ECHO_TIME`] of one that counted are its
//! echoes.

use std::time::Duration;

use anyhow::Context;
use moongate_platform::signals::TerminationSignals;
use tokio::time::Instant;

/// Time in which further signals repeat the first. A wrapper such as `timeout` or `npm` signals its
/// child, and then the process group that the child is in.
const ECHO_TIME: Duration = Duration::from_millis(500);

/// Receiver of signals that ask for a stop.
pub(super) struct StopSignals {
    signals: TerminationSignals,
    echoes: EchoFilter,
}

impl StopSignals {
    /// Starts to receive the signals. From now on none ends the process by itself.
    pub(super) fn listen() -> anyhow::Result<StopSignals> {
        let signals = TerminationSignals::listen().context("signals cannot be received")?;
        Ok(StopSignals {
            signals,
            echoes: EchoFilter::default(),
        })
    }

    /// Waits for the next signal that counts.
    pub(super) async fn recv(&mut self) {
        loop {
            self.signals.recv().await;
            if self.echoes.admit(Instant::now()) {
                return;
            }
        }
    }
}

/// Filter that lets the first of several signals in a row through.
#[derive(Default)]
struct EchoFilter {
    admitted: Option<Instant>,
}

impl EchoFilter {
    /// Decides whether a signal counts. Echoes do not extend the time: signals that go on for
    /// longer count again.
    fn admit(&mut self, now: Instant) -> bool {
        if self
            .admitted
            .is_some_and(|admitted| now - admitted < ECHO_TIME)
        {
            return false;
        }
        self.admitted = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_half_a_second_are_one() {
        let start = Instant::now();
        let mut echoes = EchoFilter::default();
        for (ms, counts, why) in [
            (0, true, "the first signal"),
            (0, false, "echoes of the first"),
            (1, false, "echoes of the first"),
            (499, false, "echoes of the first"),
            (500, true, "a second signal"),
            (999, false, "echoes do not extend the time"),
            (1000, true, "echoes do not extend the time"),
        ] {
            let at = start + Duration::from_millis(ms);
            assert_eq!(echoes.admit(at), counts, "{why}");
        }
    }
}
