//! Reserved names and error codes of 2026-07-28.
//!
//! Owns the `_meta` keys and the codes. Has no behaviour. Invariant: they stand nowhere else.

/// Name of the revision.
pub(crate) const NAME: &str = "2026-07-28";

/// `_meta` key: revision of a request.
pub(crate) const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta` key: `Implementation` of the client.
pub(crate) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta` key: capabilities of the client.
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` key: lowest level of log messages for the client.
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// `_meta` key: `Implementation` of the server.
pub(crate) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta` key: subscription of a notification.
pub(crate) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Code: headers and body disagree (basic/index.mdx, Error Codes).
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// Code: the client did not declare a capability that the request needs.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// Code: the revision is not supported.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// Codes for resource not found and URL elicitation: "Implementations of this protocol version MUST NOT emit these
/// codes".
pub(crate) const RETIRED: [i64; 2] = [-32002, -32042];
