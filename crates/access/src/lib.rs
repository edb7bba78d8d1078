//! Identity and permissions of clients.
//!
//! Owns API keys, operators' keys, per-key access, item rules and request rates. Does not know
//! HTTP, MCP messages or servers. Invariant: a name that may not be used looks exactly like a name
//! that does not exist.

pub mod auth;
pub mod policy;
