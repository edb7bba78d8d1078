//! Errors of calls whose link failed, in words that name the server and a remedy.
//!
//! Owns the conversion of link errors to call errors. Does not retry. Invariant: only a request
//! that was not sent is marked as such.

use std::time::Duration;

use crate::connect_options::ConnectOptions;
use moongate_jsonrpc::message::RpcMessage;
use moongate_model::{Error, McpErrorKind, Retryable, login_command, login_sentence};
use moongate_transport::LinkError;

/// Converts a link's failure into the error of a call on a connection with these options.
pub(super) fn from_connection(options: &ConnectOptions, error: &LinkError) -> Error {
    match error {
        // Without a credential in the config, the way to another one is a login.
        LinkError::Status { status: 401, .. } if options.accepts_login => {
            login_error(&options.server)
        }
        LinkError::Status {
            challenge: Some(challenge),
            ..
        } if options.accepts_login && challenge.wants_more_scope() => scope_error(&options.server),
        error => from_link(&options.server, error),
    }
}

/// Builds the error of a call to a server that needs a login.
fn login_error(server: &str) -> Error {
    Error::new(McpErrorKind::ServerRefused, login_sentence(server))
}

/// Builds the error of a call that needs more scope than the login has.
fn scope_error(server: &str) -> Error {
    let command = login_command(server);
    let message = format!("{server} needs a login with more scope for this call: {command}");
    Error::new(McpErrorKind::ServerRefused, message)
}

/// Converts a link's failure into the error of a call to `server`.
pub(super) fn from_link(server: &str, error: &LinkError) -> Error {
    match error {
        LinkError::Status {
            status,
            hint,
            message,
            retry_after,
            challenge: _,
        } => from_status(server, *status, hint, message.as_deref(), *retry_after),
        LinkError::Protocol(reason) => protocol_error(server, reason),
        LinkError::TooLarge { .. } => {
            let message = format!(
                "Server \"{server}\" sent too much: {error}; raise servers.{server}.max_message to \
                 let it pass"
            );
            Error::new(McpErrorKind::ServerProtocol, message)
        }
        LinkError::MemoryExhausted(exhausted) => Error::new(
            McpErrorKind::Overloaded,
            format!("Server \"{server}\" sent a message that was dropped: {exhausted}"),
        ),
        LinkError::Timeout(reason) => Error::new(
            McpErrorKind::ServerTimeout,
            format!("Server \"{server}\" timed out: {reason}"),
        ),
        LinkError::QueueFull(reason) => Error::new(
            McpErrorKind::Overloaded,
            format!("Server \"{server}\" is overloaded: {reason}"),
        )
        .with_retryable(Retryable::NotSent),
        LinkError::Spawn(reason) | LinkError::Unreachable(reason) | LinkError::NotSent(reason) => {
            server_down(server, reason).with_retryable(Retryable::NotSent)
        }
        // The server may have read the request before the link closed, so it may have run.
        LinkError::Closed(reason) => {
            server_down(server, reason).with_retryable(Retryable::After(None))
        }
    }
}

fn from_status(
    server: &str,
    status: u16,
    hint: &str,
    message: Option<&RpcMessage>,
    retry_after: Option<u64>,
) -> Error {
    // A JSON-RPC error comes from the server itself, which is therefore up. These statuses say what
    // the host requires, and the error's words are in the hint.
    let is_hosts = matches!(status, 401 | 403 | 408 | 429 | 502..=504);
    if let Some(RpcMessage::Response(response)) = message
        && let (Err(error), false) = (&response.outcome, is_hosts)
    {
        return Error::from_server(error.clone());
    }
    let retryable = match status {
        // A proxy may have passed the request on before it failed. Only safe calls are sent again.
        408 | 429 | 500..=599 => Retryable::After(retry_after.map(Duration::from_secs)),
        _ => Retryable::No,
    };
    let wait = retry_after
        .map(|s| format!("; it asks to wait {} s", s.min(3600)))
        .unwrap_or_default();
    Error::new(
        McpErrorKind::ServerRefused,
        format!("Server \"{server}\" refused: HTTP status {status}{hint}{wait}"),
    )
    .with_retryable(retryable)
}

/// Builds the error for an unavailable server.
pub(super) fn server_down(server: &str, reason: &str) -> Error {
    let message = format!(
        "Server \"{server}\" is not available: {reason}. The gateway keeps trying to bring it back"
    );
    Error::new(McpErrorKind::ServerDown, message)
}

/// Builds the error for a server that broke the protocol.
pub(super) fn protocol_error(server: &str, reason: &str) -> Error {
    Error::new(
        McpErrorKind::ServerProtocol,
        format!("Server \"{server}\" broke the protocol: {reason}"),
    )
}

/// Builds the error for a server that did not respond in time.
pub(super) fn timeout_error(server: &str, limit: Duration) -> Error {
    let message = format!(
        "Server \"{server}\" did not answer within {limit:?}; raise servers.{server}.timeout if \
         that is too short"
    );
    Error::new(McpErrorKind::ServerTimeout, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::CallTimeouts;
    use moongate_jsonrpc::json::RawJson;
    use moongate_telemetry::Metrics;
    use moongate_transport::credential_source::AuthChallenge;

    fn options() -> ConnectOptions {
        let minute = Duration::from_secs(60);
        ConnectOptions {
            server: "linear".to_owned(),
            accepts_login: true,
            revision: None,
            era: None,
            greeting: None,
            preferred_era: None,
            capabilities: RawJson::literal("{}"),
            is_shared: false,
            client: None,
            client_info: RawJson::literal("{}"),
            timeouts: Arc::new(CallTimeouts::new(minute, minute)),
            max_backlog: 1 << 20,
            metrics: Arc::new(Metrics::new()),
            closing: tokio_util::task::TaskTracker::new(),
            persisted_session: None,
        }
    }

    fn refusal(status: u16) -> LinkError {
        LinkError::Status {
            status,
            hint: ": refused".to_owned(),
            message: None,
            retry_after: None,
            challenge: None,
        }
    }

    #[test]
    fn only_a_401_without_a_credential_of_the_config_asks_for_a_login() {
        let open = options();
        let login = from_connection(&open, &refusal(401));
        assert_eq!(
            &*login.message,
            "linear needs a login: moongate login linear"
        );
        assert_eq!(login.kind, McpErrorKind::ServerRefused);
        let forbidden = from_connection(&open, &refusal(403)).message;
        assert_eq!(
            &*forbidden,
            "Server \"linear\" refused: HTTP status 403: refused"
        );
        let mut scope = refusal(403);
        if let LinkError::Status { challenge, .. } = &mut scope {
            *challenge = Some(Box::new(AuthChallenge {
                status: 403,
                values: vec!["Bearer error=\"insufficient_scope\"".to_owned()],
            }));
        }
        assert_eq!(
            &*from_connection(&open, &scope).message,
            "linear needs a login with more scope for this call: moongate login linear"
        );
        let with_header = ConnectOptions {
            accepts_login: false,
            ..options()
        };
        let refused = from_connection(&with_header, &refusal(401)).message;
        assert_eq!(
            &*refused,
            "Server \"linear\" refused: HTTP status 401: refused"
        );
    }
}
