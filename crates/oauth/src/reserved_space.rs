//! Space on disk for a login that is about to be renewed.
//!
//! Owns the file that takes the space. Does not write logins. Invariant: the space is reserved in
//! the way a login is written, so whatever would fail the write fails the reservation, too.

use std::fs;
use std::path::PathBuf;

use crate::file_lock::FileLock;
use crate::file_names::LoginNames;
use crate::folder_error::FolderError;
use crate::sealed_files::SealedFiles;

/// Number of blocks. Together they are larger than most logins.
const BLOCKS: usize = 512;
/// Size of a block, in bytes.
const BLOCK_SIZE: usize = 64;

/// Space on disk for one login. Free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ReservedSpace {
    path: PathBuf,
}

impl ReservedSpace {
    /// Reserves the space. The caller holds the login's refresh lock.
    pub(crate) fn take(
        files: &SealedFiles,
        lock: &FileLock,
        names: &LoginNames,
    ) -> Result<Self, FolderError> {
        let path = files.space_path(&names.stem);
        // Random, because some file systems compress.
        let blocks = std::iter::repeat_with(moongate_random::random_bytes::<BLOCK_SIZE>);
        let bytes: Vec<u8> = blocks.take(BLOCKS).flatten().collect();
        files.write_plain(lock, &path, &bytes)?;
        Ok(ReservedSpace { path })
    }
}

impl Drop for ReservedSpace {
    fn drop(&mut self) {
        // A leftover file is replaced by the next renewal.
        let _ = fs::remove_file(&self.path);
    }
}
