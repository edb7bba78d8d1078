//! Legacy revisions, which have sessions: 2024-11-05 to 2025-11-25.
//!
//! Owns one implementation for all of them, with a row of differences for each. Does not own the sessions (`session`).
//! Invariant: revisions differ by their [`Profile`](profile::Profile) alone.

mod capabilities;
mod task_inputs;
mod upstream;
mod call_inputs;
mod call_modes;
mod catch_up;
mod connection;
mod gateway_requests;
mod initialize;
mod profile;
mod refusal;
mod renewal;
mod replies;
mod resource_updates;
mod response_encoder;
mod session_loss;
mod session_methods;
mod subscription_state;
mod subscription_support;
mod task_methods;
mod task_watch;
mod request;
mod downstream;
mod handshake;
mod http_sse;
mod stdio;
mod server_stream;
mod resumable;
mod restore;
mod call;
mod ping_barrier;
mod encode;
mod get_stream;
mod resource_subscriptions;
mod task_request;
mod tasks;
mod trial;

pub(super) use capabilities::{read_client_capabilities, required_capability, url_elicitations};
pub(super) use downstream::DIALECT;
pub(super) use encode::{rpc_error, tool_error};
pub(super) use handshake::{first_response, open};
pub(super) use http_sse::DIALECT as HTTP_SSE;
pub(super) use profile::{PROFILES, SESSION_HEADER, profile};
pub(super) use stdio::{StdioSession, answer_before_initialize, encode_refusal};
pub(super) use tasks::{task_of, terminal_error, untag_task};
pub(super) use upstream::LegacyHandle;
