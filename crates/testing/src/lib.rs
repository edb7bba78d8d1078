//! Fixtures and clients that the tests of several crates share.
//!
//! Owns callers of the neutral model, captured logs, bounded waits and one MCP client. Does not
//! start gateways or servers. Invariant: only tests depend on this crate.
//!
//! The client is written by hand from the specification. It uses none of the gateway's wire code,
//! so a mistake there cannot hide in the tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod event_stream;
pub mod http_client;
pub mod http_endpoint;
pub mod http_sse;
pub mod line_client;
pub mod logs;
pub mod mcp_client;
pub mod mcp_request;
pub mod messages;
pub mod rpc_answer;
pub mod wait;

mod caller;
mod http_reply;
mod mcp_exchange;
mod reserved_address;

pub use caller::{caller, principal};
pub use event_stream::{EventStream, RpcMessage};
pub use http_client::HttpClient;
pub use http_endpoint::HttpEndpoint;
pub use http_reply::HttpReply;
pub use line_client::{ChildClient, LineClient};
pub use mcp_client::{ERAS, Era, McpClient};
pub use mcp_request::McpRequest;
pub use reserved_address::ReservedAddress;
pub use rpc_answer::RpcAnswer;
