//! The seam between clients' listeners and the ways to prove an identity.
//!
//! Owns the questions that a listener may ask, and the causes of refusal. Does not know any credential (`api_keys.rs`).
//! Invariant: a refusal says nothing to a client that would help it to guess.

use std::sync::Arc;

use http::HeaderMap;
use moongate_model::Principal;

/// Step from a request's credentials to its principal. A client without HTTP has empty headers.
pub trait Authenticator: Send + Sync {
    /// Authenticates a request.
    fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Principal>, AuthError>;

    /// Authenticates a request on a connection that keeps the identity of an earlier one.
    fn authenticate_cached(
        &self,
        headers: &HeaderMap,
        cached: &mut Option<CachedIdentity>,
    ) -> Result<Arc<Principal>, AuthError>;
}

/// Identity cached on a connection, so that the same key need not be hashed for each request.
pub struct CachedIdentity {
    pub(super) version: Arc<()>,
    pub(super) credential: Vec<u8>,
    pub(super) principal: Arc<Principal>,
    pub(super) expires: Option<jiff::Timestamp>,
}

/// Cause of refused credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// No credentials.
    Missing,
    /// Invalid or expired key. Clients get one answer for both. The difference is for the operator.
    Invalid(InvalidKey),
}

/// Cause of an invalid key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidKey {
    /// Neither a bearer token nor text.
    Malformed,
    /// Unknown key.
    Unknown,
    /// Expired key of this principal.
    Expired(Arc<Principal>),
}

impl AuthError {
    /// Returns the cause, for the operator's log.
    pub fn cause(&self) -> &'static str {
        match self {
            AuthError::Missing => "no key",
            AuthError::Invalid(InvalidKey::Malformed) => "not a bearer token",
            AuthError::Invalid(InvalidKey::Unknown) => "unknown key",
            AuthError::Invalid(InvalidKey::Expired(_)) => "expired key",
        }
    }

    /// Returns the name of the key, if it was one.
    pub fn key(&self) -> Option<&str> {
        match self {
            AuthError::Invalid(InvalidKey::Expired(principal)) => Some(&principal.name),
            _ => None,
        }
    }
}
