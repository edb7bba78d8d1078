//! Reasons why a server could not be opened.
//!
//! Owns their texts. Does not decide on another attempt (`upstream`). Invariant: a server's own error keeps its code.

use moongate_jsonrpc::message::RpcError;
use moongate_transport::LinkError;

/// Reason why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The link failed.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The server returned an error.
    #[error("it refused the handshake: {} (code {})", .0.message, .0.code)]
    Answered(RpcError),
    /// The server supports no revision that the gateway supports.
    #[error("{0}")]
    NoCommonRevision(String),
}
