//! The mock as a process: signals, and children of its own.
//!
//! Owns what only a process can do. Does not own its streams. Invariant: an idle grandchild ends by itself in the
//! end.

use std::{io, path::Path, process::Stdio};

use tokio::{
    process::Command,
    time::{Duration, sleep},
};

/// How long a grandchild stays, unless it is killed.
const IDLE: Duration = Duration::from_secs(600);

/// Starts this program as an idle process that ignores SIGTERM, and gives its id. With `hold` it keeps our output
/// open, so that whoever waits for its end waits for the grandchild too.
pub(super) fn grandchild(program: &Path, hold: bool) -> io::Result<u32> {
    let output = || if hold { Stdio::inherit() } else { Stdio::null() };
    let child = Command::new(program)
        .args(["mock", "--idle"])
        .stdin(Stdio::null())
        .stdout(output())
        .stderr(output())
        .spawn()?;
    Ok(child.id().unwrap_or(0))
}

/// Does nothing for a while, whatever SIGTERM says.
pub(super) async fn idle() {
    ignore_sigterm();
    sleep(IDLE).await;
}

/// Takes SIGTERM and does nothing about it.
pub(super) fn ignore_sigterm() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        // Once a handler is there the default, to die, is not; nobody needs to read it.
        if let Ok(mut term) = signal(SignalKind::terminate()) {
            tokio::spawn(async move { while term.recv().await.is_some() {} });
        }
    }
}
