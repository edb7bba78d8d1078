//! Legacy revisions, which have sessions: 2024-11-05 to 2025-11-25.
//!
//! Owns one implementation for all of them, with a row of differences for each. Does not own the
//! sessions (`session`). Invariant: revisions differ by their [`Profile`](profile::Profile) alone.

mod downstream;
mod profile;
mod tasks;
mod tool_output;
mod upstream;
mod url_elicitations;
mod wrapped_schema;

pub(super) use downstream::dialect::DIALECT;
pub(super) use downstream::encode::{rpc_error, tool_error};
pub(super) use downstream::http_sse::DIALECT as HTTP_SSE;
pub(super) use downstream::stdio_session::{
    StdioSession, answer_before_initialize, encode_refusal,
};
pub(super) use profile::{PROFILES, SESSION_HEADER, profile};
pub(super) use tasks::{task_of, terminal_error, untag_task};
pub use tool_output::{ListedOutput, OutputShape, ToolOutput, fit_output, holds_objects_only};
pub use upstream::greeting::LegacyGreeting;
pub(super) use upstream::handle::LegacyHandle;
pub(super) use upstream::handshake::{first_response, open};
pub use url_elicitations::demands_elicitations;
pub(super) use url_elicitations::required_elicitations;
pub(crate) use wrapped_schema::wrap_schema;
