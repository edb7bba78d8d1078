//! Errors of the login folder.
//!
//! Owns their texts. Invariant: each one names the file and what to do about it, and quotes nothing
//! from the file.

use std::io;
use std::path::{Path, PathBuf};

use crate::file_lock::LockFailure;
use crate::root_secret::SecretError;

/// Reason why a login was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The disk or the quota is full.
    #[error("no space left to write {}: free some space ({cause})", path.display())]
    Full {
        /// File that was being written.
        path: PathBuf,
        /// Operating system error.
        cause: io::Error,
    },
    /// Any other operating system error.
    #[error("{} cannot be used: {cause}{}", path.display(), fix_of(cause))]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Operating system error.
        cause: io::Error,
    },
    /// The root secret cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Another process has held a lock for too long.
    #[error(
        "another process holds {} and does not release it: stop that process, or try again",
        path.display()
    )]
    Busy {
        /// Lock file.
        path: PathBuf,
    },
    /// The login file was not sealed with this secret for this server.
    #[error(
        "the login in {} is damaged, or belongs to another secret or server: run \
         `moongate login {server}`",
        path.display()
    )]
    Damaged {
        /// File.
        path: PathBuf,
        /// Server that the login is for.
        server: String,
    },
    /// The file of an unfinished login was not sealed with this secret.
    #[error("the unfinished login in {} is damaged: start the login again", path.display())]
    DamagedPending {
        /// File.
        path: PathBuf,
    },
    /// The login is larger than a file may be.
    #[error(
        "{} would be larger than 64 KiB: the authorization server sent tokens that are too long",
        path.display()
    )]
    TooLarge {
        /// File.
        path: PathBuf,
    },
}

impl FolderError {
    /// Classifies an operating system error.
    pub(crate) fn of_io(path: &Path, cause: io::Error) -> FolderError {
        let path = path.to_owned();
        match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                FolderError::Full { path, cause }
            }
            _ => FolderError::Io { path, cause },
        }
    }

    /// Returns true if nothing can be written here, until a person fixes it.
    pub(crate) fn forbids_writes(&self) -> bool {
        match self {
            FolderError::Full { .. } => true,
            FolderError::Io { cause, .. } => matches!(
                cause.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ),
            FolderError::Secret(_)
            | FolderError::Busy { .. }
            | FolderError::Damaged { .. }
            | FolderError::DamagedPending { .. }
            | FolderError::TooLarge { .. } => false,
        }
    }

    /// Builds the error of a lock that was not taken.
    pub(crate) fn of_lock(path: &Path, failure: LockFailure) -> FolderError {
        match failure {
            LockFailure::Busy => FolderError::Busy {
                path: path.to_owned(),
            },
            LockFailure::Io(cause) => FolderError::of_io(path, cause),
        }
    }
}

/// Writes the fix for an operating system error that doesn't name it itself.
fn fix_of(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; give this user write access, or name another folder in gateway.state_dir"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(kind: io::ErrorKind) -> FolderError {
        FolderError::of_io(Path::new("state/logins/a.grant"), io::Error::from(kind))
    }

    #[test]
    fn errors_name_the_file_and_the_fix() {
        let full = error_of(io::ErrorKind::StorageFull);
        assert!(matches!(full, FolderError::Full { .. }), "{full}");
        assert!(full.to_string().contains("free some space"), "{full}");
        let refused = error_of(io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("state_dir"), "{refused}");
        assert!(refused.to_string().contains("a.grant"), "{refused}");
    }

    #[test]
    fn only_a_full_or_closed_disk_forbids_writes() {
        use io::ErrorKind;
        for (kind, expected) in [
            (ErrorKind::StorageFull, true),
            (ErrorKind::PermissionDenied, true),
            (ErrorKind::ReadOnlyFilesystem, true),
            (ErrorKind::Interrupted, false),
            (ErrorKind::NotFound, false),
            (ErrorKind::Other, false),
        ] {
            assert_eq!(error_of(kind).forbids_writes(), expected, "{kind}");
        }
        let path = PathBuf::from("state/logins/a.lock");
        assert!(!FolderError::Busy { path }.forbids_writes());
    }
}
