//! Config files that are watched, and digests of their contents.
//!
//! Owns the comparison of contents. Does not read configs (`reload.rs`) or wait for changes
//! (`watch_files.rs`). Invariant: of a file only a hash is kept.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

use moongate_platform::foreign_file;
use parking_lot::Mutex;

/// Largest file that is hashed. A larger one isn't a config, and counts as one that cannot be read.
const DIGEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Hashes of the files, `None` for one that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        before
            .hashes
            .iter()
            .all(|(path, hash)| self.hashes.iter().any(|(p, h)| p == path && h == hash))
    }
}

/// Files of the config, and the contents that the last reload saw.
pub(super) struct WatchedFiles {
    files: Mutex<Vec<PathBuf>>,
    keys: RandomState,
    /// Digests of the config in use, or of the last one that was refused.
    seen: Mutex<FileDigests>,
}

impl WatchedFiles {
    pub(super) fn new(files: Vec<PathBuf>) -> Self {
        WatchedFiles {
            files: Mutex::new(files),
            keys: RandomState::new(),
            seen: Mutex::default(),
        }
    }

    /// Adds files, and with `forget` drops the ones before.
    pub(super) fn add(&self, files: &[PathBuf], forget: bool) {
        let mut known = self.files.lock();
        if forget {
            known.clear();
        }
        known.extend_from_slice(files);
        known.sort();
        known.dedup();
    }

    /// Returns the digests of the files now.
    pub(super) async fn current(&self) -> FileDigests {
        let files = self.files.lock().clone();
        let keys = self.keys.clone();
        // Blocking threads: a network file system may stall a read.
        let looked = tokio::task::spawn_blocking(move || digest_files(&files, &keys)).await;
        looked.unwrap_or_default()
    }

    /// Returns the digests that the last reload saw.
    pub(super) fn seen(&self) -> FileDigests {
        self.seen.lock().clone()
    }

    /// Records what a reload saw. `before` was taken before it read the files: what changed since
    /// then is seen by the next check. Files that the reload added get their current digests.
    pub(super) async fn record(&self, before: &FileDigests) {
        let mut now = self.current().await;
        for (path, hash) in &mut now.hashes {
            if let Some((_, old)) = before.hashes.iter().find(|(other, _)| other == path) {
                *hash = *old;
            }
        }
        now.blank = before.blank;
        *self.seen.lock() = now;
    }
}

fn digest_files(files: &[PathBuf], keys: &RandomState) -> FileDigests {
    let mut digests = FileDigests::default();
    for path in files {
        let bytes = foreign_file::read(path, DIGEST_BYTES_MAX).ok();
        digests.blank |= bytes
            .as_ref()
            .is_some_and(|bytes| bytes.iter().all(u8::is_ascii_whitespace));
        // The key is random: the hash of a file with secrets says nothing outside of this process.
        let hash = bytes.map(|bytes| keys.hash_one(&bytes));
        digests.hashes.push((path.clone(), hash));
    }
    digests
}
