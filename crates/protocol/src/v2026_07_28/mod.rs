//! Stateless revision 2026-07-28: every request says everything.
//!
//! Owns the wire form of both sides. Does not keep sessions. Invariant: no request depends on an earlier one.

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
mod connection;
mod discover;
mod listen_stream;
mod names;
mod encode;
mod request_state;
pub(crate) mod tasks;

pub(super) use discover::{discover, is_modern};
pub(super) use downstream::DIALECT;
pub(super) use encode::rpc_error;
pub(super) use headers::annotation_problem as tool_problem;
pub(super) use names::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, NAME, PROTOCOL_VERSION, SUBSCRIPTION_ID};
pub(super) use stdio::OpenRequests;
pub(super) use upstream::ModernHandle;
