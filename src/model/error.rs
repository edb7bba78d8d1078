//! What went wrong, whose fault it is, and what the client may know of it.

use std::borrow::Cow;
use std::time::Duration;

use crate::json::RawJson;
use crate::jsonrpc::RpcError;

/// A call that did not succeed. Each revision turns it into its own spelling, in one place.
#[derive(Clone, Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: McpErrorKind,
    /// For the client: what failed, and how to fix it. Never a secret.
    pub message: Cow<'static, str>,
    /// More for the client's program, if the reason has such a thing.
    pub data: Option<RawJson>,
    /// Whether the same call, made again, may succeed.
    pub retryable: Retryable,
}

/// Whether a call that failed may be made again. Whether running it twice does harm is another question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retryable {
    /// Nothing speaks for it.
    #[default]
    No,
    /// The server never saw it.
    NotSent,
    /// The failure may pass; the server perhaps said when.
    After(Option<Duration>),
}

/// Kinds of failure; the code that each becomes is the revision's business.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum McpErrorKind {
    /// The body is not JSON.
    Parse,
    /// The body is not a message that may come here.
    InvalidRequest,
    /// No such method, for this client's revision.
    UnknownMethod,
    /// The params do not fit the method.
    InvalidParams,
    /// No such tool, prompt or server, or not for this principal: the same answer.
    UnknownName,
    /// No such resource, or not for this principal.
    UnknownResource,
    /// A header disagrees with the body.
    HeaderMismatch,
    /// The client's revision is none of ours.
    UnsupportedRevision,
    /// The client did not declare what the call needs.
    MissingCapability,
    /// The session is gone, or was never this principal's.
    UnknownSession,
    /// Something is full; a later attempt may pass.
    Overloaded,
    /// The request was larger than a limit.
    TooLarge,
    /// The feature exists on both sides, but does not cross between them yet.
    CannotCross,
    /// The client cancelled.
    Cancelled,
    /// The server answered with an error of its own, which passes as it is.
    ServerError(RpcError),
    /// The server is not connected.
    ServerDown,
    /// The server did not answer in time.
    ServerTimeout,
    /// The server broke the protocol.
    ServerProtocol,
    /// The server's host refused us (401, 403, 429, 5xx).
    ServerRefused,
    /// We failed.
    Internal,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ErrorOrigin {
    Client,
    Gateway,
    Server,
}

impl Error {
    /// A failure with a message for the client.
    pub fn new(kind: McpErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Error { kind, message: message.into(), data: None, retryable: Retryable::No }
    }

    /// Adds data for the client's program.
    #[must_use]
    pub fn with_data(mut self, data: RawJson) -> Self {
        self.data = Some(data);
        self
    }

    /// Says whether the call may be made again.
    #[must_use]
    pub fn with_retryable(mut self, again: Retryable) -> Self {
        self.retryable = again;
        self
    }

    /// A server's own error answer.
    pub fn from_server(error: RpcError) -> Self {
        let message = error.message.to_string();
        Error {
            data: error.data.clone(),
            kind: McpErrorKind::ServerError(error),
            message: message.into(),
            retryable: Retryable::No,
        }
    }

    /// A failure of ours.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(McpErrorKind::Internal, message)
    }

    /// Whose fault.
    pub fn origin(&self) -> ErrorOrigin {
        match self.kind {
            McpErrorKind::Internal | McpErrorKind::Overloaded | McpErrorKind::CannotCross => ErrorOrigin::Gateway,
            McpErrorKind::ServerError(_)
            | McpErrorKind::ServerDown
            | McpErrorKind::ServerTimeout
            | McpErrorKind::ServerProtocol
            | McpErrorKind::ServerRefused => ErrorOrigin::Server,
            _ => ErrorOrigin::Client,
        }
    }

    /// Whether a server (not its answer) failed, or is full: on a tool call this becomes a result that the model can
    /// read.
    pub fn is_server_failure(&self) -> bool {
        match self.kind {
            McpErrorKind::ServerError(_) => false,
            McpErrorKind::Overloaded => true,
            _ => self.origin() == ErrorOrigin::Server,
        }
    }

    /// A word for the label `error_type`; few and fixed.
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
