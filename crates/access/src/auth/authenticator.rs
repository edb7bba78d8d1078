//! The seam between [`AuthMethods`](super::AuthMethods) and one method to prove an identity.
//!
//! Owns a method's answers, and the causes of refusal. Does not know any credential
//! (`api_keys.rs`). Invariant: a refusal tells a client nothing that would help it guess.

use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;
use moongate_model::{Principal, PrincipalKey, RoleId};
use tokio_util::sync::CancellationToken;

use crate::auth::expiry::is_past;

/// Method to prove an identity, such as API keys.
///
/// A method answers at once, since authentication comes before a request's first wait. If it must
/// fetch something, its refusal carries the fetch, and `serve_request` repeats the step afterwards.
pub trait Authenticator: Send + Sync {
    /// Returns the name of the method. Its principals are interned under this name.
    fn name(&self) -> &'static str;

    /// Returns the text that shows a refused client what to send.
    fn advice(&self) -> &'static str;

    /// Proves the identity behind a request to an endpoint, whose name is empty for the one over
    /// all servers. Fails with [`AuthError::Missing`] if no credentials belong to this method.
    fn authenticate(
        &self,
        headers: &HeaderMap,
        endpoint: &str,
    ) -> Result<ProvenIdentity, AuthRefusal>;

    /// Returns the parameters of the challenge to a refused client, such as
    /// `resource_metadata="..."`, instead of the realm. `host` is the host that the request names.
    /// `None`: the method has no parameters.
    fn challenge(&self, _endpoint: &str, _host: Option<&str>) -> Option<String> {
        None
    }

    /// Returns the JSON document at a path that clients without credentials read, such as the
    /// metadata of an endpoint. `host` is the host that the request names. `None`: there is none.
    fn document(&self, _path: &str, _host: Option<&str>) -> Option<String> {
        None
    }

    /// Returns true if the method meets its principals only when they come.
    fn admits_people(&self) -> bool {
        false
    }

    /// Returns true if the principal with this key has a valid login, even if it has not come yet.
    fn knows(&self, _: &PrincipalKey) -> bool {
        false
    }

    /// Returns the time from which the credentials of a principal are refused. `None`: they do not
    /// expire, or belong to another method.
    fn expires(&self, _: &Principal) -> Option<jiff::Timestamp> {
        None
    }
}

/// Identity that credentials prove.
#[derive(Clone, Debug)]
pub struct ProvenIdentity {
    /// Principal of the credentials.
    pub principal: Arc<Principal>,
    /// Roles that they prove. Other credentials of the same person may prove others.
    pub role: RoleId,
    /// Time from which they are refused.
    pub expires: Option<jiff::Timestamp>,
    /// Cancelled when their login ends. `None`: they do not belong to a login, and end with the
    /// principal.
    pub login: Option<CancellationToken>,
}

impl ProvenIdentity {
    /// Creates the identity of a principal without a login.
    pub(super) fn of(principal: Arc<Principal>, expires: Option<jiff::Timestamp>) -> Self {
        ProvenIdentity {
            role: principal.role(),
            principal,
            expires,
            login: None,
        }
    }

    /// Returns true for as long as the credentials are valid. They may end on an open connection.
    pub(super) fn is_alive(&self) -> bool {
        !is_past(self.expires)
            && !self
                .login
                .as_ref()
                .is_some_and(CancellationToken::is_cancelled)
    }
}

/// Future that fetches what a method lacks, such as an issuer's keys. The method keeps the result.
pub type CredentialFetch = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Refusal of a request by its credentials.
pub struct AuthRefusal {
    /// Cause.
    pub error: AuthError,
    /// Fetch after which the same credentials may be valid.
    pub fetch: Option<CredentialFetch>,
}

impl From<AuthError> for AuthRefusal {
    fn from(error: AuthError) -> Self {
        AuthRefusal { error, fetch: None }
    }
}

/// Cause of refused credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// No credentials.
    Missing,
    /// Invalid or expired credentials. Clients get one answer for all causes. The difference is for
    /// the operator.
    Invalid(InvalidCredentials),
    /// Valid credentials, but no room for them. Clients are asked to try again.
    Unavailable(&'static str),
    /// Credentials that cannot be checked at the moment, valid or not. Clients are asked to try
    /// again, and must not take them for invalid.
    Unchecked(&'static str),
    /// Valid credentials that lack a right. Only their sender may learn what is missing.
    Forbidden(LackedRight),
}

/// Right that valid credentials lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LackedRight {
    /// Scope, which another login may grant.
    Scope,
    /// Role, which only the operator can assign.
    Role,
    /// Groups, which are too many for a token, so that no role can go by them.
    Groups,
}

/// Credentials that were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCredentials {
    /// Cause, for the operator's log.
    pub cause: &'static str,
    /// Principal that they proved before, if they have expired.
    pub principal: Option<Arc<Principal>>,
}

impl AuthError {
    /// Creates the error for credentials that prove nobody.
    pub const fn invalid(cause: &'static str) -> Self {
        AuthError::Invalid(InvalidCredentials {
            cause,
            principal: None,
        })
    }

    /// Returns the cause, for the operator's log.
    pub fn cause(&self) -> &'static str {
        match self {
            AuthError::Missing => "no key",
            AuthError::Invalid(credentials) => credentials.cause,
            AuthError::Unavailable(cause) | AuthError::Unchecked(cause) => cause,
            AuthError::Forbidden(LackedRight::Scope) => "token without the scope",
            AuthError::Forbidden(LackedRight::Role) => "no matching role",
            AuthError::Forbidden(LackedRight::Groups) => {
                "token without its groups, which are too many; use app roles (match.app_roles)"
            }
        }
    }

    /// Returns the name of the principal, if the credentials are known.
    pub fn principal_name(&self) -> Option<&str> {
        match self {
            AuthError::Invalid(InvalidCredentials {
                principal: Some(principal),
                ..
            }) => Some(&principal.name),
            AuthError::Invalid(_)
            | AuthError::Missing
            | AuthError::Unavailable(_)
            | AuthError::Unchecked(_)
            | AuthError::Forbidden(_) => None,
        }
    }
}
