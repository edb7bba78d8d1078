//! Logins of a state folder, one sealed file each.
//!
//! Owns what processes share about a login: its grant, the answer that it waits for, and the lock
//! of its refresh. Does not talk to any server. Invariant: a grant that was written is on disk, so
//! a process that dies at any moment loses none.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moongate_platform::foreign_file;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::authorization_request::PendingLogin;
use crate::file_lock::FileLock;
use crate::file_names::LoginNames;
use crate::folder_error::FolderError;
use crate::grant::LoginGrant;
use crate::login_failures;
use crate::pending_files;
use crate::reserved_space::ReservedSpace;
use crate::sealed_files::{SealedFile, SealedFiles, SealedKind};
use crate::settings::LoginTarget;
use crate::token_endpoint::REFRESH_MAX;
use crate::wanted_scopes;

/// Longest wait for another process that is refreshing the same login: enough for a slow server and
/// the write that follows.
const REFRESH_PATIENCE: Duration = REFRESH_MAX.saturating_add(Duration::from_secs(10));
/// Length of the prefix in which any two writes of a file differ: the key's id and the nonce, in
/// base64.
const VERSION_LEN: usize = 24;

/// Logins of a state folder, shared by all processes: `<state>/logins/`, one sealed file a login.
/// All methods block.
#[derive(Clone, Debug)]
pub struct LoginFolder {
    files: Arc<SealedFiles>,
}

/// Version of a grant's file, which changes with every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantVersion([u8; VERSION_LEN]);

/// Lock for the refresh of one login, across processes. Ends when it is dropped.
#[derive(Debug)]
pub struct RefreshLock {
    _lock: FileLock,
}

/// Logins in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredLogins {
    /// Servers of the logins, in order.
    pub targets: Vec<LoginTarget>,
    /// Files that cannot be opened, so their servers are unknown.
    pub damaged: Vec<PathBuf>,
}

/// Grant with the server that it is for. Sealed on disk.
#[derive(Serialize, Deserialize)]
struct StoredGrant {
    server: String,
    url: Url,
    grant: LoginGrant,
}

impl StoredGrant {
    fn target(&self) -> LoginTarget {
        LoginTarget {
            server: self.server.clone(),
            url: self.url.clone(),
        }
    }
}

impl LoginFolder {
    /// Opens the logins of a state folder. Creates nothing until the first write. Fails if there
    /// are logins that the folder's secret can't open, because it is missing or unusable.
    pub fn open(state_folder: &Path) -> Result<LoginFolder, FolderError> {
        let files = SealedFiles::new(state_folder);
        files.check_secret()?;
        Ok(LoginFolder {
            files: Arc::new(files),
        })
    }

    /// Reads the grant of a login. `None` without a login.
    pub fn read_grant(&self, target: &LoginTarget) -> Result<Option<LoginGrant>, FolderError> {
        let names = LoginNames::of(target);
        let path = self.grant_path(&names);
        let read = self
            .files
            .read::<StoredGrant>(SealedKind::Grant, &path, &names.stem)?;
        match read {
            SealedFile::Absent => Ok(None),
            // The stem is shorter than the target, so it alone does not prove whose login it is.
            SealedFile::Intact(stored) if stored.target() == *target => Ok(Some(stored.grant)),
            SealedFile::Intact(_) | SealedFile::Damaged => Err(FolderError::Damaged {
                path,
                server: target.server.clone(),
            }),
        }
    }

    /// Writes the grant of a login. Returns once it is on disk, so that the caller may use it.
    pub fn write_grant(&self, target: &LoginTarget, grant: &LoginGrant) -> Result<(), FolderError> {
        let names = LoginNames::of(target);
        let path = self.grant_path(&names);
        let stored = StoredGrant {
            server: target.server.clone(),
            url: target.url.clone(),
            grant: grant.clone(),
        };
        let lock = self.files.lock()?;
        self.files
            .write(&lock, SealedKind::Grant, &path, &names.stem, &stored)
    }

    /// Lists the logins of all configs that use this folder.
    pub fn stored_logins(&self) -> Result<StoredLogins, FolderError> {
        let mut found = StoredLogins::default();
        for path in self.files.list(SealedKind::Grant)? {
            let stem = path.file_stem().unwrap_or_default();
            let stem = stem.to_string_lossy().into_owned();
            match self
                .files
                .read::<StoredGrant>(SealedKind::Grant, &path, &stem)?
            {
                SealedFile::Absent => {}
                SealedFile::Intact(stored) => found.targets.push(stored.target()),
                SealedFile::Damaged => found.damaged.push(path),
            }
        }
        found.targets.sort_unstable();
        found.damaged.sort_unstable();
        Ok(found)
    }

