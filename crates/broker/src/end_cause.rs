//! Causes and outcomes of ended logins.
//!
//! Owns their words for logs and metrics. Does not end logins. Invariant: a word never changes,
//! since dashboards and alerts use it.

/// Outcome of ending logins on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOutcome {
    /// Ended for good: a restart does not restore the login.
    Synced,
    /// Ended in memory only, because the disk could not be written yet.
    InMemory,
    /// There was no such login.
    Unknown,
}

/// Cause of a login's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// The client revoked its token.
    Revoked,
    /// An operator ended it.
    Operator,
    /// An old refresh token or a used code was sent again.
    Replay,
    /// The company's login no longer accepts the person.
    Provider,
    /// It reached its maximum age, or was not used for too long.
    Expired,
    /// The person had too many logins.
    Crowded,
    /// The company's login answered for a different person.
    OtherSubject,
}

impl EndCause {
    /// Returns the word for logs and metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            EndCause::Revoked => "revoked",
            EndCause::Operator => "operator",
            EndCause::Replay => "replay",
            EndCause::Provider => "provider",
            EndCause::Expired => "expired",
            EndCause::Crowded => "crowded",
            EndCause::OtherSubject => "other_subject",
        }
    }
}
