//! Parts of a sleeping session that its record does not have.
//!
//! Owns what a restart of the process would lose. Does not decide who sleeps (`sleeping.rs`).
//! Invariant: tasks that wait for the session's end keep waiting while it sleeps.

use moongate_jsonrpc::json::ByteString;
use moongate_model::Caller;
use tokio_util::sync::CancellationToken;

use crate::resumption::ResumePosition;

/// Parts of a sleeping session that a restart would lose.
#[derive(Clone, Debug)]
pub(super) struct SleepState {
    /// Token of the session's end. Tasks that wait for it keep waiting.
    pub(super) ended: CancellationToken,
    pub(super) headers: Vec<(ByteString, ByteString)>,
    pub(super) next_request: u64,
    pub(super) resume_position: ResumePosition,
    /// True if a subscription ended with the sleep, so that list changes may be missed.
    pub(super) pending_catch_up: bool,
    /// Last use, on the session table's clock.
    pub(super) used_ms: u64,
}

impl SleepState {
    pub(super) fn size(&self) -> usize {
        self.headers
            .iter()
            .map(|(name, value)| name.len() + value.len() + 2 * size_of::<ByteString>())
            .sum()
    }

    /// Restores the caller, with the token of its session's end.
    pub(super) fn restore_caller(&self, caller: Caller) -> Caller {
        Caller {
            forwarded_headers: self.headers.clone(),
            ..caller
        }
    }
}
