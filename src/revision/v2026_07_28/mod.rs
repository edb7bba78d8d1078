//! Stateless revision 2026-07-28: every request says everything.
//!
//! Owns its reserved names and error codes. Does not keep sessions. Invariant: no request depends on an earlier one.

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

/// Name of the revision.
pub(super) const NAME: &str = "2026-07-28";

/// `_meta` key: revision of a request.
pub(super) const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta` key: `Implementation` of the client.
pub(super) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta` key: capabilities of the client.
pub(super) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` key: lowest level of log messages for the client.
pub(super) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// `_meta` key: `Implementation` of the server.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta` key: subscription of a notification.
pub(super) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Code: headers and body disagree (basic/index.mdx, Error Codes).
const HEADER_MISMATCH: i64 = -32020;
/// Code: the client did not declare a capability that the request needs.
const MISSING_CAPABILITY: i64 = -32021;
/// Code: the revision is not supported.
const UNSUPPORTED_VERSION: i64 = -32022;
/// Codes for resource not found and URL elicitation: "Implementations of this protocol version MUST NOT emit these
/// codes".
const RETIRED: [i64; 2] = [-32002, -32042];

/// True if the error of a failed probe shows that the server is modern.
///
/// basic/versioning.mdx: "a recognized modern JSON-RPC error (such as `UnsupportedProtocolVersionError`) identifies a
/// modern server".
pub(super) fn is_modern(error: &ConnectError) -> bool {
    let recognized = |code| matches!(code, HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION);
    match error {
        ConnectError::Answered(error) => recognized(error.code),
        // It answered `server/discover`, so it is modern, but of no known revision.
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
