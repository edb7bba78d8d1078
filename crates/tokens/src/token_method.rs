//! Authentication by access tokens.
//!
//! Owns the steps from a request's token to a principal. Does not check the token itself
//! (`verify.rs`). Invariant: a client does not learn why a token was refused, unless the token is
//! valid but lacks a right.

use std::sync::Arc;

use http::HeaderMap;
use moongate_access::auth::{
    AuthError, AuthRefusal, Authenticator, CredentialFetch, LackedRight, Person, PrincipalTable,
    ProvenIdentity, RoleMatch, TokenIssuer, bearer,
};
use moongate_model::PrincipalKey;

use crate::compact_token::{CompactToken, looks_like_token};
use crate::issuer_keys::IssuerKeys;
use crate::person_mark::PersonKey;
use crate::resource_names::{ResourceDocument, ResourceNames, is_endpoint_name};
use crate::role_matches::{IssuedClaims, lacks_matched_groups, roles_of};
use crate::token_fault::TokenFault;
use crate::verify::{TokenUse, VerifiedToken, check_claims, check_header, check_signature};

/// Name of the methods that admit people. All of them intern under this name, so that one person
/// is one principal.
pub const PEOPLE: &str = "access tokens";

/// Issuer with its keys.
pub(crate) struct TrustedIssuer {
    pub(crate) settings: TokenIssuer,
    pub(crate) keys: Arc<IssuerKeys>,
}

/// Access tokens of the operator's own issuers.
pub(crate) struct TokenMethod {
    pub(crate) issuers: Vec<TrustedIssuer>,
    /// Issuer of this gateway's own logins, which clients try first.
    pub(crate) broker_issuer: Option<String>,
    pub(crate) resources: ResourceNames,
    /// Scope that the tokens of all issuers need.
    pub(crate) scope: Option<String>,
    pub(crate) matches: Vec<RoleMatch>,
    pub(crate) principals: Arc<PrincipalTable>,
    pub(crate) person_key: Arc<PersonKey>,
}

/// Refused token, with the issuer whose newer keys might verify it.
struct RefusedToken<'a> {
    fault: TokenFault,
    issuer: Option<&'a TrustedIssuer>,
}

impl From<TokenFault> for RefusedToken<'_> {
    fn from(fault: TokenFault) -> Self {
        RefusedToken {
            fault,
            issuer: None,
        }
    }
}

impl TokenMethod {
    /// Verifies a token for an endpoint.
    fn verify(
        &self,
        text: &str,
        endpoint: &str,
    ) -> Result<(&TrustedIssuer, VerifiedToken), RefusedToken<'_>> {
        let token = CompactToken::read(text)?;
        let named = token.claims.text("iss").ok_or(TokenFault::Issuer)?;
        let issuer = self
            .issuers
            .iter()
            .find(|issuer| issuer.settings.issuer == named)
            .ok_or(TokenFault::Issuer)?;
        let header = check_header(&token.header, &issuer.settings)?;
        let lacks_key = |fault| RefusedToken {
            fault,
            issuer: Some(issuer),
        };
        let keys = issuer.keys.current();
        let keys = keys.ok_or_else(|| lacks_key(TokenFault::NoKeys))?;
        match check_signature(&token, &header, &keys) {
            Err(fault @ TokenFault::UnknownKey) => return Err(lacks_key(fault)),
            checked => checked?,
        }
        let call = TokenUse {
            resources: &self.resources,
            endpoint,
            now: jiff::Timestamp::now(),
        };
        let verified = check_claims(token.claims, &issuer.settings, &call)?;
        Ok((issuer, verified))
    }

    /// Returns the identity that a valid token proves.
    fn admit(
        &self,
        issuer: &TrustedIssuer,
        token: &VerifiedToken,
    ) -> Result<ProvenIdentity, AuthError> {
        if !token.has_scope {
            return Err(AuthError::Forbidden(LackedRight::Scope));
        }
        let issuer = &issuer.settings.issuer;
        let claims = IssuedClaims {
            issuer,
            claims: &token.claims,
        };
        let roles = roles_of(&self.matches, issuer, &claims);
        if roles.is_empty() {
            let lacks_groups = lacks_matched_groups(&self.matches, issuer, &token.claims);
            return Err(AuthError::Forbidden(if lacks_groups {
                LackedRight::Groups
            } else {
                LackedRight::Role
            }));
        }
        let role = self
            .principals
            .role_sets()
            .intern(&roles)
            .ok_or(AuthError::Unavailable("too many role sets"))?;
        let secret = self.person_key.secret_of(&token.mark);
        // The person stays until the last of their tokens expires.
        let is_known = self.principals.find(&token.mark).is_some();
        let known = self.principals.expiry_of(&token.mark);
        let expires = match known {
            None if is_known => None,
            known => Some(known.map_or(token.expires, |known| known.max(token.expires))),
        };
        let principal = self.principals.meet(
            PEOPLE,
            Person {
                key: token.mark,
                name: &token.name,
                secret,
                role,
                expires,
            },
        )?;
        Ok(ProvenIdentity {
            principal,
            role,
            expires: Some(token.expires),
            login: None,
        })
    }
}

