//! End of credentials by the clock.
//!
//! Owns the comparison. Does not end anything. Invariant: the time itself is past already.

/// Returns true if the time from which credentials are refused has come.
pub(super) fn is_past(expires: Option<jiff::Timestamp>) -> bool {
    expires.is_some_and(|expires| jiff::Timestamp::now() >= expires)
}
