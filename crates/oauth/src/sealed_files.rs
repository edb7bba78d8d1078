//! Sealed files in `<state folder>/logins`, which all processes of a state folder share.
//!
//! Owns the folder's lock, the seal, and the size of files. Does not know what a file says or how
//! long it is valid. Invariant: a written file is complete and on disk, and it opens only under the
//! name that it was sealed with.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moongate_platform::foreign_file;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable_file;
use crate::file_lock::FileLock;
use crate::folder_error::FolderError;
use crate::root_secret::{GRANT_ENDING, LOGINS_FOLDER, RootSecret, SecretError};

/// Maximum size of a file, in bytes.
const SIZE_MAX: u64 = 64 << 10;
/// Longest wait for another process that is writing. A write takes milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of files of one kind that are listed.
const LISTED_MAX: usize = 1_000;

/// Kind of sealed file. Each has its own key.
#[derive(Clone, Copy)]
pub(crate) enum SealedKind {
    Grant,
    Pending,
    WantedScope,
    Failure,
}

impl SealedKind {
    fn ending(self) -> &'static str {
        match self {
            SealedKind::Grant => GRANT_ENDING,
            SealedKind::Pending => "pending",
            SealedKind::WantedScope => "scope",
            SealedKind::Failure => "failure",
        }
    }

    /// Purpose of the key. Stored files depend on it.
    fn purpose(self) -> &'static str {
        match self {
            SealedKind::Grant => "moongate grants",
            SealedKind::Pending => "moongate pending logins",
            SealedKind::WantedScope => "moongate wanted scopes",
            SealedKind::Failure => "moongate login failures",
        }
    }
}

/// Sealed file, as found.
pub(crate) enum SealedFile<T> {
    /// It does not exist.
    Absent,
    /// It cannot be opened: truncated, altered, or sealed with another secret or under another
    /// name.
    Damaged,
    /// It opened.
    Intact(T),
}

/// Folder of sealed files.
#[derive(Debug)]
pub(crate) struct SealedFiles {
    state_folder: PathBuf,
    folder: PathBuf,
}

impl SealedFiles {
    /// Names the folder, and creates nothing.
    pub(crate) fn new(state_folder: &Path) -> Self {
        SealedFiles {
            state_folder: state_folder.to_owned(),
            folder: state_folder.join(LOGINS_FOLDER),
        }
    }

    /// Checks that what is sealed here can be opened.
    pub(crate) fn check_secret(&self) -> Result<(), FolderError> {
        RootSecret::find(&self.state_folder)?;
        Ok(())
    }

    /// Creates the secret, if nothing has been sealed yet.
    pub(crate) fn make_secret(&self) -> Result<(), FolderError> {
        RootSecret::open(&self.state_folder)?;
        Ok(())
    }

    /// Returns the path of a file.
    pub(crate) fn path(&self, kind: SealedKind, stem: &str) -> PathBuf {
        self.folder.join(format!("{stem}.{}", kind.ending()))
    }

    /// Returns the path of the lock that goes with a file.
    pub(crate) fn lock_path(&self, stem: &str) -> PathBuf {
        self.folder.join(format!("{stem}.lock"))
    }

    /// Returns the path of the file that reserves space for a login.
    pub(crate) fn space_path(&self, stem: &str) -> PathBuf {
        self.folder.join(format!("{stem}.space"))
    }

    /// Locks the folder for a write. Creates the folder if necessary.
    pub(crate) fn lock(&self) -> Result<FileLock, FolderError> {
        let path = self.folder.join("lock");
        FileLock::acquire(&path, LOCK_PATIENCE)
            .map_err(|failure| FolderError::of_lock(&path, failure))
    }

    /// Reads a file that was sealed under this name. Needs no lock.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        kind: SealedKind,
        path: &Path,
        name: &str,
    ) -> Result<SealedFile<T>, FolderError> {
        let bytes = match foreign_file::read(path, SIZE_MAX) {
            Ok(bytes) => bytes,
            Err(cause) => {
                return match cause.kind() {
                    io::ErrorKind::NotFound => Ok(SealedFile::Absent),
                    io::ErrorKind::FileTooLarge => Ok(SealedFile::Damaged),
                    _ => Err(FolderError::of_io(path, cause)),
                };
            }
        };
        // After the file, because the secret is created before the first file. Each time, because a
        // person who starts over with an empty folder gets a new secret.
        let Some(secret) = RootSecret::read(&self.state_folder)? else {
            return Err(SecretError::missing(&self.state_folder).into());
        };
        let seal = secret.row_seal(kind.purpose());
        let opened = std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| seal.open(name, text.trim_end()))
            .and_then(|plain| serde_json::from_slice(&plain).ok());
        Ok(opened.map_or(SealedFile::Damaged, SealedFile::Intact))
    }

    /// Seals a value under a name, and replaces its file. Returns once it is on disk.
    pub(crate) fn write<T: Serialize>(
        &self,
        lock: &FileLock,
        kind: SealedKind,
        path: &Path,
        name: &str,
        value: &T,
    ) -> Result<(), FolderError> {
        let secret = RootSecret::open(&self.state_folder)?;
        let plain = serde_json::to_vec(value).expect("a login is JSON");
        let mut sealed = secret.row_seal(kind.purpose()).seal(name, &plain);
        sealed.push('\n');
        if sealed.len() as u64 > SIZE_MAX {
            return Err(FolderError::TooLarge {
                path: path.to_owned(),
            });
        }
        self.write_plain(lock, path, sealed.as_bytes())
    }

    /// Replaces a file with these bytes, unsealed. Returns once it is on disk.
    pub(crate) fn write_plain(
        &self,
        _lock: &FileLock,
        path: &Path,
        bytes: &[u8],
    ) -> Result<(), FolderError> {
        durable_file::write(path, bytes).map_err(|cause| FolderError::of_io(path, cause))
    }

    /// Removes a file. False if there was none. Returns once it is gone from the disk.
    pub(crate) fn remove(&self, _lock: &FileLock, path: &Path) -> Result<bool, FolderError> {
        durable_file::remove(path).map_err(|cause| FolderError::of_io(path, cause))
    }

    /// Lists the files of a kind, up to a limit, in file system order.
    pub(crate) fn list(&self, kind: SealedKind) -> Result<Vec<PathBuf>, FolderError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(FolderError::of_io(&self.folder, cause)),
        };
        let is_of_kind = |path: &PathBuf| path.extension() == Some(kind.ending().as_ref());
        Ok(entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(is_of_kind)
            .take(LISTED_MAX)
            .collect())
    }
}
