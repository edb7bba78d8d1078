//! Reasons to refuse a token.
//!
//! Owns their words for the operator's log. Does not answer clients. Invariant: a reason never
//! contains text from a token, because its sender could write into the log.

use moongate_access::auth::AuthError;

/// Reason to refuse a token. Clients get the same answer for all of them, except that nothing is
/// said about a token before its issuer's keys are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// Too long, or not three parts of JSON.
    Malformed,
    /// `typ` of something other than an access token.
    Type,
    /// `crit` in the header, which asks for an extension.
    Extension,
    /// `iss` that is missing or not in the config.
    Issuer,
    /// `alg` that the issuer must not use.
    Algorithm,
    /// No keys of its issuer, because none could be fetched.
    NoKeys,
    /// No matching key.
    UnknownKey,
    /// Signature that no key made.
    Signature,
    /// `exp` that is missing.
    NoExpiry,
    /// `exp` in the past.
    Expired,
    /// `nbf` in the future.
    NotYet,
    /// `sub` that is missing.
    NoSubject,
    /// `tid` of another tenant than the issuer's.
    Tenant,
    /// `aud` that names something else.
    Audience,
    /// Claims of an ID token.
    IdToken,
    /// `cnf`, which binds the token to a key.
    Bound,
    /// `nonce` of another login.
    Nonce,
    /// `azp` of another client.
    Party,
    /// `iat` that is missing or long ago.
    Stale,
}

impl TokenFault {
    /// Returns the words for the operator's log.
    pub fn cause(self) -> &'static str {
        match self {
            TokenFault::Malformed => "malformed token",
            TokenFault::Type => "not an access token",
            TokenFault::Extension => "token with an unknown extension",
            TokenFault::Issuer => "token from an unknown issuer",
            TokenFault::Algorithm => "token with a refused algorithm",
            TokenFault::NoKeys => "token of an issuer whose keys were not fetched",
            TokenFault::UnknownKey => "token signed with an unknown key",
            TokenFault::Signature => "token with a bad signature",
            TokenFault::NoExpiry => "token without an expiry",
            TokenFault::Expired => "expired token",
            TokenFault::NotYet => "token that is not valid yet",
            TokenFault::NoSubject => "token without a subject",
            TokenFault::Tenant => "token of another tenant",
            TokenFault::Audience => "token for another audience",
            TokenFault::IdToken => "ID token instead of an access token",
            TokenFault::Bound => "token bound to a key",
            TokenFault::Nonce => "token of another login",
            TokenFault::Party => "token for another client",
            TokenFault::Stale => "token that was not made just now",
        }
    }
}

impl From<TokenFault> for AuthError {
    fn from(fault: TokenFault) -> Self {
        match fault {
            // A client that reads "invalid" drops its tokens and asks its user to log in again.
            TokenFault::NoKeys => AuthError::Unchecked(fault.cause()),
            _ => AuthError::invalid(fault.cause()),
        }
    }
}
