//! Authentication methods of the gateway: those of the config, and those that the program adds
//! (`with_added`).
//!
//! Owns their order, the identity that is cached per connection, and the challenge and advice that
//! a refused client gets. Does not read credentials (`api_keys.rs`). Invariant: every caller is the
//! anonymous principal if there are no methods, and none is if there are any.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::auth::api_keys::ApiKeys;
use crate::auth::auth_settings::AuthSettings;
use crate::auth::authenticator::{
    AuthError, AuthRefusal, Authenticator, LackedRight, ProvenIdentity,
};
use crate::auth::expiry::is_past;
use crate::auth::method_source::MethodSource;
use crate::auth::principal_table::{NO_METHOD, PrincipalTable};
use crate::policy::{AccessTable, RoleAccess};
use moongate_model::{Principal, PrincipalKey, PrincipalStanding, RoleId};

/// Methods that authenticate clients, in the order in which they are tried.
pub struct AuthMethods {
    methods: Vec<Arc<dyn Authenticator>>,
    /// Methods that the settings do not describe. They come first, and stay through a reload.
    added: Vec<Arc<dyn Authenticator>>,
    /// Source of further methods, which come after those.
    source: Option<Arc<dyn MethodSource>>,
    /// Principal of every caller, if there are no methods.
    anonymous: Option<Arc<Principal>>,
    principals: Arc<PrincipalTable>,
    /// Version of the settings. A cached identity of another version does not count.
    version: Arc<()>,
}

/// Identity cached on a connection, so that the same credentials need not be checked for each
/// request.
pub struct CachedIdentity {
    version: Arc<()>,
    credential: Vec<u8>,
    /// Endpoint that the credential was used at, since it may be good for no other.
    endpoint: String,
    identity: ProvenIdentity,
}

/// Roles with what each may use.
type RoleRows = Vec<(RoleId, RoleAccess)>;

impl AuthMethods {
    /// Creates the methods, and the table of what each role may use.
    pub fn new(settings: &AuthSettings) -> (Arc<Self>, AccessTable) {
        AuthMethods::with_added(Arc::default(), Vec::new(), settings)
    }

    /// Creates the methods, with some that the settings do not describe and that intern their
    /// principals in this table.
    pub fn with_added(
        principals: Arc<PrincipalTable>,
        added: Vec<Arc<dyn Authenticator>>,
        settings: &AuthSettings,
    ) -> (Arc<Self>, AccessTable) {
        AuthMethods::with_source(principals, added, None, settings)
    }

    /// Creates the methods, with some that are added, and some that a source creates for these and
    /// all later settings.
    pub fn with_source(
        principals: Arc<PrincipalTable>,
        added: Vec<Arc<dyn Authenticator>>,
        source: Option<Arc<dyn MethodSource>>,
        settings: &AuthSettings,
    ) -> (Arc<Self>, AccessTable) {
        let (keys, roles) = create_methods(&principals, settings);
        let sourced = source
            .as_ref()
            .map(|source| source.methods(settings, &principals))
            .unwrap_or_default();
        let methods: Vec<_> = added.iter().cloned().chain(sourced).chain(keys).collect();
        let anonymous = methods.is_empty().then(|| principals.intern_anonymous());
        // With the anonymous principal, which must not disappear for a moment while an open gateway
        // reloads.
        let names = methods.iter().map(|method| method.name());
        principals.retain_methods(
            &names
                .chain(anonymous.is_some().then_some(NO_METHOD))
                .collect::<Vec<_>>(),
        );
        // The new version voids every cached identity, since credentials may have been removed.
        principals.set_people(methods.iter().any(|method| method.admits_people()));
        let access = AccessTable::new(roles)
            .with_roles(settings.roles.clone(), principals.role_sets().clone());
        let methods = AuthMethods {
            methods,
            added,
            source,
            anonymous,
            principals,
            version: Arc::default(),
        };
        (Arc::new(methods), access)
    }

    /// Creates the methods after a change of the config. Credentials that stay keep their
    /// principal. Principals that no method admits any more are removed.
    pub fn reloaded(&self, settings: &AuthSettings) -> (Arc<Self>, AccessTable) {
        AuthMethods::with_source(
            self.principals.clone(),
            self.added.clone(),
            self.source.clone(),
            settings,
        )
    }

    /// Creates the methods as a reload would, with a copy of the principals. Those of the running
    /// gateway stay.
    pub fn preview(&self, settings: &AuthSettings) -> (Arc<Self>, AccessTable) {
        AuthMethods::with_source(
            Arc::new(self.principals.fork()),
            self.added.clone(),
            self.source.clone(),
            settings,
        )
    }

    /// Returns true if no method is set up, so that clients need no credentials.
    pub fn is_open(&self) -> bool {
        self.anonymous.is_some()
    }

    /// Returns the principals that are admitted now.
    pub fn principals(&self) -> &Arc<PrincipalTable> {
        &self.principals
    }

