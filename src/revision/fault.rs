//! What a failing link means for a call, in words that name the server and what can be done.

use std::time::Duration;

use crate::jsonrpc::Message;
use crate::link::LinkError;
use crate::model::{Again, Error, Reason};

/// The error for a call to `server` that failed on its link.
pub(super) fn of_link(server: &str, error: &LinkError) -> Error {
    match error {
        LinkError::Status { status, hint, message, retry_after } => {
            of_status(server, *status, hint, message.as_deref(), *retry_after)
        }
        LinkError::Protocol(reason) => protocol(server, reason),
        LinkError::TooLarge { .. } => {
            let message = format!(
                "Server \"{server}\" sent too much: {error}; raise servers.{server}.max_message if it should pass"
            );
            Error::new(Reason::ServerProtocol, message)
        }
        LinkError::Timeout(reason) => {
            Error::new(Reason::ServerTimeout, format!("Server \"{server}\" timed out: {reason}"))
        }
        LinkError::Full(reason) => {
            Error::new(Reason::Overloaded, format!("Server \"{server}\" is overloaded: {reason}"))
        }
        LinkError::Unstartable(reason) | LinkError::Unreachable(reason) | LinkError::Unsent(reason) => {
            down(server, reason).with_again(Again::Unsent)
        }
        LinkError::Gone(reason) => down(server, reason).with_again(Again::Later(None)),
    }
}

fn of_status(server: &str, status: u16, hint: &str, message: Option<&Message>, retry_after: Option<u64>) -> Error {
    // A 4xx with a JSON-RPC error is the server's own answer; its host's refusals are not.
    if let (Some(Message::Response(response)), 400..=499) = (message, status)
        && let (Err(error), false) = (&response.outcome, matches!(status, 401 | 403 | 429))
    {
        return Error::answered(error.clone());
    }
    let again = match status {
        429 | 500..=599 => Again::Later(retry_after.map(Duration::from_secs)),
        _ => Again::No,
    };
    let wait = retry_after.map(|s| format!("; it asks to wait {} s", s.min(3600))).unwrap_or_default();
    Error::new(Reason::ServerRefused, format!("Server \"{server}\" refused: HTTP status {status}{hint}{wait}"))
        .with_again(again)
}

/// The server is not there.
pub(super) fn down(server: &str, reason: &str) -> Error {
    let message = format!("Server \"{server}\" is not available: {reason}. The gateway keeps trying to bring it back");
    Error::new(Reason::ServerDown, message)
}

/// The server broke the rules.
pub(super) fn protocol(server: &str, reason: &str) -> Error {
    Error::new(Reason::ServerProtocol, format!("Server \"{server}\" broke the protocol: {reason}"))
}

/// The server did not answer in time.
pub(super) fn timeout(server: &str, limit: Duration) -> Error {
    let message = format!(
        "Server \"{server}\" did not answer within {limit:?}; raise servers.{server}.timeout if that is too short"
    );
    Error::new(Reason::ServerTimeout, message)
}
