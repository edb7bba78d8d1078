//! Who may see and call what.
//!
//! Owns the rules that a config gives: per server, per view and per key. Does not know credentials (`auth`) or where
//! a name leads (`gateway`). Invariant: what may not be called looks exactly like what does not exist.

mod access;
mod rate;
mod rules;
mod traversal;

pub use access::{ANONYMOUS, AccessTable, PrincipalAccess, PrincipalSecret};
pub use rate::{RequestRate, TokenBucket};
pub use rules::{GlobList, ItemRules};
pub use traversal::traverses;
