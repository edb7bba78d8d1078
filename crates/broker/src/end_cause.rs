//! Ends of logins.
//!
//! Owns the causes, with their words for logs and metrics. Does not end a login. Invariant: a word
//! never changes, since dashboards and alerts name it.

/// Outcome of an order to end logins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOutcome {
    /// Ended for good, because no restart brings the login back.
    Synced,
    /// Ended while this process runs. The disk could not be written yet.
    InMemory,
    /// There was no such login.
    Unknown,
}

/// Cause of a login's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// The client gave its token back.
    Revoked,
    /// An operator ended it.
    Operator,
    /// An old refresh token or a used code came again.
    Replay,
    /// The company's login does not know the person any more.
    Provider,
    /// The longest time was over, or nobody used it.
    Expired,
    /// The person had too many logins.
    Crowded,
    /// The company's login answered for somebody else.
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
