//! Files of logins that are waiting for their answer.
//!
//! Owns their number and age, and takes each only once. Does not check answers. Invariant: a login
//! is taken at most once across all processes, and never after ten minutes.

use jiff::{SignedDuration, Timestamp};

use crate::authorization_request::PendingLogin;
use crate::file_lock::FileLock;
use crate::file_names::hex_digest;
use crate::folder_error::FolderError;
use crate::sealed_files::{SealedFile, SealedFiles, SealedKind};

/// Number of logins that may wait.
const PENDING_MAX: usize = 100;
/// Time that a login may wait.
const PENDING_LIFE: SignedDuration = SignedDuration::from_mins(10);
/// Length of a file name: 128 bits, so that nobody finds a second state with the same name.
const STEM_LEN: usize = 32;

/// Stores a login that starts to wait. If there are too many, the oldest is removed.
pub(crate) fn put(files: &SealedFiles, pending: &PendingLogin) -> Result<(), FolderError> {
    let lock = files.lock()?;
    // First, so that unfinished logins of an earlier secret are removed and don't matter.
    files.make_secret()?;
    make_room(files, &lock)?;
    let stem = stem_of(pending.state.expose());
    let path = files.path(SealedKind::Pending, &stem);
    files.write(&lock, SealedKind::Pending, &path, &stem, pending)
}

/// Returns the name of a state's files, without the extension.
pub(crate) fn stem_of(state: &str) -> String {
    hex_digest(state, STEM_LEN)
}

/// True if the file of a state exists. It may already be too old.
pub(crate) fn is_waiting(files: &SealedFiles, state: &str) -> bool {
    let stem = stem_of(state);
    files.path(SealedKind::Pending, &stem).exists()
}

/// Reads the login of a state, and leaves it waiting. `None` if no login waits for this state.
pub(crate) fn peek(files: &SealedFiles, state: &str) -> Result<Option<PendingLogin>, FolderError> {
    let stem = stem_of(state);
    let path = files.path(SealedKind::Pending, &stem);
    match files.read::<PendingLogin>(SealedKind::Pending, &path, &stem)? {
        SealedFile::Intact(pending) => Ok(Some(pending).filter(|it| answers(it, state))),
        SealedFile::Absent => Ok(None),
        SealedFile::Damaged => Err(FolderError::DamagedPending { path }),
    }
}

/// Takes the login of a state. `None` if no login waits for this state.
pub(crate) fn take(files: &SealedFiles, state: &str) -> Result<Option<PendingLogin>, FolderError> {
    let stem = stem_of(state);
    let path = files.path(SealedKind::Pending, &stem);
    // Before the lock, because anybody may send a state, and only a real one is worth a wait.
    if !path.exists() {
        return Ok(None);
    }
    let lock = files.lock()?;
    let found = files.read::<PendingLogin>(SealedKind::Pending, &path, &stem)?;
    // It is gone before anything else happens, so no second answer can use it.
    files.remove(&lock, &path)?;
    match found {
        SealedFile::Absent => Ok(None),
        SealedFile::Damaged => Err(FolderError::DamagedPending { path }),
        SealedFile::Intact(pending) => Ok(Some(pending).filter(|it| answers(it, state))),
    }
}

/// True if a login waits for this state.
fn answers(pending: &PendingLogin, state: &str) -> bool {
    pending.state.expose() == state && is_open(pending, Timestamp::now())
}

/// Removes logins that waited too long or can't be opened, and the oldest if the folder is full.
fn make_room(files: &SealedFiles, lock: &FileLock) -> Result<(), FolderError> {
    let now = Timestamp::now();
    let mut waiting = Vec::new();
    for path in files.list(SealedKind::Pending)? {
        let stem = path.file_stem().unwrap_or_default();
        let stem = stem.to_string_lossy().into_owned();
        match files.read::<PendingLogin>(SealedKind::Pending, &path, &stem)? {
            SealedFile::Intact(pending) if is_open(&pending, now) => {
                waiting.push((pending.started, path));
            }
            _ => {
                files.remove(lock, &path)?;
            }
        }
    }
    waiting.sort_unstable();
    let surplus = (waiting.len() + 1).saturating_sub(PENDING_MAX);
    for (_, path) in waiting.drain(..surplus) {
        files.remove(lock, &path)?;
    }
    Ok(())
}

/// True while a login may be answered. One from the future counts as too old, because the clock was
/// set back.
fn is_open(pending: &PendingLogin, now: Timestamp) -> bool {
    now.duration_since(pending.started).abs() < PENDING_LIFE
}
