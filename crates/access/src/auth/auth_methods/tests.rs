//! Tests of the methods: their order, reloads, and identities cached on a connection.

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::auth::{CredentialFetch, KeyHash, KeySettings};
use crate::policy::GlobList;

/// Method that takes `user:NAME` as credentials. Meets its principals only when they come.
struct UserNames {
    principals: Arc<PrincipalTable>,
    expires: Option<jiff::Timestamp>,
    /// Names that it knows, or fetches.
    known: Arc<Mutex<Vec<String>>>,
    login: CancellationToken,
}

impl UserNames {
    fn new(principals: &Arc<PrincipalTable>, expires: Option<jiff::Timestamp>) -> Self {
        let known = ["ann", "bob"].map(str::to_owned).to_vec();
        let principals = principals.clone();
        let known = Arc::new(Mutex::new(known));
        UserNames {
            principals,
            expires,
            known,
            login: CancellationToken::new(),
        }
    }
}

impl Authenticator for UserNames {
    fn name(&self) -> &'static str {
        "user names"
    }

    fn advice(&self) -> &'static str {
        "a name"
    }

    fn challenge(&self, endpoint: &str, host: Option<&str>) -> Option<String> {
        (host? == "login.test")
            .then(|| format!(r#"resource_metadata="https://login.test/{endpoint}""#))
    }

    fn authenticate(&self, headers: &HeaderMap, _: &str) -> Result<ProvenIdentity, AuthRefusal> {
        let sent = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let name = sent
            .and_then(|sent| sent.strip_prefix("user:"))
            .ok_or(AuthError::Missing)?;
        if name.is_empty() {
            return Err(AuthError::invalid("no name").into());
        }
        if !self.known.lock().iter().any(|known| known == name) {
            let known = self.known.clone();
            let name = name.to_owned();
            let fetch: CredentialFetch = Box::pin(async move { known.lock().push(name) });
            return Err(AuthRefusal {
                error: AuthError::invalid("unknown name"),
                fetch: Some(fetch),
            });
        }
        let mut key = [0; 16];
        key[..name.len()].copy_from_slice(name.as_bytes());
        let principal = self.principals.intern(self.name(), key, name, None);
        Ok(ProvenIdentity {
            role: principal.role(),
            principal,
            expires: self.expires,
            login: Some(self.login.clone()),
        })
    }
}

fn keys(names: &[&str]) -> AuthSettings {
    let keys = names.iter().map(|name| KeySettings {
        name: (*name).to_owned(),
        hash: KeyHash::of(name),
        role: None,
        views: None,
        tools: GlobList::all(),
        rate: None,
        expires: None,
    });
    AuthSettings {
        keys: keys.collect(),
        ..AuthSettings::default()
    }
}

/// Sets up user names in addition to the keys.
fn with_users(principals: &Arc<PrincipalTable>, settings: &AuthSettings) -> Arc<AuthMethods> {
    with_users_until(principals, settings, None)
}

/// Sets up user names whose logins expire at this time.
fn with_users_until(
    principals: &Arc<PrincipalTable>,
    settings: &AuthSettings,
    expires: Option<jiff::Timestamp>,
) -> Arc<AuthMethods> {
    let users = Arc::new(UserNames::new(principals, expires));
    AuthMethods::with_added(principals.clone(), vec![users], settings).0
}

fn authenticate(methods: &AuthMethods, headers: &HeaderMap) -> Result<Arc<Principal>, AuthError> {
    methods
        .authenticate(headers, "", None)
        .map(|identity| identity.principal)
        .map_err(|refusal| refusal.error)
}

/// Authenticates a request of a connection that keeps its identity.
fn authenticate_cached(
    methods: &AuthMethods,
    value: &str,
    cached: &mut Option<CachedIdentity>,
) -> Result<Arc<Principal>, AuthError> {
    methods
        .authenticate(&sent(value), "", Some(cached))
        .map(|identity| identity.principal)
        .map_err(|refusal| refusal.error)
}

fn sent(value: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
}

#[test]
fn principals_of_a_method_outlive_the_keys_and_end_with_the_method() {
    let principals = Arc::default();
    let first = with_users(&principals, &keys(&["a", "b"]));
    let user = authenticate(&first, &sent("user:ann")).unwrap();
    let key = authenticate(&first, &sent("Bearer a")).unwrap();
    // The keys change, and then there are none.
    for settings in [keys(&["b"]), keys(&[])] {
        let next = with_users(&principals, &settings);
        assert!(principals.admits(&user) && !principals.admits(&key));
        assert_eq!(authenticate(&next, &sent("user:ann")), Ok(user.clone()));
        assert!(
            next.authenticate(&HeaderMap::new(), "", None).is_err(),
            "a method closes the gateway"
        );
    }
    // A preview changes nothing, a reload keeps the method, and its end ends its principals
    // alone.
    let last = with_users(&principals, &keys(&["b"]));
    let key = authenticate(&last, &sent("Bearer b")).unwrap();
    let (previewed, _) = last.preview(&keys(&["c"]));
    assert!(
        principals.admits(&key)
            && !previewed.principals().admits(&key)
            && previewed.principals().admits(&user)
    );
    let (reloaded, _) = last.reloaded(&keys(&["b"]));
    assert_eq!(authenticate(&reloaded, &sent("user:ann")), Ok(user.clone()));
    let (ended, _) = AuthMethods::with_added(principals.clone(), Vec::new(), &keys(&["b"]));
    assert!(!principals.admits(&user) && principals.admits(&key));
    assert_eq!(
        authenticate(&ended, &sent("user:ann")).unwrap_err().cause(),
        "not a bearer token"
    );
}

#[test]
fn an_open_gateway_keeps_its_principal_through_a_reload() {
    let (open, _) = AuthMethods::new(&keys(&[]));
    let anonymous = authenticate(&open, &HeaderMap::new()).unwrap();
    let (next, _) = open.reloaded(&keys(&[]));
    let again = authenticate(&next, &HeaderMap::new()).unwrap();
    assert!(Arc::ptr_eq(&anonymous, &again) && next.principals().admits(&anonymous));
    let (closed, _) = next.reloaded(&keys(&["a"]));
    assert!(!closed.principals().admits(&anonymous));
}

#[test]
fn a_gateway_without_keys_that_asks_for_one_admits_nobody() {
    let (closed, _) = AuthMethods::new(&AuthSettings {
        required: true,
        ..AuthSettings::default()
    });
    assert!(!closed.is_open());
    for headers in [HeaderMap::new(), sent("Bearer a"), sent("Bearer ")] {
        assert!(closed.authenticate(&headers, "", None).is_err());
    }
    let (before, _) = AuthMethods::new(&keys(&["a"]));
    let (after, _) = before.reloaded(&AuthSettings {
        required: true,
        ..AuthSettings::default()
    });
    assert_eq!(
        authenticate(&after, &sent("Bearer a")).unwrap_err().cause(),
        "unknown key"
    );
}

#[test]
fn the_first_method_that_knows_the_credentials_decides() {
    let methods = with_users(&Arc::default(), &keys(&["a"]));
    for (headers, cause) in [
        (HeaderMap::new(), "no key"),
        (sent("user:"), "no name"),
        (sent("Bearer x"), "unknown key"),
    ] {
        assert_eq!(authenticate(&methods, &headers).unwrap_err().cause(), cause);
    }
    assert_eq!(
        methods.advice(),
        "a name; A valid API key is needed: Authorization: Bearer <key>"
    );
}

#[tokio::test]
async fn credentials_are_good_after_the_fetch_that_their_refusal_carries() {
    let methods = with_users(&Arc::default(), &keys(&["a"]));
    let refusal = methods
        .authenticate(&sent("user:cho"), "", None)
        .err()
        .unwrap();
    assert_eq!(refusal.error.cause(), "unknown name");
    refusal.fetch.unwrap().await;
    assert_eq!(
        authenticate(&methods, &sent("user:cho")).unwrap().name,
        "cho"
    );
    assert!(
        methods
            .authenticate(&sent("Bearer x"), "", None)
            .err()
            .unwrap()
            .fetch
            .is_none()
    );
}

#[test]
fn a_method_names_its_login_in_the_challenge_for_its_host() {
    let methods = with_users(&Arc::default(), &keys(&["a"]));
    let login = r#"Bearer resource_metadata="https://login.test/files""#;
    let wrong = AuthError::invalid("no name");
    let host = Some("login.test");
    assert_eq!(methods.challenge(&AuthError::Missing, "files", host), login);
    assert_eq!(
        methods.challenge(&wrong, "files", host),
        format!(r#"{login}, error="invalid_token""#)
    );
    for host in [Some("other.test"), None] {
        assert_eq!(
            methods.challenge(&AuthError::Missing, "files", host),
            r#"Bearer realm="moongate""#
        );
    }
}

#[test]
fn a_cached_identity_ends_with_its_login() {
    let principals = Arc::<PrincipalTable>::default();
    let users = Arc::new(UserNames::new(&principals, None));
    let (methods, _) = AuthMethods::with_added(principals.clone(), vec![users.clone()], &keys(&[]));
    let mut cached = None;
    assert!(authenticate_cached(&methods, "user:ann", &mut cached).is_ok());
    // The method no longer knows the name, and the connection does until the login ends.
    users.known.lock().clear();
    assert!(authenticate_cached(&methods, "user:ann", &mut cached).is_ok());
    users.login.cancel();
    assert_eq!(
        authenticate_cached(&methods, "user:ann", &mut cached),
        Err(AuthError::invalid("unknown name"))
    );
}

#[test]
fn an_identity_is_cached_until_it_expires_or_the_config_changes() {
    let principals = Arc::<PrincipalTable>::default();
    let mut cached = None;
    let lasting = with_users_until(&principals, &keys(&[]), None);
    let ann = authenticate_cached(&lasting, "user:ann", &mut cached);
    // An interned principal that is gone shows who was asked: the cache, or the method.
    principals.retain_methods(&[]);
    let again = authenticate_cached(&lasting, "user:ann", &mut cached);
    assert_eq!(again, ann);
    let bob = authenticate_cached(&lasting, "user:bob", &mut cached);
    assert_ne!(bob, ann);
    for expires in [None, Some(jiff::Timestamp::UNIX_EPOCH)] {
        let next = with_users_until(&principals, &keys(&[]), expires);
        let ann = authenticate_cached(&next, "user:ann", &mut cached);
        principals.retain_methods(&[]);
        let again = authenticate_cached(&next, "user:ann", &mut cached);
        assert_eq!(again == ann, expires.is_none());
    }
}
