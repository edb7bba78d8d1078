//! Permissions: which principal may see and call which item.
//!
//! Owns globs, the item rules of each server, the access of each key and of each set of roles, and
//! request rates. Does not know credentials (`auth`), nor what a view contains or where a name
//! leads (`moongate_gateway`). Invariant: an item that may not be called looks exactly like one
//! that does not exist.

mod access_table;
mod rate;
mod role_sets;
mod rules;
mod traversal;

pub use access_table::{ANONYMOUS, AccessSource, AccessTable, RoleAccess};
pub use rate::{RequestRate, TokenBucket};
pub use role_sets::RoleSets;
pub use rules::{GlobList, ItemRules, literal_beginning};
pub use traversal::has_traversal;
