//! Signals to this process.
//!
//! Owns which ones ask for a stop or a reload. Does not stop or reload. Invariant: from `listen`
//! on, a signal that is received here no longer ends the process by itself.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as system;

pub use system::{ReloadSignals, TerminationSignals};