    /// Removes a damaged file that was listed. False if it is already gone.
    pub fn remove_damaged(&self, path: &Path) -> Result<bool, FolderError> {
        let lock = self.files.lock()?;
        self.files.remove(&lock, path)
    }

    /// Forgets a login, along with the scope that its calls need. False if there was none.
    pub fn remove_grant(&self, target: &LoginTarget) -> Result<bool, FolderError> {
        let names = LoginNames::of(target);
        let path = self.grant_path(&names);
        // A lock would create the folder.
        if !path.exists() {
            return Ok(false);
        }
        let lock = self.files.lock()?;
        wanted_scopes::remove(&self.files, &lock, &names)?;
        self.files.remove(&lock, &path)
    }

    /// Reads the scope that calls of a server need beyond that of its login.
    pub(crate) fn wanted_scope(&self, target: &LoginTarget) -> Result<Option<String>, FolderError> {
        wanted_scopes::read(&self.files, &LoginNames::of(target))
    }

    /// Keeps the scope that a call needs until the next login.
    pub(crate) fn add_wanted_scope(
        &self,
        target: &LoginTarget,
        scope: &str,
    ) -> Result<(), FolderError> {
        wanted_scopes::add(&self.files, &LoginNames::of(target), scope)
    }

    /// Forgets the scope that calls of a server need.
    pub(crate) fn forget_wanted_scope(&self, target: &LoginTarget) -> Result<(), FolderError> {
        let lock = self.files.lock()?;
        wanted_scopes::remove(&self.files, &lock, &LoginNames::of(target))
    }

    /// Reads the version of a grant's file, without decryption. `None` without a login. An error
    /// says nothing about the login: the process may just be out of file descriptors.
    pub fn grant_version(&self, target: &LoginTarget) -> Result<Option<GrantVersion>, FolderError> {
        let path = self.grant_path(&LoginNames::of(target));
        match read_version(&path) {
            Ok(version) => Ok(Some(version)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(FolderError::of_io(&path, cause)),
        }
    }

    /// Stores a login that waits for its answer. At most 100 wait, for ten minutes each, and the
    /// oldest is dropped first.
    pub fn put_pending(&self, pending: &PendingLogin) -> Result<(), FolderError> {
        pending_files::put(&self.files, pending)
    }

    /// True while a login waits for this state, and nobody has taken it.
    pub fn is_pending(&self, state: &str) -> bool {
        pending_files::is_waiting(&self.files, state)
    }

    /// Reads the login that waits for a state, and leaves it waiting.
    pub fn peek_pending(&self, state: &str) -> Result<Option<PendingLogin>, FolderError> {
        pending_files::peek(&self.files, state)
    }

    /// Takes the login that waits for a state, once across all processes.
    pub fn take_pending(&self, state: &str) -> Result<Option<PendingLogin>, FolderError> {
        pending_files::take(&self.files, state)
    }

    /// Keeps the reason why a login failed, for the process that waits for its result.
    pub(crate) fn put_failure(&self, state: &str, reason: &str) -> Result<(), FolderError> {
        login_failures::put(&self.files, state, reason)
    }

    /// Takes the reason why the login with this state failed, in whichever process. `None` if none
    /// is known.
    pub fn take_failure(&self, state: &str) -> Result<Option<String>, FolderError> {
        login_failures::take(&self.files, state)
    }

    /// Locks the refresh of one login across processes. Waits at most 70 s. Its holder must read
    /// the grant again, because the last holder may have renewed it.
    pub fn lock_refresh(&self, target: &LoginTarget) -> Result<RefreshLock, FolderError> {
        // A separate file, which nobody replaces or removes. A lock on the grant's file would be on
        // a file that the refresh itself replaces.
        let path = self.files.lock_path(&LoginNames::of(target).stem);
        match FileLock::acquire(&path, REFRESH_PATIENCE) {
            Ok(lock) => Ok(RefreshLock { _lock: lock }),
            Err(failure) => Err(FolderError::of_lock(&path, failure)),
        }
    }

    /// Reserves disk space for a login's grant. The caller holds its refresh lock.
    pub(crate) fn reserve_space(&self, target: &LoginTarget) -> Result<ReservedSpace, FolderError> {
        let lock = self.files.lock()?;
        ReservedSpace::take(&self.files, &lock, &LoginNames::of(target))
    }

    fn grant_path(&self, names: &LoginNames) -> PathBuf {
        self.files.path(SealedKind::Grant, &names.stem)
    }
}

fn read_version(path: &Path) -> io::Result<GrantVersion> {
    let mut start = Vec::with_capacity(VERSION_LEN);
    foreign_file::open(path)?
        .take(VERSION_LEN as u64)
        .read_to_end(&mut start)?;
    let mut version = [0; VERSION_LEN];
    version[..start.len()].copy_from_slice(&start);
    Ok(GrantVersion(version))
}

#[cfg(test)]
mod tests;
