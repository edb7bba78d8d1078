//! Error codes of 2026-07-28 (basic/index.mdx, Error Codes).
//!
//! Owns the codes that JSON-RPC does not have. Has no behaviour. Invariant: they stand nowhere else.

/// Code: headers and body disagree.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// Code: the client did not declare a capability that the request needs.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// Code: the revision is not supported.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// Codes for resource not found and URL elicitation: "Implementations of this protocol version MUST NOT emit these
/// codes".
pub(crate) const RETIRED: [i64; 2] = [-32002, -32042];