    /// Authenticates a request to an endpoint. `cached` is the identity of an earlier one, where
    /// connections keep it. A client without HTTP has empty headers.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        endpoint: &str,
        cached: Option<&mut Option<CachedIdentity>>,
    ) -> Result<ProvenIdentity, AuthRefusal> {
        if let Some(anonymous) = &self.anonymous {
            return Ok(ProvenIdentity::of(anonymous.clone(), None));
        }
        // Only `Authorization` is cached. Credentials in another header are checked for each
        // request. Most requests of a connection repeat their header. A comparison of bytes saves a
        // hash for each of them.
        let Some((cached, sent)) =
            cached.zip(headers.get(AUTHORIZATION).map(HeaderValue::as_bytes))
        else {
            return self.prove(headers, endpoint);
        };
        if let Some(known) = &*cached
            && Arc::ptr_eq(&known.version, &self.version)
            && verify_slices_are_equal(&known.credential, sent).is_ok()
            && known.endpoint == endpoint
            // Another token of the same person may have proved more since, or less.
            && known.identity.role == known.identity.principal.role()
            // Credentials that ended on an open connection are refused by their method, which says
            // why.
            && known.identity.is_alive()
        {
            return Ok(known.identity.clone());
        }
        let identity = self.prove(headers, endpoint)?;
        let version = self.version.clone();
        let credential = sent.to_vec();
        *cached = Some(CachedIdentity {
            version,
            credential,
            endpoint: endpoint.to_owned(),
            identity: identity.clone(),
        });
        Ok(identity)
    }

    /// Returns the identity that the first method proves. Fails with the first cause other than
    /// missing credentials.
    fn prove(&self, headers: &HeaderMap, endpoint: &str) -> Result<ProvenIdentity, AuthRefusal> {
        let mut refused = AuthRefusal::from(AuthError::Missing);
        for method in &self.methods {
            match method.authenticate(headers, endpoint) {
                Ok(identity) => return Ok(identity),
                // Keeps the first real refusal, because a later method would blame credentials that
                // were never meant for it.
                Err(refusal) if refused.error == AuthError::Missing => refused = refusal,
                Err(_) => {}
            }
        }
        Err(refused)
    }

    /// Returns the standing of the principal behind a stored key.
    pub fn standing(&self, key: &PrincipalKey) -> PrincipalStanding {
        match self.principals.find(key) {
            Some(principal) => PrincipalStanding::Seen(principal),
            None if self.methods.iter().any(|method| method.knows(key)) => {
                PrincipalStanding::Unseen
            }
            None => PrincipalStanding::Unknown,
        }
    }

    /// Returns the time since which a principal's credentials are refused. `None`: they are valid.
    pub fn expired(&self, principal: &Principal) -> Option<jiff::Timestamp> {
        let expires = self
            .methods
            .iter()
            .find_map(|method| method.expires(principal));
        expires.filter(|_| is_past(expires))
    }

    /// Returns the challenge to a client that was refused at an endpoint, as the value of
    /// `WWW-Authenticate`.
    pub fn challenge(&self, denied: &AuthError, endpoint: &str, host: Option<&str>) -> String {
        let parameters = self
            .methods
            .iter()
            .find_map(|method| method.challenge(endpoint, host));
        // Without `resource_metadata`, unless a method names it, so that no client looks for OAuth.
        let parameters = parameters.as_deref().unwrap_or(r#"realm="moongate""#);
        match denied {
            AuthError::Missing => format!("Bearer {parameters}"),
            AuthError::Invalid(_) | AuthError::Unavailable(_) | AuthError::Unchecked(_) => {
                format!(r#"Bearer {parameters}, error="invalid_token""#)
            }
            // RFC 6750, section 3.1: with this error, the challenge names the scope that is needed.
            AuthError::Forbidden(LackedRight::Scope) => {
                format!(r#"Bearer {parameters}, error="insufficient_scope""#)
            }
            // Another login would not help.
            AuthError::Forbidden(LackedRight::Role | LackedRight::Groups) => {
                format!("Bearer {parameters}")
            }
        }
    }

    /// Returns the JSON document at a path that clients without credentials read.
    pub fn document(&self, path: &str, host: Option<&str>) -> Option<String> {
        self.methods
            .iter()
            .find_map(|method| method.document(path, host))
    }

    /// Returns the text that shows a refused client what to send.
    pub fn advice(&self) -> String {
        self.methods
            .iter()
            .map(|method| method.advice())
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// Creates the methods that are set up, with the roles of their principals. A method that
/// recognizes its own credentials comes before the keys, because a key may be any text.
fn create_methods(
    principals: &PrincipalTable,
    settings: &AuthSettings,
) -> (Vec<Arc<dyn Authenticator>>, RoleRows) {
    let mut methods = Vec::<Arc<dyn Authenticator>>::new();
    let mut roles = RoleRows::new();
    // Without any key, the method refuses everybody.
    if !settings.is_open() {
        let AuthSettings {
            keys,
            required: _,
            roles: _,
            matches: _,
            tokens: _,
            broker: _,
        } = settings;
        let (keys, of_keys) = ApiKeys::new(principals, keys);
        methods.push(Arc::new(keys));
        roles.extend(of_keys);
    }
    (methods, roles)
}

#[cfg(test)]
mod tests;
