//! Problems of logins that the operator should see.
//!
//! Owns their kinds, since each has its own fix. Does not detect them. Invariant: the cause
//! contains no token.

use crate::folder_error::FolderError;

/// Problem that keeps a login from being read, renewed or written to disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginProblem {
    /// Kind, which determines the fix.
    pub kind: LoginProblemKind,
    /// Cause, for people.
    pub cause: String,
}

/// Kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginProblemKind {
    /// The login folder, or a file in it, cannot be used.
    Folder,
    /// The login file cannot be opened.
    Damaged,
    /// The renewed login is only in memory.
    MemoryOnly,
    /// The authorization server did not renew the login.
    Renewal,
}

impl LoginProblem {
    /// Creates the problem for a folder error.
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

    /// Creates the problem for a login that its file does not have.
    pub(crate) fn memory_only(cause: String) -> Self {
        LoginProblem {
            kind: LoginProblemKind::MemoryOnly,
            cause,
        }
    }
}
