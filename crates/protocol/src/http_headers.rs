//! Names of the HTTP headers that MCP uses.
//!
//! Owns the headers that browsers may send and read. Does not check them. Invariant: the names are in lower case.

/// Header of the client's revision; for logs and metrics of refused requests.
pub const VERSION_HEADER: &str = "mcp-protocol-version";

/// Headers that browsers must be allowed to send and to read.
pub mod cors {
    /// Headers that pages may send.
    pub const ALLOWED: [&str; 9] = [
        "authorization",
        "content-type",
        "accept",
        "mcp-session-id",
        super::VERSION_HEADER,
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "x-api-key",
    ];
    /// Headers that pages may read.
    pub const EXPOSED: [&str; 2] = ["mcp-session-id", "www-authenticate"];
    /// Prefix of further headers that pages may send.
    pub const ALLOWED_PREFIX: &str = "mcp-param-";
}
