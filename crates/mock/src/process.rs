//! Mock as a process: signals, and child processes.
//!
//! Owns the behaviour that only a process has. Does not own its streams. Invariant: an idle
//! grandchild ends by itself after ten minutes.

use std::{io, path::Path, process::Stdio};

use tokio::{
    process::Command,
    time::{Duration, sleep},
};

/// Lifetime of a grandchild that nobody kills.
const IDLE: Duration = Duration::from_secs(600);

/// Starts this program as an idle process that ignores SIGTERM, and returns its id. With `hold` it
/// keeps our output open, so that a reader of our output waits for the grandchild too.
pub(super) fn grandchild(program: &Path, hold: bool) -> io::Result<u32> {
    let child = Command::new(program)
        .args(["mock", "--idle"])
        // Without its own input it cannot take bytes that belong to its parent.
        .stdin(Stdio::null())
        .stdout(child_output(hold))
        .stderr(child_output(hold))
        .spawn()?;
    Ok(child.id().unwrap_or(0))
}

fn child_output(hold: bool) -> Stdio {
    if hold {
        Stdio::inherit()
    } else {
        Stdio::null()
    }
}

/// Sleeps for ten minutes and ignores SIGTERM.
pub(super) async fn idle() {
    ignore_sigterm();
    sleep(IDLE).await;
}

/// Ignores SIGTERM.
pub(super) fn ignore_sigterm() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        // A handler replaces the default, which is to die. Nobody needs to read the signal.
        if let Ok(mut term) = signal(SignalKind::terminate()) {
            tokio::spawn(async move { while term.recv().await.is_some() {} });
        }
    }
}
