//! Watcher of config files. Owns the decision that a file has changed and is complete.
//!
//! It compares contents at an interval. That works for files that are written in place, replaced by a rename, mounted,
//! on a network, or behind links that move, as in a Kubernetes ConfigMap. Does not read configs (`reload.rs`) or files
//! (`file_digests.rs`). Invariant: a config is reloaded only once its files are stable.

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::app::file_digests::{FileDigests, current_digests};
use crate::app::reload::{ConfigReloader, ReloadOutcome};

/// Number of equal checks after which a broken or empty config is taken as intended. A writer that writes in parts
/// needs a moment.
const STABLE_CHECKS: u32 = 3;

/// Starts to watch the files, and reloads once they changed and are stable. Takes the first digests before the gateway
/// reports that it is ready: any later edit is a change.
pub(super) async fn start_watching(reloader: Arc<ConfigReloader>) -> JoinHandle<()> {
    let keys = RandomState::new();
    let known = current_digests(reloader.files(), &keys).await;
    tokio::spawn(run(reloader, keys, known))
}

/// Polls the files. `known` are the digests of the config in use, or of the last one that was refused.
async fn run(reloader: Arc<ConfigReloader>, keys: RandomState, mut known: FileDigests) {
    let mut pending: Option<(FileDigests, u32)> = None;
    loop {
        let settings = reloader.settings();
        // A lower bound, so that a short interval cannot spin.
        tokio::time::sleep(settings.interval.0.max(Duration::from_millis(100))).await;
        let now = current_digests(reloader.files(), &keys).await;
        // Without the watch the digests are still followed: switching it on must not find old changes.
        if !settings.watch || now == known {
            (known, pending) = (now, None);
            continue;
        }
        let rests = match pending.take() {
            Some((before, rests)) if before == now => rests + 1,
            _ => 0,
        };
        if rests == 0 || (now.blank && rests < STABLE_CHECKS) {
            pending = Some((now, rests));
            continue;
        }
        // Refusals are logged only once the files were stable for long enough.
        let outcome = reloader.reload(rests >= STABLE_CHECKS).await;
        match *outcome {
            ReloadOutcome::Refused(_) if rests < STABLE_CHECKS => pending = Some((now, rests)),
            // The reload may have changed the list of files.
            _ => known = wait_until_stable(&reloader, &now, &keys).await,
        }
    }
}

/// Returns the digests of `before` for files that are still watched, and current ones for new files.
async fn wait_until_stable(reloader: &Arc<ConfigReloader>, before: &FileDigests, keys: &RandomState) -> FileDigests {
    let mut now = current_digests(reloader.files(), keys).await;
    for (path, hash) in &mut now.hashes {
        // A file may have changed since its old digest. With that digest, the next look sees it.
        if let Some((_, old)) = before.hashes.iter().find(|(other, _)| other == path) {
            *hash = *old;
        }
    }
    FileDigests { blank: before.blank, ..now }
}
