//! Identity and permissions of clients.
//!
//! Owns API keys, admin keys, access per key and per set of people's roles, item rules and request
//! rates. Reads keys from HTTP headers, but does not know MCP messages or servers. Invariant: a
//! name that may not be used looks exactly like a name that does not exist.

pub mod auth;
pub mod policy;
