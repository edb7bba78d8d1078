//! The stateless revision: every request says everything.

mod asking;
mod awaited;
mod back;
mod changes;
mod front;
mod headers;
mod listen;
mod meta;
mod pipe;
mod running;
mod spell;
mod state;
pub(in crate::revision) mod tasks;

use crate::jsonrpc::{Message, Response, code};
use crate::link::LinkError;
use crate::revision::connect::ConnectError;

pub(super) use back::{ModernServer, discover};
pub(super) use front::FRONT;
pub(super) use headers::invalid as tool_problem;
pub(super) use pipe::OpenRequests;
pub(super) use spell::rpc_error;

/// The revision's name.
pub(super) const NAME: &str = "2026-07-28";

/// `_meta`: the revision of a request.
pub(super) const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta`: who the client is.
pub(super) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta`: what the client can do.
pub(super) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta`: which log messages the client wants.
pub(super) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// `_meta`: who the server is.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta`: which subscription a notification belongs to.
pub(super) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Headers and body disagree (basic/index.mdx, Error Codes).
const HEADER_MISMATCH: i64 = -32020;
/// The client did not declare what the request needs.
const MISSING_CAPABILITY: i64 = -32021;
/// The revision is not supported.
const UNSUPPORTED_VERSION: i64 = -32022;
/// "Implementations of this protocol version MUST NOT emit these codes": resource not found, URL elicitation.
const RETIRED: [i64; 2] = [-32002, -32042];

/// Whether a failed probe shows that the server speaks a modern revision all the same.
///
/// basic/versioning.mdx: "a recognized modern JSON-RPC error (such as `UnsupportedProtocolVersionError`) identifies a
/// modern server".
pub(super) fn is_modern(error: &ConnectError) -> bool {
    let recognized = |code| matches!(code, HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION);
    match error {
        ConnectError::Answered(error) => recognized(error.code),
        ConnectError::NoCommonRevision(_) => true,
        ConnectError::Link(LinkError::Status { message: Some(message), .. }) => match &**message {
            Message::Response(Response { outcome: Err(error), .. }) => {
                recognized(error.code) && error.code != code::INTERNAL
            }
            _ => false,
        },
        ConnectError::Link(_) => false,
    }
}
