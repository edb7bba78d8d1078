//! Files with the reasons why logins failed, for a process that waits for one.
//!
//! Owns their age, and that each is read once. Does not finish logins. Invariant: a reason is our
//! own text, and the next failure removes it once it is ten minutes old.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::file_lock::FileLock;
use crate::folder_error::FolderError;
use crate::pending_files::stem_of;
use crate::sealed_files::{SealedFile, SealedFiles, SealedKind};

/// Time for which a reason is kept.
const FAILURE_LIFE: SignedDuration = SignedDuration::from_mins(10);

/// Failure of a login. Sealed on disk.
#[derive(Serialize, Deserialize)]
struct LoginFailure {
    reason: String,
    at: Timestamp,
}

impl LoginFailure {
    fn is_recent(&self) -> bool {
        Timestamp::now().duration_since(self.at).abs() < FAILURE_LIFE
    }
}

/// Keeps the reason why the login with this state failed.
pub(crate) fn put(files: &SealedFiles, state: &str, reason: &str) -> Result<(), FolderError> {
    let lock = files.lock()?;
    clear_old(files, &lock)?;
    let kind = SealedKind::Failure;
    let stem = stem_of(state);
    let failure = LoginFailure {
        reason: reason.to_owned(),
        at: Timestamp::now(),
    };
    files.write(&lock, kind, &files.path(kind, &stem), &stem, &failure)
}

/// Takes the reason why the login with this state failed. `None` if none is known.
pub(crate) fn take(files: &SealedFiles, state: &str) -> Result<Option<String>, FolderError> {
    let kind = SealedKind::Failure;
    let stem = stem_of(state);
    let path = files.path(kind, &stem);
    // A lock would create the folder, and most logins do not fail.
    if !path.exists() {
        return Ok(None);
    }
    let lock = files.lock()?;
    let found = files.read::<LoginFailure>(kind, &path, &stem)?;
    files.remove(&lock, &path)?;
    Ok(match found {
        SealedFile::Intact(failure) if failure.is_recent() => Some(failure.reason),
        SealedFile::Intact(_) | SealedFile::Absent | SealedFile::Damaged => None,
    })
}

/// Removes the reasons that nobody has picked up.
fn clear_old(files: &SealedFiles, lock: &FileLock) -> Result<(), FolderError> {
    let kind = SealedKind::Failure;
    for path in files.list(kind)? {
        let stem = path.file_stem().unwrap_or_default();
        let stem = stem.to_string_lossy().into_owned();
        match files.read::<LoginFailure>(kind, &path, &stem)? {
            SealedFile::Intact(failure) if failure.is_recent() => {}
            SealedFile::Intact(_) | SealedFile::Absent | SealedFile::Damaged => {
                files.remove(lock, &path)?;
            }
        }
    }
    Ok(())
}
