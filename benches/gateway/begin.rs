//! How the programs of the benches begin, and how they are stopped.

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Whether something is asked for: `cargo test --all-targets` and other runners of tests start benches, too, with nothing to
/// test there.
pub(crate) fn is_asked(words: &[String]) -> bool {
    words.iter().any(|word| word.starts_with("--")) && !words.iter().any(|word| word == "--list")
}

/// The work, unless a signal ends it: what it started then ends with it.
pub(crate) async fn unless_stopped(work: impl Future<Output = Result<()>>) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}
