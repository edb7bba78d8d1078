//! Differences between the legacy revisions, and the constants that they share.
//!
//! Owns a row for each revision, the names of their headers and their error codes. Has no
//! behaviour. Invariant: the rows are in the order of their dates.

/// Differences between the legacy revisions.
pub(crate) struct Profile {
    /// Name of the revision.
    pub(crate) name: &'static str,
    /// True if a body may hold several messages. In 2025-03-26 receiving batches is a MUST
    /// (basic/index.mdx, Batching). Before it they are JSON-RPC's own, and 2025-06-18 removed them
    /// (changelog.mdx).
    pub(crate) batches: bool,
    /// True if requests after `initialize` carry the version header
    /// (2025-06-18/basic/transports.mdx, Protocol Version Header).
    pub(crate) version_header: bool,
    /// True if event streams can be continued by `Last-Event-ID` (2025-03-26/basic/transports.mdx,
    /// Resumability and Redelivery).
    pub(crate) resumes: bool,
    /// True if a stream starts with an event without data, so that the client can reconnect for the
    /// rest (2025-11-25/basic/transports.mdx, Sending Messages to the Server; SEP-1699). Clients
    /// before that may take the event for a message.
    pub(crate) primes: bool,
    /// True if calls can be tasks (2025-11-25/changelog.mdx).
    pub(crate) tasks: bool,
    /// Members that a client's `capabilities` may have (`ClientCapabilities` in each schema.json).
    pub(crate) capabilities: &'static [KnownMember],
    /// Members that `clientInfo` may have (`Implementation` in each schema.json).
    pub(crate) client_info: &'static [&'static str],
}

/// Member of an object, with its own members.
pub(crate) struct KnownMember {
    pub(crate) name: &'static str,
    pub(crate) members: &'static [&'static str],
}

const ROOTS: KnownMember = KnownMember {
    name: "roots",
    members: &["listChanged"],
};
/// Capabilities of 2024-11-05 and 2025-03-26.
const BEFORE_ELICITATION: &[KnownMember] = &[
    ROOTS,
    KnownMember {
        name: "sampling",
        members: &[],
    },
];
/// Capabilities of 2025-06-18.
const WITH_ELICITATION: &[KnownMember] = &[
    ROOTS,
    KnownMember {
        name: "sampling",
        members: &[],
    },
    KnownMember {
        name: "elicitation",
        members: &[],
    },
];
/// Capabilities of 2025-11-25, apart from a client's own tasks.
const WITH_MODES: &[KnownMember] = &[
    ROOTS,
    KnownMember {
        name: "sampling",
        members: &["context", "tools"],
    },
    KnownMember {
        name: "elicitation",
        members: &["form", "url"],
    },
];

const NAME_VERSION: &[&str] = &["name", "version"];
const WITH_TITLE: &[&str] = &["name", "title", "version"];
const WITH_ICONS: &[&str] = &[
    "name",
    "title",
    "version",
    "description",
    "icons",
    "websiteUrl",
];

/// Legacy revisions, oldest first.
pub(crate) const PROFILES: [Profile; 4] = [
    Profile {
        name: "2024-11-05",
        batches: true,
        version_header: false,
        resumes: false,
        primes: false,
        tasks: false,
        capabilities: BEFORE_ELICITATION,
        client_info: NAME_VERSION,
    },
    Profile {
        name: "2025-03-26",
        batches: true,
        version_header: false,
        resumes: true,
        primes: false,
        tasks: false,
        capabilities: BEFORE_ELICITATION,
        client_info: NAME_VERSION,
    },
    Profile {
        name: "2025-06-18",
        batches: false,
        version_header: true,
        resumes: true,
        primes: false,
        tasks: false,
        capabilities: WITH_ELICITATION,
        client_info: WITH_TITLE,
    },
    Profile {
        name: "2025-11-25",
        batches: false,
        version_header: true,
        resumes: true,
        primes: true,
        tasks: true,
        capabilities: WITH_MODES,
        client_info: WITH_ICONS,
    },
];

/// Newest legacy revision: requested from servers, and offered to clients that request an unknown
/// one.
pub(crate) const NEWEST: &Profile = &PROFILES[3];

/// Revision of a request without a session that names none.
///
/// 2025-11-25/basic/transports.mdx, Protocol Version Header: "if the server does _not_ receive an
/// `MCP-Protocol-Version` header, and has no other way to identify the version [...] the server
/// **SHOULD** assume protocol version `2025-03-26`."
pub(crate) const UNNAMED: &Profile = &PROFILES[1];

/// Returns the profile of a revision.
pub(crate) fn profile(name: &str) -> Option<&'static Profile> {
    // The newest first: each request of a client names its own, and most speak that one.
    PROFILES.iter().rev().find(|profile| profile.name == name)
}

/// Header that carries the session id.
pub(crate) const SESSION_HEADER: http::HeaderName = http::HeaderName::from_static("mcp-session-id");

/// Code of "Resource not found", up to 2025-11-25 (server/resources.mdx, Error Handling).
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
