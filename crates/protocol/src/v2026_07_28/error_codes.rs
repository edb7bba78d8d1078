//! Error codes of 2026-07-28 (basic/index.mdx, Error Codes).
//!
//! Owns the codes that JSON-RPC does not have, and those that this revision has no more. Does not
//! encode errors (`encode.rs`). Invariant: they appear nowhere else.

use moongate_jsonrpc::message::code;

/// Code: headers and body disagree.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// Code: the client did not declare a capability that the request needs.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// Code: the revision is not supported.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// Codes for resource not found and URL elicitation: "Implementations of this protocol version MUST
/// NOT emit these codes".
const RETIRED: [i64; 2] = [-32002, -32042];

/// Converts the code of a server of another revision. A server of this revision answers for its
/// codes itself.
pub(crate) fn current_code(code: i64) -> i64 {
    if RETIRED.contains(&code) {
        code::INVALID_PARAMS
    } else {
        code
    }
}
