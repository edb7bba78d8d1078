//! The stateless revision: every request says everything.

mod input_rounds;
mod poll_task;
mod upstream;
mod list_changes;
mod downstream;
mod headers;
mod subscriptions;
mod meta;
mod stdio;
mod call;
mod encode;
mod request_state;
pub(in crate::revision) mod tasks;

use crate::jsonrpc::{RpcMessage, RpcResponse, code};
use crate::link::LinkError;
use crate::revision::negotiate::ConnectError;

pub(super) use downstream::DIALECT;
pub(super) use encode::rpc_error;
pub(super) use headers::annotation_problem as tool_problem;
pub(super) use stdio::OpenRequests;
pub(super) use upstream::{ModernHandle, discover};

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
            RpcMessage::Response(RpcResponse { outcome: Err(error), .. }) => {
                recognized(error.code) && error.code != code::INTERNAL
            }
            _ => false,
        },
        ConnectError::Link(_) => false,
    }
}
