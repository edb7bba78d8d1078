//! Legacy revisions, which have sessions: 2024-11-05 to 2025-11-25.
//!
//! Owns one implementation for all of them, with a row of differences for each. Does not own the sessions (`session`).
//! Invariant: revisions differ by their [`Profile`] alone.

mod capabilities;
mod task_inputs;
mod upstream;
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
pub(super) use downstream::{DIALECT, accepted_response, check_content_type, collect_forwarded};
pub(super) use encode::{rpc_error, tool_error};
pub(super) use handshake::{first_response, open};
pub(super) use http_sse::DIALECT as HTTP_SSE;
pub(super) use stdio::{StdioSession, answer_before_initialize, encode_refusal};
pub(super) use tasks::{task_of, terminal_error, untag_task};
pub(super) use upstream::LegacyConnection;

/// Differences between the legacy revisions.
pub(super) struct Profile {
    /// Name of the revision.
    pub(super) name: &'static str,
    /// True if a body may hold several messages. In 2025-03-26 receiving batches is a MUST (basic/index.mdx, Batching).
    /// Before it they are JSON-RPC's own, and 2025-06-18 removed them (changelog.mdx).
    pub(super) batches: bool,
    /// True if requests after `initialize` carry the version header (2025-06-18/basic/transports.mdx, Protocol
    /// Version Header).
    pub(super) version_header: bool,
    /// True if event streams can be continued by `Last-Event-ID` (2025-03-26/basic/transports.mdx, Resumability and
    /// Redelivery).
    pub(super) resumes: bool,
    /// True if a stream begins with an event without data, so that the client can reconnect for the rest
    /// (2025-11-25/basic/transports.mdx, Sending Messages to the Server; SEP-1699). Clients before that may take the
    /// event for a message.
    pub(super) primes: bool,
    /// True if calls can be tasks (2025-11-25/changelog.mdx).
    pub(super) tasks: bool,
}

/// Legacy revisions, oldest first.
pub(super) const PROFILES: [Profile; 4] = [
    Profile { name: "2024-11-05", batches: true, version_header: false, resumes: false, primes: false, tasks: false },
    Profile { name: "2025-03-26", batches: true, version_header: false, resumes: true, primes: false, tasks: false },
    Profile { name: "2025-06-18", batches: false, version_header: true, resumes: true, primes: false, tasks: false },
    Profile { name: "2025-11-25", batches: false, version_header: true, resumes: true, primes: true, tasks: true },
];

/// Newest legacy revision: requested from servers, and offered to clients that request an unknown one.
pub(super) const NEWEST: &Profile = &PROFILES[3];

/// Returns the profile of a revision.
pub(super) fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

/// Header that carries the session id.
pub(super) const SESSION_HEADER: http::HeaderName = http::HeaderName::from_static("mcp-session-id");

/// Header that carries the revision.
pub(super) const VERSION_HEADER: http::HeaderName = http::HeaderName::from_static(super::VERSION_HEADER);

/// Code of "Resource not found", up to 2025-11-25 (server/resources.mdx, Error Handling).
pub(super) const RESOURCE_NOT_FOUND: i64 = -32002;
