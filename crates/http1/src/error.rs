//! Failures of client connections.
//!
//! Owns their texts. Does not decide about retries. Invariant: no text holds bytes of a peer.

use std::io;

/// Violation of HTTP/1.1 in a response.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub(crate) &'static str);

/// Reason for a missing or incomplete response.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server closed the connection before the response was complete.
    #[error("the server closed the connection {0}")]
    Closed(&'static str),
    /// The response is not HTTP/1.1, or is ambiguous.
    #[error("the answer cannot be read as HTTP/1.1: {0}")]
    Parse(#[from] ParseError),
}
