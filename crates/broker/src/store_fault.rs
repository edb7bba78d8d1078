//! Failures of the login store.
//!
//! Owns their text. Does not answer clients. Invariant: a failure contains nothing from a row.

/// Failure of the login store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreFault {
    /// The rows of the previous process are not loaded yet.
    #[error("people's logins have not been loaded yet")]
    NotReady,
    /// The disk cannot be written.
    #[error("the state file cannot be written")]
    Unwritable,
    /// The store is full.
    #[error("there are too many logins")]
    Full,
    /// The row is gone or has changed.
    #[error("the login has ended or changed")]
    Gone,
}
