//! Authentication methods that the config sets up.
//!
//! Owns their order, and the identity that a connection keeps. Does not read credentials (`api_keys.rs`). Invariant:
//! without any method every caller is the anonymous principal, and with one none is.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::auth::api_keys::ApiKeys;
use crate::auth::expiry::is_past;
use crate::auth::principal_table::NO_METHOD;
use crate::auth::{AuthError, Authenticator, KeySettings, PrincipalTable, ProvenIdentity};
use crate::policy::{AccessTable, RoleAccess};
use moongate_model::{Principal, RoleId};

/// Settings of all methods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthSettings {
    /// API keys.
    pub keys: Vec<KeySettings>,
    /// True if clients need a key even where there is none.
    pub required: bool,
}

impl AuthSettings {
    /// Returns true if no method is set up. The gateway then admits every caller, and listens on loopback only.
    pub fn is_open(&self) -> bool {
        let AuthSettings { keys, required } = self;
        keys.is_empty() && !required
    }
}

/// Methods that authenticate clients, in the order in which they are tried.
pub struct AuthMethods {
    methods: Vec<Box<dyn Authenticator>>,
    /// Principal of every caller, if there are no methods.
    anonymous: Option<Arc<Principal>>,
    principals: Arc<PrincipalTable>,
    /// Version of the settings. A cached identity of another version does not count.
    version: Arc<()>,
}

/// Identity cached on a connection, so that the same credentials need not be checked for each request.
pub struct CachedIdentity {
    version: Arc<()>,
    credential: Vec<u8>,
    identity: ProvenIdentity,
}

/// Roles with what each may use.
type RoleRows = Vec<(RoleId, RoleAccess)>;

impl AuthMethods {
    /// Creates the methods, and the table of what each role may use.
    pub fn new(settings: &AuthSettings) -> (Arc<Self>, AccessTable) {
        AuthMethods::with_principals(Arc::default(), settings)
    }

    /// Creates the methods after a change of the config. Credentials that stay keep their principal. Principals that no
    /// method admits any more are removed.
    pub fn reloaded(&self, settings: &AuthSettings) -> (Arc<Self>, AccessTable) {
        AuthMethods::with_principals(self.principals.clone(), settings)
    }

    /// Creates the methods as a reload would, with a copy of the principals. Those of the running gateway stay.
    pub fn preview(&self, settings: &AuthSettings) -> (Arc<Self>, AccessTable) {
        AuthMethods::with_principals(Arc::new(self.principals.fork()), settings)
    }

    fn with_principals(principals: Arc<PrincipalTable>, settings: &AuthSettings) -> (Arc<Self>, AccessTable) {
        let (methods, roles) = create_methods(&principals, settings);
        AuthMethods::assemble(principals, methods, roles)
    }

    fn assemble(
        principals: Arc<PrincipalTable>,
        methods: Vec<Box<dyn Authenticator>>,
        roles: RoleRows,
    ) -> (Arc<Self>, AccessTable) {
        let anonymous = methods.is_empty().then(|| principals.intern_anonymous());
        // With the anonymous principal, which must not be away for a moment while an open gateway reloads.
        let names = methods.iter().map(|method| method.name());
        principals.retain_methods(&names.chain(anonymous.is_some().then_some(NO_METHOD)).collect::<Vec<_>>());
        // The new version voids every cached identity, since credentials may have been removed.
        let methods = AuthMethods { methods, anonymous, principals, version: Arc::default() };
        (Arc::new(methods), AccessTable::new(roles))
    }

    /// Returns true if no method is set up, so that clients need no credentials.
    pub fn is_open(&self) -> bool {
        self.anonymous.is_some()
    }

    /// Returns the principals that are admitted now.
    pub fn principals(&self) -> &Arc<PrincipalTable> {
        &self.principals
    }

