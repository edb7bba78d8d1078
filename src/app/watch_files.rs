//! Watcher of config files. Owns the decision that a file has changed and is complete.
//!
//! It compares contents at an interval. That works for files that are written in place, replaced by a rename, mounted,
//! on a network, or behind links that move, as in a Kubernetes ConfigMap. Does not read configs (`reload.rs`).
//! Invariant: of a file only a hash is kept.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::app::reload::{ConfigReloader, ReloadOutcome};

/// Number of equal checks after which a broken or empty config is taken as intended. A writer that writes in parts
/// needs a moment.
const STABLE_CHECKS: u32 = 3;
/// Maximum number of bytes of a file that are hashed.
const DIGEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Hashes of the files, `None` for one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileDigests {
    hashes: Vec<(PathBuf, Option<u64>)>,
    /// True if one of the files is blank.
    pub(super) blank: bool,
}

impl FileDigests {
    /// True if there were no files.
    pub(super) fn is_nothing(&self) -> bool {
        self.hashes.is_empty()
    }

    /// True if every file of `before` has the same digest now.
    pub(super) fn is_same(&self, before: &FileDigests) -> bool {
        before.hashes.iter().all(|(path, hash)| self.hashes.iter().any(|(p, h)| p == path && h == hash))
    }
}

fn digest_files(files: &[PathBuf], keys: &RandomState) -> FileDigests {
    let mut blank = false;
    let mut hash = |path: &Path| {
        let mut bytes = Vec::new();
        std::fs::File::open(path).ok()?.take(DIGEST_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        blank |= bytes.iter().all(u8::is_ascii_whitespace);
        Some(keys.hash_one(&bytes))
    };
    let hashes = files.iter().map(|path| (path.clone(), hash(path))).collect();
    FileDigests { hashes, blank }
}

/// Starts to watch the files, and reloads once they changed and are stable. Takes the first digests before the gateway
/// reports that it is ready: any later edit is a change.
pub(super) async fn start_watching(reloader: Arc<ConfigReloader>) -> JoinHandle<()> {
    let keys = RandomState::new();
    let known = current_digests(&reloader, &keys).await;
    tokio::spawn(run(reloader, keys, known))
}

/// Polls the files. `known` are the digests of the config in use, or of the last one that was refused.
async fn run(reloader: Arc<ConfigReloader>, keys: RandomState, mut known: FileDigests) {
    let mut pending: Option<(FileDigests, u32)> = None;
    loop {
        let settings = reloader.settings();
        // A lower bound, so that a short interval cannot spin.
        tokio::time::sleep(settings.interval.max(Duration::from_millis(100))).await;
        let now = current_digests(&reloader, &keys).await;
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

/// Returns the digests of a config's files now.
pub(super) async fn current_digests(reloader: &ConfigReloader, keys: &RandomState) -> FileDigests {
    let (files, keys) = (reloader.files(), keys.clone());
    // Blocking threads: a network file system may stall a read.
    let looked = tokio::task::spawn_blocking(move || digest_files(&files, &keys)).await;
    looked.unwrap_or(FileDigests { hashes: Vec::new(), blank: false })
}

/// Returns the digests of `before` for files that are still watched, and current ones for new files.
async fn wait_until_stable(reloader: &Arc<ConfigReloader>, before: &FileDigests, keys: &RandomState) -> FileDigests {
    let mut now = current_digests(reloader, keys).await;
    for (path, hash) in &mut now.hashes {
        if let Some((_, old)) = before.hashes.iter().find(|(other, _)| other == path) {
            *hash = *old;
        }
    }
    FileDigests { blank: before.blank, ..now }
}
