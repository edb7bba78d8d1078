//! Stateless revision 2026-07-28: each request carries its revision and the client's capabilities.
//!
//! Owns the wire form of both sides. Does not keep sessions. Invariant: no request depends on an
//! earlier one.

mod downstream;
pub(super) mod error_codes;
mod example_call;
mod meta;
mod meta_keys;
mod mirrored_headers;
pub(crate) mod tasks;
mod upstream;

pub(super) use downstream::dialect::DIALECT;
pub(super) use downstream::encode::rpc_error;
pub(super) use downstream::open_requests::OpenRequests;
pub(super) use downstream::validated_request::{RequestSender, notify_extension};
pub(super) use example_call::example_call;
pub(super) use meta_keys::{
    CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, SUBSCRIPTION_ID,
};
pub(super) use mirrored_headers::annotation_problem as tool_problem;
pub(super) use upstream::discover::{discover, is_modern};
pub(super) use upstream::handle::ModernHandle;

/// Name of the revision.
pub(super) const REVISION: &str = "2026-07-28";
