//! Identity and permissions of clients.
//!
//! Owns authentication methods and the principals that they admit, API keys, admin keys, access per
//! key and per set of people's roles, item rules and request rates. Does not know MCP messages or
//! servers, and leaves access tokens to `moongate_tokens`. Invariant: a name that may not be used
//! looks exactly like a name that does not exist.

pub mod auth;
pub mod policy;
