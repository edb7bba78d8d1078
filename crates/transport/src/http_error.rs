//! Link errors of broken HTTP connections.
//!
//! Owns the translation of two HTTP clients' errors. Does not read responses (`status_error`).
//! Invariant: a violation of HTTP is never reported as a closed connection.

use std::io::ErrorKind;

use moongate_http1::ConnectionError;

use crate::error_chain::error_chain;
use crate::{LinkError, connect_hints};

/// Converts the failure of one of our own connections; `what` names the broken part.
pub(super) fn connection_error(error: &ConnectionError, what: &str) -> LinkError {
    match error {
        ConnectionError::Parse(_) => LinkError::Protocol(error.to_string()),
        ConnectionError::Closed(_) => LinkError::Closed(format!("{what}: {error}")),
        // A body that its content coding does not fit.
        ConnectionError::Io(error) if error.kind() == ErrorKind::InvalidData => {
            LinkError::Protocol(error.to_string())
        }
        ConnectionError::Io(error) => LinkError::Closed(format!("{what}: {}", error_chain(error))),
    }
}

/// Explains why a request to this host got no response.
pub(super) fn unreachable_error(
    error: &hyper_util::client::legacy::Error,
    host: Option<&str>,
) -> LinkError {
    if error.is_connect() {
        connect_hints::unreachable(error, host)
    } else {
        LinkError::Closed(format!("the connection broke: {}", error_chain(error)))
    }
}
