//! Expiry check for credentials.
//!
//! Owns the comparison with the clock. Does not end sessions or connections. Invariant: credentials
//! are refused from the expiry time on, that moment included.

/// Returns true if the time from which credentials are refused has come.
pub(super) fn is_past(expires: Option<jiff::Timestamp>) -> bool {
    expires.is_some_and(|expires| jiff::Timestamp::now() >= expires)
}
