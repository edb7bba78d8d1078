//! Digests of config files.
//!
//! Owns the comparison of contents. Does not read configs (`reload.rs`) or wait for changes (`watch_files.rs`).
//! Invariant: of a file only a hash is kept.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum number of bytes of a file that are hashed.
// Bounded, because a reference may name a file without an end, such as a device.
const DIGEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Hashes of the files, `None` for one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileDigests {
    pub(super) hashes: Vec<(PathBuf, Option<u64>)>,
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
        // The key is random: the hash of a file with secrets says nothing outside of this process.
        Some(keys.hash_one(&bytes))
    };
    let hashes = files.iter().map(|path| (path.clone(), hash(path))).collect();
    FileDigests { hashes, blank }
}

/// Returns the digests of the files now.
pub(super) async fn current_digests(files: Vec<PathBuf>, keys: &RandomState) -> FileDigests {
    let keys = keys.clone();
    // Blocking threads: a network file system may stall a read.
    let looked = tokio::task::spawn_blocking(move || digest_files(&files, &keys)).await;
    looked.unwrap_or(FileDigests { hashes: Vec::new(), blank: false })
}