    /// Authenticates a request. `cached` is the identity of an earlier one, where connections keep it. A client without
    /// HTTP has empty headers.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        cached: Option<&mut Option<CachedIdentity>>,
    ) -> Result<Arc<Principal>, AuthError> {
        if let Some(anonymous) = &self.anonymous {
            return Ok(anonymous.clone());
        }
        // Only `Authorization` is cached. Credentials in another header are checked for each request.
        // Most requests of a connection repeat their header. A comparison of bytes saves a hash for each of
        // them.
        let Some((cached, sent)) = cached.zip(headers.get(AUTHORIZATION).map(HeaderValue::as_bytes)) else {
            return self.prove(headers).map(|identity| identity.principal);
        };
        if let Some(known) = &*cached
            && Arc::ptr_eq(&known.version, &self.version)
            && verify_slices_are_equal(&known.credential, sent).is_ok()
            // Credentials can expire on an open connection. Their method then says so.
            && !is_past(known.identity.expires)
        {
            return Ok(known.identity.principal.clone());
        }
        let identity = self.prove(headers)?;
        let principal = identity.principal.clone();
        *cached = Some(CachedIdentity { version: self.version.clone(), credential: sent.to_vec(), identity });
        Ok(principal)
    }

    /// Returns the identity that the first method proves. Fails with the first cause that is more than a lack of
    /// credentials.
    fn prove(&self, headers: &HeaderMap) -> Result<ProvenIdentity, AuthError> {
        let mut refused = AuthError::Missing;
        for method in &self.methods {
            match method.authenticate(headers) {
                Ok(identity) => return Ok(identity),
                // Keeps the first real refusal: the cause of a later method would blame credentials that were
                // never meant for it.
                Err(error) if refused == AuthError::Missing => refused = error,
                Err(_) => {}
            }
        }
        Err(refused)
    }

    /// Returns the time since which the credentials of a principal are refused. `None`: they are not.
    pub fn expired(&self, principal: &Principal) -> Option<jiff::Timestamp> {
        let expires = self.methods.iter().find_map(|method| method.expires(principal));
        expires.filter(|_| is_past(expires))
    }

    /// Returns the text that tells a refused client what to send.
    pub fn advice(&self) -> String {
        self.methods.iter().map(|method| method.advice()).collect::<Vec<_>>().join("; ")
    }
}

