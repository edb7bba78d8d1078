//! How the programs of the benches begin, and how they are stopped.

use anyhow::{Result, bail};
use moongate_platform::signals::TerminationSignals;

/// Whether something is asked for: `cargo test --all-targets` and other runners of tests start
/// benches, too, with nothing to test there.
pub(crate) fn is_asked(words: &[String]) -> bool {
    words.iter().any(|word| word.starts_with("--")) && !words.iter().any(|word| word == "--list")
}

/// The work, unless a signal ends it: what it started then ends with it.
pub(crate) async fn unless_stopped(work: impl Future<Output = Result<()>>) -> Result<()> {
    let mut signals = TerminationSignals::listen()?;
    tokio::select! {
        done = work => done,
        () = signals.recv() => bail!("interrupted"),
    }
}
