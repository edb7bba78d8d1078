//! What a failing link means for a call, in words that name the server and what can be done.

use std::time::Duration;

use crate::jsonrpc::RpcMessage;
use crate::link::LinkError;
use crate::model::{Error, McpErrorKind, Retryable};

/// The error for a call to `server` that failed on its link.
pub(super) fn from_link(server: &str, error: &LinkError) -> Error {
    match error {
        LinkError::Status { status, hint, message, retry_after } => {
            from_status(server, *status, hint, message.as_deref(), *retry_after)
        }
        LinkError::Protocol(reason) => protocol_error(server, reason),
        LinkError::TooLarge { .. } => {
            let message = format!(
                "Server \"{server}\" sent too much: {error}; raise servers.{server}.max_message if it should pass"
            );
            Error::new(McpErrorKind::ServerProtocol, message)
        }
        LinkError::Timeout(reason) => {
            Error::new(McpErrorKind::ServerTimeout, format!("Server \"{server}\" timed out: {reason}"))
        }
        LinkError::QueueFull(reason) => {
            Error::new(McpErrorKind::Overloaded, format!("Server \"{server}\" is overloaded: {reason}"))
        }
        LinkError::Spawn(reason) | LinkError::Unreachable(reason) | LinkError::NotSent(reason) => {
            server_down(server, reason).with_retryable(Retryable::NotSent)
        }
        LinkError::Closed(reason) => server_down(server, reason).with_retryable(Retryable::After(None)),
    }
}

fn from_status(server: &str, status: u16, hint: &str, message: Option<&RpcMessage>, retry_after: Option<u64>) -> Error {
    // A 4xx with a JSON-RPC error is the server's own answer; its host's refusals are not.
    if let (Some(RpcMessage::Response(response)), 400..=499) = (message, status)
        && let (Err(error), false) = (&response.outcome, matches!(status, 401 | 403 | 429))
    {
        return Error::from_server(error.clone());
    }
    let again = match status {
        429 | 500..=599 => Retryable::After(retry_after.map(Duration::from_secs)),
        _ => Retryable::No,
    };
    let wait = retry_after.map(|s| format!("; it asks to wait {} s", s.min(3600))).unwrap_or_default();
    Error::new(McpErrorKind::ServerRefused, format!("Server \"{server}\" refused: HTTP status {status}{hint}{wait}"))
        .with_retryable(again)
}

/// The server is not there.
pub(super) fn server_down(server: &str, reason: &str) -> Error {
    let message = format!("Server \"{server}\" is not available: {reason}. The gateway keeps trying to bring it back");
    Error::new(McpErrorKind::ServerDown, message)
}

/// The server broke the rules.
pub(super) fn protocol_error(server: &str, reason: &str) -> Error {
    Error::new(McpErrorKind::ServerProtocol, format!("Server \"{server}\" broke the protocol: {reason}"))
}

/// The server did not answer in time.
pub(super) fn timeout_error(server: &str, limit: Duration) -> Error {
    let message = format!(
        "Server \"{server}\" did not answer within {limit:?}; raise servers.{server}.timeout if that is too short"
    );
    Error::new(McpErrorKind::ServerTimeout, message)
}
