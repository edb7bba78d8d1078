//! Server side of the legacy revisions: connections to servers with sessions, and their calls.
//!
//! Owns what is written to servers and read from them. Does not know clients' sessions. Invariant:
//! a connection knows its calls only as `PendingCalls`.

pub(super) mod background_messages;
pub(super) mod call;
pub(super) mod call_deadline;
pub(super) mod call_modes;
pub(super) mod call_task;
pub(super) mod cancellation_barrier;
pub(super) mod collect_task_inputs;
pub(super) mod connection;
mod first_roots;
mod forward_responses;
pub(super) mod greeting;
pub(super) mod handle;
pub(super) mod handshake;
pub(super) mod log_level;
pub(super) mod own_requests;
mod owner_requests;
pub(super) mod reply_stream;
pub(super) mod resource_subscriptions;
pub(super) mod server_session;
pub(super) mod server_stream;
mod settle_roots;
pub(super) mod session_loss;
pub(super) mod session_renewal;
pub(super) mod stray_task_requests;
pub(super) mod subscription_diff;
pub(super) mod subscription_support;
pub(super) mod subscription_trial;
pub(super) mod task_inputs;
pub(super) mod translate_task_methods;
