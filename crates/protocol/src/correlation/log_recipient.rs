//! Recipient of a log message on a shared pipe.
//!
//! Owns the choice among the open calls. Does not filter by level. Invariant: a message that could
//! be about another principal's call goes to nobody.

use crate::PendingCalls;

/// Relation between a call and the log messages on a shared pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogInterest {
    /// No log message is about it. The call is the gateway's own, or its revision forbids logs that
    /// were not requested.
    Never,
    /// Log messages may be about it, and this principal does not want them.
    Unwanted(u32),
    /// Log messages may be about it, and this principal wants them.
    Wanted(u32),
}

impl PendingCalls {
    /// Picks the call for a log message, which carries no call id.
    ///
    /// That is the only call that wants logs, unless the message could be about another principal.
    pub(super) fn sole_log_recipient(&self) -> Option<u64> {
        let id = self.sole_match(|open| matches!(open.logs, LogInterest::Wanted(_)))?;
        let open = self.0.open.lock();
        let principal = open.get(&id)?.logs.principal();
        let is_alone = open
            .values()
            .filter_map(|call| call.logs.principal())
            .all(|other| Some(other) == principal);
        let is_certain = is_alone
            && !self.any_cancelled(|cancelled| {
                cancelled.owner.as_ref().map(|owner| owner.principal) != principal
            });
        is_certain.then_some(id)
    }
}

impl LogInterest {
    /// Returns the principal whose call log messages may be about.
    fn principal(self) -> Option<u32> {
        match self {
            LogInterest::Never => None,
            LogInterest::Unwanted(principal) | LogInterest::Wanted(principal) => Some(principal),
        }
    }
}
