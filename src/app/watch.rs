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

use crate::app::reload::{Outcome, Reloader};

/// Looks that must find the same before a config that is wrong, or empty, is taken as meant: whoever writes a file in
/// parts needs a moment.
const PATIENCE: u32 = 3;
/// More of a file is not looked at.
const LOOKED_AT: u64 = 16 * 1024 * 1024;

/// What the files hold; nothing for one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    hashes: Vec<(PathBuf, Option<u64>)>,
    /// Whether one of them has nothing in it.
    pub(super) blank: bool,
}

impl Seen {
    /// Whether there was nothing to look at.
    pub(super) fn is_nothing(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether all that was looked at then is as it was.
    pub(super) fn is_same(&self, before: &Seen) -> bool {
        before.hashes.iter().all(|(path, hash)| self.hashes.iter().any(|(p, h)| p == path && h == hash))
    }
}

fn look(files: &[PathBuf], keys: &RandomState) -> Seen {
    let mut blank = false;
    let mut hash = |path: &Path| {
        let mut bytes = Vec::new();
        std::fs::File::open(path).ok()?.take(LOOKED_AT).read_to_end(&mut bytes).ok()?;
        blank |= bytes.iter().all(u8::is_ascii_whitespace);
        Some(keys.hash_one(&bytes))
    };
    let hashes = files.iter().map(|path| (path.clone(), hash(path))).collect();
    Seen { hashes, blank }
}

/// Looks at the files, and from then on reloads when they changed and have come to rest. They are looked at before anybody
/// is told that the gateway is there: what is changed after that is a change.
pub(super) async fn begin(reloader: Arc<Reloader>) -> JoinHandle<()> {
    let keys = RandomState::new();
    let known = seen(&reloader, &keys).await;
    tokio::spawn(run(reloader, keys, known))
}

/// `known`: what the config in use, or the last one that was refused, came from.
async fn run(reloader: Arc<Reloader>, keys: RandomState, mut known: Seen) {
    let mut pending: Option<(Seen, u32)> = None;
    loop {
        let settings = reloader.settings();
        tokio::time::sleep(settings.interval.max(Duration::from_millis(100))).await;
        let now = seen(&reloader, &keys).await;
        if !settings.watch || now == known {
            (known, pending) = (now, None);
            continue;
        }
        let rests = match pending.take() {
            Some((before, rests)) if before == now => rests + 1,
            _ => 0,
        };
        if rests == 0 || (now.blank && rests < PATIENCE) {
            pending = Some((now, rests));
            continue;
        }
        let outcome = reloader.reload(rests >= PATIENCE).await;
        match *outcome {
            Outcome::Refused(_) if rests < PATIENCE => pending = Some((now, rests)),
            // The files to look at may be others now.
            _ => known = resolved(&reloader, &now, &keys).await,
        }
    }
}

/// What the files of a config hold now.
pub(super) async fn seen(reloader: &Reloader, keys: &RandomState) -> Seen {
    let (files, keys) = (reloader.files(), keys.clone());
    // A file system may make whoever reads it wait.
    let looked = tokio::task::spawn_blocking(move || look(&files, &keys)).await;
    looked.unwrap_or(Seen { hashes: Vec::new(), blank: false })
}

/// What was seen of files that are still looked at; of others, what they are now.
async fn resolved(reloader: &Arc<Reloader>, before: &Seen, keys: &RandomState) -> Seen {
    let mut now = seen(reloader, keys).await;
    for (path, hash) in &mut now.hashes {
        if let Some((_, old)) = before.hashes.iter().find(|(other, _)| other == path) {
            *hash = *old;
        }
    }
    Seen { blank: before.blank, ..now }
}
