//! Client side of the legacy revisions: sessions over Streamable HTTP, HTTP+SSE and pipes.
//!
//! Owns the dialect and what it writes to clients. Does not know servers. Invariant: no file here
//! names an upstream type.

pub(super) mod dialect;
pub(super) mod encode;
pub(super) mod gateway_tasks;
pub(super) mod get_stream;
pub(super) mod http_sse;
pub(super) mod initialize;
pub(super) mod notify_after_restore;
pub(super) mod refusal;
pub(super) mod resource_updates;
pub(super) mod response_encoder;
pub(super) mod restore;
pub(super) mod resumable;
pub(super) mod session_methods;
pub(super) mod session_request;
pub(super) mod stdio_session;
pub(super) mod task_augmentation;
pub(super) mod transient_session;
