//! Evidence that a legacy server lost the session.
//!
//! Owns the reading of its errors. Pure functions without state. Invariant: an error about the
//! request's target is not evidence.

use crate::legacy::profile::RESOURCE_NOT_FOUND;
use moongate_jsonrpc::message::{RpcError, RpcMessage, RpcResponse, code};
use moongate_model::{Error, Retryable};
use moongate_transport::LinkError;

/// Evidence that the server lost the session.
#[derive(PartialEq)]
pub(crate) enum SessionLoss {
    No,
    /// The error looks like it, but the request may have run.
    Maybe,
    /// The error is the 404 that the specification demands.
    Proven,
}

/// Builds the error of a call whose session was lost and could not be renewed.
///
/// A call that may have run and changes something is not retryable, whatever error the renewal had.
pub(crate) fn renewal_error(failed: Error, proof: &SessionLoss, changes: bool) -> Error {
    if *proof == SessionLoss::Maybe && changes {
        failed.with_retryable(Retryable::No)
    } else {
        failed
    }
}

pub(crate) fn classify_loss(error: &LinkError, had_session: bool) -> SessionLoss {
    match error {
        LinkError::Status { status: 404, .. } if had_session => SessionLoss::Proven,
        // Some servers answer 400 for an unknown session. An error that does not mention sessions
        // is about the request.
        LinkError::Status {
            status: 400,
            message,
            ..
        } if had_session => match message.as_deref() {
            Some(RpcMessage::Response(RpcResponse {
                outcome: Err(error),
                ..
            })) if !error.message.to_lowercase().contains("session") => SessionLoss::No,
            _ => SessionLoss::Maybe,
        },
        _ => SessionLoss::No,
    }
}

/// Removes the server's message from the error of a lost session.
pub(crate) fn without_message(error: LinkError) -> LinkError {
    match error {
        LinkError::Status {
            status,
            hint,
            retry_after,
            challenge,
            ..
        } => LinkError::Status {
            status,
            hint,
            message: None,
            retry_after,
            challenge,
        },
        error => error,
    }
}

pub(crate) fn mentions_lost_session(error: &RpcError) -> bool {
    // These codes are about the request's target, whose name may contain any word.
    if matches!(
        error.code,
        code::METHOD_NOT_FOUND | code::INVALID_PARAMS | RESOURCE_NOT_FOUND
    ) {
        return false;
    }
    let text = error.message.to_lowercase();
    text.contains("session")
        && [
            "not found",
            "invalid",
            "expired",
            "unknown",
            "missing",
            "terminated",
        ]
        .iter()
        .any(|w| text.contains(w))
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_model::McpErrorKind;

    /// Returns the prospects of a retry after a renewal that did not reach its server.
    fn retryable_after(proof: SessionLoss, changes: bool) -> Retryable {
        let error = Error::new(McpErrorKind::ServerDown, "away").with_retryable(Retryable::NotSent);
        renewal_error(error, &proof, changes).retryable
    }

    #[test]
    fn a_call_that_may_have_run_is_not_retryable() {
        assert_eq!(retryable_after(SessionLoss::Maybe, true), Retryable::No);
        assert_eq!(
            [
                retryable_after(SessionLoss::Maybe, false),
                retryable_after(SessionLoss::Proven, true)
            ],
            [Retryable::NotSent; 2]
        );
    }
}
