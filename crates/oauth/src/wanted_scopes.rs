//! Files with the scopes that servers asked for during calls.
//!
//! Owns how the scopes of several calls become one set. Does not log in. Invariant: a file is
//! small, and the next call asks again for whatever it lacks.

use serde::{Deserialize, Serialize};

use crate::file_lock::FileLock;
use crate::file_names::LoginNames;
use crate::folder_error::FolderError;
use crate::scope::ScopeSet;
use crate::sealed_files::{SealedFile, SealedFiles, SealedKind};

/// Scope that calls of a server need, until a login asks for it. Sealed on disk.
#[derive(Serialize, Deserialize)]
struct WantedScope {
    /// Scopes separated by spaces.
    scope: String,
}

/// Reads the scope that calls need. A file that cannot be opened counts as missing.
pub(crate) fn read(files: &SealedFiles, names: &LoginNames) -> Result<Option<String>, FolderError> {
    let kind = SealedKind::WantedScope;
    let path = files.path(kind, &names.stem);
    let read = files.read::<WantedScope>(kind, &path, &names.stem)?;
    Ok(match read {
        SealedFile::Intact(wanted) => Some(wanted.scope),
        SealedFile::Absent | SealedFile::Damaged => None,
    })
}

/// Adds the scope that a call needs to that of other calls.
pub(crate) fn add(files: &SealedFiles, names: &LoginNames, scope: &str) -> Result<(), FolderError> {
    let lock = files.lock()?;
    let before = read(files, names)?;
    let mut wanted = before.as_deref().map(ScopeSet::parse).unwrap_or_default();
    wanted.union(&ScopeSet::parse(scope));
    let Some(scope) = wanted.into_text() else {
        return Ok(());
    };
    // A client may repeat its call, which should not cost a write each time.
    if before.as_ref() == Some(&scope) {
        return Ok(());
    }
    let kind = SealedKind::WantedScope;
    let path = files.path(kind, &names.stem);
    files.write(&lock, kind, &path, &names.stem, &WantedScope { scope })
}

/// Forgets the scope that calls need.
pub(crate) fn remove(
    files: &SealedFiles,
    lock: &FileLock,
    names: &LoginNames,
) -> Result<(), FolderError> {
    let path = files.path(SealedKind::WantedScope, &names.stem);
    files.remove(lock, &path)?;
    Ok(())
}
