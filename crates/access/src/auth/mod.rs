//! Authentication: from credentials to principals.
//!
//! Owns the methods, the named API keys, those of operators included, and the principals that they
//! prove. Does not decide what a principal may do (`policy`). Invariant: a key is compared by its
//! hash in constant time. It is never logged or forwarded, and is kept no longer than its
//! connection.

mod admin_access;
mod auth_methods;
mod auth_settings;
mod authenticator;
mod broker_settings;
mod expiry;
mod method_source;
mod named_key;
mod principal_table;
mod api_keys;
mod token_settings;

pub use admin_access::{AdminAccess, AdminKey, AdminRole, MetricsAccess, bearer_hash};
pub use api_keys::{UNKNOWN_KEY, bearer, sent_key};
pub use auth_methods::{AuthMethods, CachedIdentity};
pub use auth_settings::AuthSettings;
pub use authenticator::{
    AuthError, AuthRefusal, Authenticator, CredentialFetch, InvalidCredentials, LackedRight,
    ProvenIdentity,
};
pub use broker_settings::{
    BrokerSettings, CLIENT_HOSTS, CLIENT_SCHEMES, ClientKinds, ProviderKind, ProviderSecret,
    ProviderSettings,
};
pub use method_source::MethodSource;
pub use named_key::{KeyHash, KeySettings, is_key_name, mark_texts, new_key};
pub use principal_table::{Person, PrincipalChange, PrincipalTable};
pub use token_settings::{RoleMatch, SignatureAlgorithm, TokenIssuer, TokenSettings};
