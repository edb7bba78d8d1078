//! What went wrong, whose fault it is, and what the client may know of it.

use std::borrow::Cow;
use std::time::Duration;

use crate::json::Raw;
use crate::jsonrpc::RpcError;

/// A call that did not succeed. Each revision turns it into its own spelling, in one place.
#[derive(Clone, Debug)]
pub struct Error {
    /// What kind of failure.
    pub reason: Reason,
    /// For the client: what failed, and how to fix it. Never a secret.
    pub message: Cow<'static, str>,
    /// More for the client's program, if the reason has such a thing.
    pub data: Option<Raw>,
    /// Whether the same call, made again, may succeed.
    pub again: Again,
}

/// Whether a call that failed may be made again. Whether running it twice does harm is another question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Again {
    /// Nothing speaks for it.
    #[default]
    No,
    /// The server never saw it.
    Unsent,
    /// The failure may pass; the server perhaps said when.
    Later(Option<Duration>),
}

/// Kinds of failure; the code that each becomes is the revision's business.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Reason {
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
    Answered(RpcError),
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
pub enum Fault {
    Client,
    Gateway,
    Server,
}

impl Error {
    /// A failure with a message for the client.
    pub fn new(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Error { reason, message: message.into(), data: None, again: Again::No }
    }

    /// Adds data for the client's program.
    #[must_use]
    pub fn with_data(mut self, data: Raw) -> Self {
        self.data = Some(data);
        self
    }

    /// Says whether the call may be made again.
    #[must_use]
    pub fn with_again(mut self, again: Again) -> Self {
        self.again = again;
        self
    }

    /// A server's own error answer.
    pub fn answered(error: RpcError) -> Self {
        let message = error.message.to_string();
        Error { data: error.data.clone(), reason: Reason::Answered(error), message: message.into(), again: Again::No }
    }

    /// A failure of ours.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(Reason::Internal, message)
    }

    /// Whose fault.
    pub fn fault(&self) -> Fault {
        match self.reason {
            Reason::Internal | Reason::Overloaded | Reason::CannotCross => Fault::Gateway,
            Reason::Answered(_)
            | Reason::ServerDown
            | Reason::ServerTimeout
            | Reason::ServerProtocol
            | Reason::ServerRefused => Fault::Server,
            _ => Fault::Client,
        }
    }

    /// Whether a server (not its answer) failed, or is full: on a tool call this becomes a result that the model can
    /// read.
    pub fn is_server_fault(&self) -> bool {
        match self.reason {
            Reason::Answered(_) => false,
            Reason::Overloaded => true,
            _ => self.fault() == Fault::Server,
        }
    }

    /// A word for the label `error_type`; few and fixed.
    pub fn label(&self) -> &'static str {
        match self.reason {
            Reason::Parse => "parse",
            Reason::InvalidRequest => "invalid_request",
            Reason::UnknownMethod => "unknown_method",
            Reason::InvalidParams => "invalid_params",
            Reason::UnknownName => "unknown_name",
            Reason::UnknownResource => "unknown_resource",
            Reason::HeaderMismatch => "header_mismatch",
            Reason::UnsupportedRevision => "unsupported_revision",
            Reason::MissingCapability => "missing_capability",
            Reason::UnknownSession => "unknown_session",
            Reason::Overloaded => "overloaded",
            Reason::TooLarge => "too_large",
            Reason::CannotCross => "cannot_cross",
            Reason::Cancelled => "cancelled",
            Reason::Answered(_) => "answered",
            Reason::ServerDown => "server_down",
            Reason::ServerTimeout => "server_timeout",
            Reason::ServerProtocol => "server_protocol",
            Reason::ServerRefused => "server_refused",
            Reason::Internal => "internal",
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
