//! Failed calls: kind, origin and the text for the client.
//!
//! Owns the neutral error and its labels. Does not know error codes: each revision maps the kinds.
//! Invariant: the message holds no secret.

use std::borrow::Cow;
use std::time::Duration;

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::RpcError;

/// Failure of a call. Each revision encodes it in one place.
#[derive(Clone, Debug)]
pub struct Error {
    /// Kind of failure.
    pub kind: McpErrorKind,
    /// Text for the client: the failure and its remedy. Never a secret.
    pub message: Cow<'static, str>,
    /// Data for the client's program, if the kind has any.
    pub data: Option<RawJson>,
    /// Prospects of a retry.
    pub retryable: Retryable,
    /// Revision that the server answered in, where its codes differ by revision: a label, opaque
    /// outside of `protocol`.
    pub server_revision: &'static str,
}

/// Prospects of a retry after a failure. Whether a second run does harm is decided elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retryable {
    /// A retry has no better prospects.
    #[default]
    No,
    /// The server never received the call.
    NotSent,
    /// The failure may pass, at the time that the server named, if any.
    After(Option<Duration>),
}

/// Kind of failure. Each revision maps it to its own code.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum McpErrorKind {
    /// The body is not JSON.
    Parse,
    /// The body isn't a message that is valid here.
    InvalidRequest,
    /// The client's revision has no such method.
    UnknownMethod,
    /// The params do not fit the method.
    InvalidParams,
    /// The name is unknown, or hidden from this principal. Both get the same answer.
    UnknownName,
    /// The resource is unknown, or hidden from this principal.
    UnknownResource,
    /// A header contradicts the body.
    HeaderMismatch,
    /// The gateway does not support the client's revision.
    UnsupportedRevision,
    /// The client did not declare a capability that the call needs.
    MissingCapability,
    /// The session has ended, or never belonged to this principal.
    UnknownSession,
    /// A limit is reached; a later attempt may succeed.
    Overloaded,
    /// The request exceeds a size limit.
    TooLarge,
    /// Both sides have the feature, but the gateway cannot translate it between them yet.
    CannotCross,
    /// The client cancelled the call.
    Cancelled,
    /// The server answered with its own error, which passes unchanged.
    ServerError(RpcError),
    /// The server is not connected.
    ServerDown,
    /// The server did not answer in time.
    ServerTimeout,
    /// The server broke the protocol.
    ServerProtocol,
    /// The server's host refused the request (401, 403, 429, 5xx).
    ServerRefused,
    /// The gateway itself failed.
    Internal,
}

/// Party at fault for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ErrorOrigin {
    Client,
    Gateway,
    Server,
}

impl Error {
    /// Creates a failure with a message for the client.
    pub fn new(kind: McpErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Error {
            kind,
            message: message.into(),
            data: None,
            retryable: Retryable::No,
            server_revision: "",
        }
    }

    /// Adds data for the client's program.
    #[must_use]
    pub fn with_data(mut self, data: RawJson) -> Self {
        self.data = Some(data);
        self
    }

    /// Sets the prospects of a retry.
    #[must_use]
    pub fn with_retryable(mut self, again: Retryable) -> Self {
        self.retryable = again;
        self
    }

    /// Creates the failure of a request whose params have no text at `key`.
    pub fn without_text(params: &JsonObject, key: &str) -> Self {
        let fault = if params.get(key).is_some() {
            "must be a string"
        } else {
            "is missing"
        };
        Error::invalid_params(&format!("{key} {fault}"))
    }

    /// Creates the failure of a request with wrong params. `fault` says what is wrong.
    pub fn invalid_params(fault: &str) -> Self {
        Error::new(
            McpErrorKind::InvalidParams,
            format!("Invalid params: {fault}"),
        )
    }

    /// Creates a failure from a server's own error response.
    pub fn from_server(error: RpcError) -> Self {
        let message = error.message.to_string();
        Error {
            data: error.data.clone(),
            kind: McpErrorKind::ServerError(error),
            message: message.into(),
            retryable: Retryable::No,
            server_revision: "",
        }
    }

    /// Sets the revision that the server answered in.
    #[must_use]
    pub fn answered_in(mut self, revision: &'static str) -> Self {
        self.server_revision = revision;
        self
    }

    /// Adds a hint behind the message.
    #[must_use]
    pub fn with_hint(mut self, hint: &str) -> Self {
        self.message = format!("{}\n{hint}", self.message).into();
        if let McpErrorKind::ServerError(error) = &mut self.kind {
            error.message = ByteString::from(&*self.message);
        }
        self
    }

    /// Creates a failure of the gateway itself.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(McpErrorKind::Internal, message)
    }

    /// Returns the party at fault.
    pub fn origin(&self) -> ErrorOrigin {
        match self.kind {
            // A limit is the gateway's decision, even if clients caused the load.
            McpErrorKind::Internal | McpErrorKind::Overloaded | McpErrorKind::CannotCross => {
                ErrorOrigin::Gateway
            }
            McpErrorKind::ServerError(_)
            | McpErrorKind::ServerDown
            | McpErrorKind::ServerTimeout
            | McpErrorKind::ServerProtocol
            | McpErrorKind::ServerRefused => ErrorOrigin::Server,
            _ => ErrorOrigin::Client,
        }
    }

    /// True if a server is unavailable or at a limit, as opposed to an error response. On a tool
    /// call this becomes a result that the model can read.
    pub fn is_server_failure(&self) -> bool {
        match self.kind {
            // An error response is the server at work, so it passes to the client unchanged.
            McpErrorKind::ServerError(_) => false,
            // A full queue of a server looks to the model like a server that is down.
            McpErrorKind::Overloaded => true,
            _ => self.origin() == ErrorOrigin::Server,
        }
    }

    /// Returns the value of the label `error_type`, out of a small fixed set.
    pub fn label(&self) -> &'static str {
        match self.kind {
            McpErrorKind::Parse => "parse",
            McpErrorKind::InvalidRequest => "invalid_request",
            McpErrorKind::UnknownMethod => "unknown_method",
            McpErrorKind::InvalidParams => "invalid_params",
            McpErrorKind::UnknownName => "unknown_name",
            McpErrorKind::UnknownResource => "unknown_resource",
            McpErrorKind::HeaderMismatch => "header_mismatch",
            McpErrorKind::UnsupportedRevision => "unsupported_revision",
            McpErrorKind::MissingCapability => "missing_capability",
            McpErrorKind::UnknownSession => "unknown_session",
            McpErrorKind::Overloaded => "overloaded",
            McpErrorKind::TooLarge => "too_large",
            McpErrorKind::CannotCross => "cannot_cross",
            McpErrorKind::Cancelled => "cancelled",
            McpErrorKind::ServerError(_) => "answered",
            McpErrorKind::ServerDown => "server_down",
            McpErrorKind::ServerTimeout => "server_timeout",
            McpErrorKind::ServerProtocol => "server_protocol",
            McpErrorKind::ServerRefused => "server_refused",
            McpErrorKind::Internal => "internal",
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
