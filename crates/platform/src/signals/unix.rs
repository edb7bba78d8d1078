//! Signals of Unix.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receiver of SIGTERM and SIGINT.
pub struct TerminationSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl TerminationSignals {
    /// Starts to receive the signals. Must be called on the runtime.
    pub fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(TerminationSignals {
            terminate,
            interrupt,
        })
    }

    /// Waits for the next one.
    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Receiver of SIGHUP.
pub struct ReloadSignals(Signal);

impl ReloadSignals {
    /// Starts to receive the signal. Must be called on the runtime.
    pub fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(ReloadSignals)
    }

    /// Waits for the next one.
    pub async fn recv(&mut self) {
        self.0.recv().await;
    }
}
