//! Console events of Windows, which take the role of signals.

use std::io;

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};

/// Receiver of Ctrl-C, Ctrl-Break, the closing of the console, and the shutdown of the system.
pub struct TerminationSignals {
    interrupt: CtrlC,
    stop: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl TerminationSignals {
    /// Starts to receive the events. Must be called on the runtime.
    pub fn listen() -> io::Result<Self> {
        Ok(TerminationSignals {
            interrupt: ctrl_c()?,
            stop: ctrl_break()?,
            close: ctrl_close()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// Waits for the next one. After the last two, Windows ends the process within seconds.
    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.stop.recv() => {}
            _ = self.close.recv() => {}
            _ = self.shutdown.recv() => {}
        }
    }
}

/// Receiver of nothing: Windows has no signal that asks for a reload.
pub struct ReloadSignals(());

impl ReloadSignals {
    /// Does nothing.
    pub fn listen() -> io::Result<Self> {
        Ok(ReloadSignals(()))
    }

    /// Waits for ever.
    pub async fn recv(&mut self) {
        std::future::pending().await
    }
}
