//! Looks whether files changed.
//!
//! By their contents, at an interval: that works for files that are written in place, replaced by a rename, mounted, on
//! a network, or behind links that move, as those of a Kubernetes ConfigMap do, and nothing can be missed. Invariant:
//! no more is kept of a file than a hash.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::app::reload::{ConfigReloader, ReloadOutcome};

/// Looks that must find the same before a config that is wrong, or empty, is taken as meant: whoever writes a file in
/// parts needs a moment.
const STABLE_CHECKS: u32 = 3;
/// More of a file is not looked at.
const DIGEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What the files hold; nothing for one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileDigests {
    hashes: Vec<(PathBuf, Option<u64>)>,
    /// Whether one of them has nothing in it.
    pub(super) blank: bool,
}

impl FileDigests {
    /// Whether there was nothing to look at.
    pub(super) fn is_nothing(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether all that was looked at then is as it was.
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

/// Looks at the files, and from then on reloads when they changed and have come to rest. They are looked at before anybody
/// is told that the gateway is there: what is changed after that is a change.
pub(super) async fn start_watching(reloader: Arc<ConfigReloader>) -> JoinHandle<()> {
    let keys = RandomState::new();
    let known = current_digests(&reloader, &keys).await;
    tokio::spawn(run(reloader, keys, known))
}

/// `known`: what the config in use, or the last one that was refused, came from.
async fn run(reloader: Arc<ConfigReloader>, keys: RandomState, mut known: FileDigests) {
    let mut pending: Option<(FileDigests, u32)> = None;
    loop {
        let settings = reloader.settings();
        tokio::time::sleep(settings.interval.max(Duration::from_millis(100))).await;
        let now = current_digests(&reloader, &keys).await;
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
        let outcome = reloader.reload(rests >= STABLE_CHECKS).await;
        match *outcome {
            ReloadOutcome::Refused(_) if rests < STABLE_CHECKS => pending = Some((now, rests)),
            // The files to look at may be others now.
            _ => known = wait_until_stable(&reloader, &now, &keys).await,
        }
    }
}

/// What the files of a config hold now.
pub(super) async fn current_digests(reloader: &ConfigReloader, keys: &RandomState) -> FileDigests {
    let (files, keys) = (reloader.files(), keys.clone());
    // A file system may make whoever reads it wait.
    let looked = tokio::task::spawn_blocking(move || digest_files(&files, &keys)).await;
    looked.unwrap_or(FileDigests { hashes: Vec::new(), blank: false })
}

/// What was seen of files that are still looked at; of others, what they are now.
async fn wait_until_stable(reloader: &Arc<ConfigReloader>, before: &FileDigests, keys: &RandomState) -> FileDigests {
    let mut now = current_digests(reloader, keys).await;
    for (path, hash) in &mut now.hashes {
        if let Some((_, old)) = before.hashes.iter().find(|(other, _)| other == path) {
            *hash = *old;
        }
    }
    FileDigests { blank: before.blank, ..now }
}