impl Authenticator for TokenMethod {
    fn name(&self) -> &'static str {
        PEOPLE
    }

    fn advice(&self) -> &'static str {
        "Log in with OAuth, or send an access token: Authorization: Bearer <token>"
    }

    fn authenticate(
        &self,
        headers: &HeaderMap,
        endpoint: &str,
    ) -> Result<ProvenIdentity, AuthRefusal> {
        // Anything else may be an API key.
        let token = bearer(headers).ok().flatten();
        let token = token
            .filter(|text| looks_like_token(text))
            .ok_or(AuthError::Missing)?;
        match self.verify(token, endpoint) {
            Ok((issuer, verified)) => Ok(self.admit(issuer, &verified)?),
            Err(RefusedToken { fault, issuer }) => {
                // Without a new fetch, waiting would not help.
                let keys = issuer
                    .map(|issuer| issuer.keys.clone())
                    .filter(|keys| keys.may_fetch());
                Err(AuthRefusal {
                    error: fault.into(),
                    fetch: keys.map(|keys| -> CredentialFetch { Box::pin(keys.refresh()) }),
                })
            }
        }
    }

    fn admits_people(&self) -> bool {
        true
    }

    /// Returns true if the person's last token is good for longer. No list of logins says so: a
    /// token shows only when it comes. The end of each is stored with the sessions of its person,
    /// who must still come with a good token to find them.
    fn knows(&self, key: &PrincipalKey) -> bool {
        self.principals.awaits(key)
    }

    fn challenge(&self, endpoint: &str, host: Option<&str>) -> Option<String> {
        // Under another allowed host, clients use keys.
        if !self.resources.is_own_host(host?) || !is_endpoint_name(endpoint) {
            return None;
        }
        let metadata = self.resources.metadata_url(endpoint);
        Some(match &self.scope {
            Some(scope) => format!(r#"resource_metadata="{metadata}", scope="{scope}""#),
            None => format!(r#"resource_metadata="{metadata}""#),
        })
    }

    fn document(&self, path: &str, host: Option<&str>) -> Option<String> {
        if !self.resources.is_own_host(host?) {
            return None;
        }
        let endpoint = self.resources.endpoint_at(path)?;
        let issuers = self.issuers.iter().map(|issuer| &issuer.settings.issuer);
        let document = ResourceDocument::new(
            self.resources.identifier(&endpoint),
            self.broker_issuer.iter().chain(issuers).cloned().collect(),
            self.scope.as_deref(),
        );
        serde_json::to_string(&document).ok()
    }
}

/// Returns the scope that the tokens of all issuers need. `None`: issuers differ, and one would
/// refuse a client that asks for another's scope.
pub(crate) fn common_scope(issuers: &[TokenIssuer]) -> Option<&str> {
    let (first, others) = issuers.split_first()?;
    others
        .iter()
        .all(|issuer| issuer.scope == first.scope)
        .then_some(first.scope.as_str())
}