/// Creates the methods that are set up, with the roles of their principals. A method that tells its own credentials from
/// others stands before the keys: a key may be any text.
fn create_methods(principals: &PrincipalTable, settings: &AuthSettings) -> (Vec<Box<dyn Authenticator>>, RoleRows) {
    let (mut methods, mut roles) = (Vec::<Box<dyn Authenticator>>::new(), RoleRows::new());
    // Without any key, the method refuses everybody.
    if !settings.is_open() {
        let AuthSettings { keys, required: _ } = settings;
        let (keys, of_keys) = ApiKeys::new(principals, keys);
        methods.push(Box::new(keys));
        roles.extend(of_keys);
    }
    (methods, roles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::KeyHash;
    use crate::policy::GlobList;

    /// Method that takes `user:NAME` as credentials. Meets its principals only when they come.
    struct UserNames {
        principals: Arc<PrincipalTable>,
        expires: Option<jiff::Timestamp>,
    }

    impl Authenticator for UserNames {
        fn name(&self) -> &'static str {
            "user names"
        }

        fn advice(&self) -> &'static str {
            "a name"
        }

        fn authenticate(&self, headers: &HeaderMap) -> Result<ProvenIdentity, AuthError> {
            let sent = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
            let name = sent.and_then(|sent| sent.strip_prefix("user:")).ok_or(AuthError::Missing)?;
            if name.is_empty() {
                return Err(AuthError::invalid("no name"));
            }
            let mut key = [0; 16];
            key[..name.len()].copy_from_slice(name.as_bytes());
            let principal = self.principals.intern(self.name(), key, name, None);
            Ok(ProvenIdentity { principal, expires: self.expires })
        }
    }

    fn keys(names: &[&str]) -> AuthSettings {
        let key = |name: &&str| KeySettings {
            name: (*name).to_owned(),
            hash: KeyHash::of(name),
            views: None,
            tools: GlobList::all(),
            rate: None,
            expires: None,
        };
        AuthSettings { keys: names.iter().map(key).collect(), required: false }
    }

    /// Sets up user names beside the keys.
    fn with_users(principals: &Arc<PrincipalTable>, settings: &AuthSettings) -> Arc<AuthMethods> {
        let (mut methods, roles) = create_methods(principals, settings);
        methods.insert(0, Box::new(UserNames { principals: principals.clone(), expires: None }));
        AuthMethods::assemble(principals.clone(), methods, roles).0
    }

    fn sent(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn principals_of_a_method_outlive_the_keys_and_end_with_the_method() {
        let principals = Arc::default();
        let first = with_users(&principals, &keys(&["a", "b"]));
        let who = |methods: &AuthMethods, value: &str| methods.authenticate(&sent(value), None);
        let (user, key) = (who(&first, "user:ann").unwrap(), who(&first, "Bearer a").unwrap());
        // The keys change, and then there are none.
        for settings in [keys(&["b"]), keys(&[])] {
            let next = with_users(&principals, &settings);
            assert!(principals.admits(&user) && !principals.admits(&key));
            assert_eq!(who(&next, "user:ann"), Ok(user.clone()));
            assert!(next.authenticate(&HeaderMap::new(), None).is_err(), "a method closes the gateway");
        }
        // A preview changes nothing, and the end of the method ends its principals alone.
        let last = with_users(&principals, &keys(&["b"]));
        let key = who(&last, "Bearer b").unwrap();
        let (previewed, _) = last.preview(&keys(&["b"]));
        assert!(
            principals.admits(&user) && !previewed.principals().admits(&user) && previewed.principals().admits(&key)
        );
        let (reloaded, _) = last.reloaded(&keys(&["b"]));
        assert!(!principals.admits(&user) && principals.admits(&key));
        assert_eq!(who(&reloaded, "user:ann").unwrap_err().cause(), "not a bearer token");
    }

    #[test]
    fn an_open_gateway_keeps_its_principal_through_a_reload() {
        let (open, _) = AuthMethods::new(&keys(&[]));
        let anonymous = open.authenticate(&HeaderMap::new(), None).unwrap();
        let (next, _) = open.reloaded(&keys(&[]));
        let again = next.authenticate(&HeaderMap::new(), None).unwrap();
        assert!(Arc::ptr_eq(&anonymous, &again) && next.principals().admits(&anonymous));
        let (closed, _) = next.reloaded(&keys(&["a"]));
        assert!(!closed.principals().admits(&anonymous));
    }

    #[test]
    fn a_gateway_without_keys_that_asks_for_one_admits_nobody() {
        let (closed, _) = AuthMethods::new(&AuthSettings { keys: Vec::new(), required: true });
        assert!(!closed.is_open());
        for headers in [HeaderMap::new(), sent("Bearer a"), sent("Bearer ")] {
            assert!(closed.authenticate(&headers, None).is_err());
        }
        let (before, _) = AuthMethods::new(&keys(&["a"]));
        let (after, _) = before.reloaded(&AuthSettings { keys: Vec::new(), required: true });
        assert_eq!(after.authenticate(&sent("Bearer a"), None).unwrap_err().cause(), "unknown key");
    }

    #[test]
    fn the_first_method_that_knows_the_credentials_decides() {
        let methods = with_users(&Arc::default(), &keys(&["a"]));
        let cause = |headers: &HeaderMap| methods.authenticate(headers, None).unwrap_err().cause();
        assert_eq!(cause(&HeaderMap::new()), "no key");
        assert_eq!(cause(&sent("user:")), "no name");
        assert_eq!(cause(&sent("Bearer x")), "unknown key");
        assert_eq!(methods.advice(), "a name; A valid API key is needed: Authorization: Bearer <key>");
    }

    #[test]
    fn an_identity_is_cached_until_it_expires_or_the_config_changes() {
        let (principals, mut cached) = (Arc::<PrincipalTable>::default(), None);
        let methods = |expires| {
            let users = Box::new(UserNames { principals: principals.clone(), expires });
            AuthMethods::assemble(principals.clone(), vec![users], Vec::new()).0
        };
        let lasting = methods(None);
        let who = lasting.authenticate(&sent("user:ann"), Some(&mut cached)).unwrap();
        // An interned principal that is gone shows who was asked: the cache, or the method.
        let end = || principals.retain_methods(&[]);
        end();
        assert_eq!(lasting.authenticate(&sent("user:ann"), Some(&mut cached)), Ok(who.clone()));
        assert_ne!(lasting.authenticate(&sent("user:bob"), Some(&mut cached)), Ok(who.clone()));
        for expires in [None, Some(jiff::Timestamp::UNIX_EPOCH)] {
            let next = methods(expires);
            let who = next.authenticate(&sent("user:ann"), Some(&mut cached)).unwrap();
            end();
            let again = next.authenticate(&sent("user:ann"), Some(&mut cached)).unwrap();
            assert_eq!(again == who, expires.is_none());
        }
    }
}
