//! Failures of the store of logins.
//!
//! Owns their words. Does not answer clients. Invariant: nothing of a row is in a failure.

/// Failure of the store of logins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreFault {
    /// Rows of the previous process were not read yet.
    #[error("people's logins have not been loaded yet")]
    NotReady,
    /// The disk cannot be written.
    #[error("the state file cannot be written")]
    Unwritable,
    /// There are as many rows as there may be.
    #[error("there are too many logins")]
    Full,
    /// The row is gone, or another one by now.
    #[error("the login has ended or changed")]
    Gone,
}
