//! Authentication: from credentials to principals.
//!
//! Owns the methods, the named API keys, those of operators included, and the principals that they
//! prove. Does not decide what a principal may do (`policy`). Invariant: a key is compared by its
//! hash in constant time. It is never logged or forwarded, and lives no longer than its connection.

mod admin;
mod auth_methods;
mod authenticator;
mod expiry;
mod named_key;
mod principal_table;
mod api_keys;

pub use admin::{AdminAccess, AdminKey, AdminRole, MetricsAccess, bearer_hash};
pub use api_keys::{UNKNOWN_KEY, sent_key};
pub use auth_methods::{AuthMethods, AuthSettings, CachedIdentity};
pub use authenticator::{
    AuthError, AuthRefusal, Authenticator, CredentialFetch, InvalidCredentials, ProvenIdentity,
};
pub use named_key::{KeyHash, KeySettings, is_key_name, mark_texts, new_key};
pub use principal_table::{Person, PrincipalChange, PrincipalTable};
