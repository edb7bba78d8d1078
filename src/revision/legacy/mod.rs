//! The revisions with sessions: 2024-11-05 to 2025-11-25, one machine with a row of details for each.

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

/// What differs between the legacy revisions.
pub(super) struct Profile {
    /// The revision's name.
    pub(super) name: &'static str,
    /// Whether a body may hold several messages: in 2025-03-26 receiving batches is a MUST (basic/index.mdx, Batching),
    /// before it they are JSON-RPC's own, and 2025-06-18 removed them (changelog.mdx).
    pub(super) batches: bool,
    /// Whether requests after `initialize` carry the version header (2025-06-18/basic/transports.mdx, Protocol
    /// Version Header).
    pub(super) version_header: bool,
    /// Whether event streams can be continued by `Last-Event-ID` (2025-03-26/basic/transports.mdx, Resumability and
    /// Redelivery).
    pub(super) resumes: bool,
    /// Whether a stream begins with an event without data, so that the client can be told to come back for the rest
    /// (2025-11-25/basic/transports.mdx, Sending Messages to the Server; SEP-1699). Clients before that may take the
    /// event for a message.
    pub(super) primes: bool,
    /// Whether calls can be tasks (2025-11-25/changelog.mdx).
    pub(super) tasks: bool,
}

/// The legacy revisions, oldest first.
pub(super) const PROFILES: [Profile; 4] = [
    Profile { name: "2024-11-05", batches: true, version_header: false, resumes: false, primes: false, tasks: false },
    Profile { name: "2025-03-26", batches: true, version_header: false, resumes: true, primes: false, tasks: false },
    Profile { name: "2025-06-18", batches: false, version_header: true, resumes: true, primes: false, tasks: false },
    Profile { name: "2025-11-25", batches: false, version_header: true, resumes: true, primes: true, tasks: true },
];

/// The newest of them: what we ask servers for, and offer clients that ask for something unknown.
pub(super) const NEWEST: &Profile = &PROFILES[3];

/// The row of a revision.
pub(super) fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

/// The header that carries the session id.
pub(super) const SESSION_HEADER: http::HeaderName = http::HeaderName::from_static("mcp-session-id");

/// The header that carries the revision.
pub(super) const VERSION_HEADER: http::HeaderName = http::HeaderName::from_static(super::VERSION_HEADER);

/// "Resource not found", up to 2025-11-25 (server/resources.mdx, Error Handling).
pub(super) const RESOURCE_NOT_FOUND: i64 = -32002;
