//! Watcher of config files. Owns the decision that a file has changed and is complete.
//!
//! It compares contents at an interval. That works for files that are written in place, replaced by
//! a rename, mounted, on a network, or behind links that move, as in a Kubernetes ConfigMap. Does
//! not read configs (`reload.rs`) or files (`file_digests.rs`). Invariant: a config is reloaded
//! only once its files are stable.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::app::file_digests::FileDigests;
use crate::app::reload::{ConfigReloader, ReloadOutcome};

/// Number of equal checks after which a broken or empty config is taken as intended. A writer that
/// writes in parts needs a moment.
const STABLE_CHECKS: u32 = 3;

/// Starts to watch the files, and reloads once they changed and are stable. Takes the first digests
/// before the gateway reports that it is ready: any later edit is a change.
pub(super) async fn start_watching(reloader: Arc<ConfigReloader>) -> JoinHandle<()> {
    reloader.watched().record(&FileDigests::default()).await;
    tokio::spawn(run(reloader))
}

/// Polls the files. They are compared with what the last reload saw, whoever asked for it: a file
/// that is restored soon after an operator's change differs from that change, though not from the
/// check before.
async fn run(reloader: Arc<ConfigReloader>) {
    let mut pending: Option<(FileDigests, u32)> = None;
    loop {
        let settings = reloader.settings();
        // A lower bound, so that a short interval cannot spin.
        tokio::time::sleep(settings.interval.0.max(Duration::from_millis(100))).await;
        let now = reloader.watched().current().await;
        if !settings.watch {
            // The digests are still followed: switching the watch on must not find old changes.
            reloader.watched().record(&now).await;
            pending = None;
            continue;
        }
        if now == reloader.watched().seen() {
            pending = None;
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
        if matches!(*outcome, ReloadOutcome::Refused(_)) && rests < STABLE_CHECKS {
            pending = Some((now, rests));
        }
    }
}
