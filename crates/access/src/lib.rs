//! Identity and permissions of clients.
//!
//! Owns authentication methods with the principals that they admit, and the keys of clients and
//! operators. Also owns the access of each key and of each set of people's roles, item rules and
//! request rates. Does not know MCP messages or servers, and leaves access tokens to
//! `moongate_tokens`. Invariant: a name that may not be used looks exactly like a name that does
//! not exist.

pub mod auth;
pub mod policy;
