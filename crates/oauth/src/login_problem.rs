//! Problems of logins that the operator should see.
//!
//! Owns their kinds, since each has its own way out. Does not look for them. Invariant: the cause
//! has no token.

use crate::folder_error::FolderError;

/// Problem that keeps a login from being read, renewed or written to disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginProblem {
    /// Kind, which decides about the way out.
    pub kind: LoginProblemKind,
    /// Cause, for people.
    pub cause: String,
}

/// Kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginProblemKind {
    /// The folder of logins, or a file in it, cannot be used.
    Folder,
    /// The file of the login does not open.
    Damaged,
    /// The renewed login is in memory alone.
    MemoryOnly,
    /// The authorization server did not renew the login.
    Renewal,
}

impl LoginProblem {
    /// Creates the problem of an error in the folder.
    pub(crate) fn of_folder(failure: &FolderError) -> Self {
        let kind = match failure {
            FolderError::Damaged { .. } => LoginProblemKind::Damaged,
            _ => LoginProblemKind::Folder,
        };
        LoginProblem {
            kind,
            cause: failure.to_string(),
        }
    }

    /// Creates the problem of a login that its file does not have.
    pub(crate) fn memory_only(cause: String) -> Self {
        LoginProblem {
            kind: LoginProblemKind::MemoryOnly,
            cause,
        }
    }
}
