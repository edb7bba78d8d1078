//! Headers that pages of another origin may send and read (CORS).
//!
//! Owns their names. Does not check origins or requests (`listener/origin.rs`). Invariant: the
//! names are in lower case.

/// Headers that pages may send.
pub const ALLOWED: [&str; 9] = [
    "authorization",
    "content-type",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
    "x-api-key",
];
/// Headers that pages may read.
pub const EXPOSED: [&str; 2] = ["mcp-session-id", "www-authenticate"];
/// Prefix of further headers that pages may send.
pub const ALLOWED_PREFIX: &str = "mcp-param-";
