//! Authentication: from credentials to principals.
//!
//! Owns the named API keys, those of operators included, and the principals that they prove. Does not decide what a principal may do (`policy`). Invariant:
//! a key is compared by its hash in constant time. It is never logged or forwarded, and lives no longer than its
//! connection.

mod admin;
mod authenticator;
mod key;
mod principal_table;
mod api_keys;

pub use admin::{AdminAccess, AdminKey, AdminRole, MetricsAccess};
pub use api_keys::ApiKeys;
pub use authenticator::{AuthError, Authenticator, CachedIdentity, InvalidKey};
pub use key::{KeyHash, KeySettings, mark_texts, new_key};
pub use principal_table::PrincipalTable;
