//! File of one login, as its source reads and replaces it.
//!
//! Owns the comparison of versions. Does not refresh. Invariant: a file that another process has
//! changed is read and never replaced, so that no renewal undoes a login or a logout.

use crate::folder_error::FolderError;
use crate::grant::LoginGrant;
use crate::grant_source::held_grant::{HeldGrant, HeldLogin};
use crate::login_folder::{GrantVersion, LoginFolder, RefreshLock};
use crate::reserved_space::ReservedSpace;
use crate::settings::LoginTarget;

/// File of one login. All methods block.
#[derive(Clone)]
pub(super) struct GrantFile {
    folder: LoginFolder,
    target: LoginTarget,
}

/// Lock for one renewal across processes, with space for its result.
#[derive(Default)]
pub(super) struct RenewalLock {
    /// Before the lock, so that the space is free when the next renewal reserves its own.
    space: Option<ReservedSpace>,
    _lock: Option<RefreshLock>,
    /// Reason why the renewed login could not be written.
    pub(super) failure: Option<FolderError>,
}

impl RenewalLock {
    /// Frees the space, for the write that it was kept for.
    pub(super) fn free_space(&mut self) {
        drop(self.space.take());
    }
}

/// Login after an attempt to write it.
pub(super) struct StoredLogin {
    /// Login to use from now on.
    pub(super) login: HeldLogin,
    /// Reason why it is only in memory.
    pub(super) failure: Option<FolderError>,
}

impl GrantFile {
    pub(super) fn new(folder: LoginFolder, target: LoginTarget) -> Self {
        GrantFile { folder, target }
    }

    pub(super) fn version(&self) -> Result<Option<GrantVersion>, FolderError> {
        self.folder.grant_version(&self.target)
    }

    /// Reads the login. The version is read first. If the file is replaced in between, the next
    /// comparison finds another version, and the file is read again.
    pub(super) fn read(&self) -> Result<HeldLogin, FolderError> {
        let version = self.version()?;
        let grant = match version {
            Some(_) => self.folder.read_grant(&self.target)?,
            None => None,
        };
        Ok(HeldLogin {
            grant: grant.map(HeldGrant::new),
            version,
        })
    }

    /// Locks the refresh across processes. In a folder that cannot be written, the renewal goes
    /// ahead without a lock, because otherwise the login would be lost. Any other failure may be
    /// temporary, and without the lock, two processes could use the same refresh token.
    pub(super) fn lock(&self) -> Result<RenewalLock, FolderError> {
        let nothing = RenewalLock::default();
        match self.folder.lock_refresh(&self.target) {
            Ok(lock) => Ok(RenewalLock {
                _lock: Some(lock),
                ..nothing
            }),
            Err(failure) if failure.forbids_writes() => Ok(RenewalLock {
                failure: Some(failure),
                ..nothing
            }),
            Err(failure) => Err(failure),
        }
    }

    /// Reserves the space for a renewed login before its request is sent.
    pub(super) fn reserve_space(&self, lock: RenewalLock) -> RenewalLock {
        if lock.failure.is_some() {
            return lock;
        }
        match self.folder.reserve_space(&self.target) {
            Ok(space) => RenewalLock {
                space: Some(space),
                ..lock
            },
            Err(failure) => RenewalLock {
                failure: Some(failure),
                ..lock
            },
        }
    }

    /// Keeps the scope that a call needs until the next login.
    pub(super) fn add_wanted_scope(&self, scope: &str) -> Result<(), FolderError> {
        self.folder.add_wanted_scope(&self.target, scope)
    }

    /// Writes a grant, unless the file no longer has this version. Returns once the login may be
    /// used.
    pub(super) fn replace(&self, before: Option<GrantVersion>, grant: LoginGrant) -> StoredLogin {
        let written = self.version().and_then(|now| match now == before {
            true => self.folder.write_grant(&self.target, &grant),
            // Somebody logged in or out meanwhile, which takes precedence over a renewal.
            false => Ok(()),
        });
        match written.and_then(|()| self.read()) {
            Ok(login) => StoredLogin {
                login,
                failure: None,
            },
            Err(failure) => StoredLogin {
                login: HeldLogin {
                    grant: Some(HeldGrant::unsaved(grant)),
                    version: before,
                },
                failure: Some(failure),
            },
        }
    }
}
