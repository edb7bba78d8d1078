//! API keys of clients.
//!
//! Owns the step from a request's key to its principal, and who is admitted. Does not decide what a principal may do
//! (`policy`). Invariant: without any key every caller is the anonymous principal, and with keys none is.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::auth::{
    AuthError, Authenticator, CachedIdentity, InvalidKey, KeyHash, KeySettings, PrincipalTable, mark_texts,
};
use crate::policy::{AccessTable, RoleAccess};
use moongate_model::Principal;

/// Keys that open the gateway. Without any, every caller is admitted, and the gateway listens on loopback only.
pub struct ApiKeys {
    keys: HashMap<KeyHash, KnownKey>,
    /// Principal of every caller, if there are no keys.
    anonymous: Option<Arc<Principal>>,
    principals: Arc<PrincipalTable>,
    /// Version of the keys. A cached identity of another version does not count.
    version: Arc<()>,
}

struct KnownKey {
    hash: KeyHash,
    principal: Arc<Principal>,
    expires: Option<jiff::Timestamp>,
}

impl ApiKeys {
    /// Creates the keys, and the table of what each key opens.
    pub fn new(settings: &[KeySettings]) -> (Arc<Self>, AccessTable) {
        ApiKeys::with_principals(Arc::default(), settings)
    }

    /// Creates the keys after a change of the config. A key with the same name and hash keeps its principal, wherever
    /// it stands. Any other key gets a new one. The principals of removed keys are no longer admitted.
    pub fn reloaded(&self, settings: &[KeySettings]) -> (Arc<Self>, AccessTable) {
        ApiKeys::with_principals(self.principals.clone(), settings)
    }

    fn with_principals(principals: Arc<PrincipalTable>, settings: &[KeySettings]) -> (Arc<Self>, AccessTable) {
        let (mut keys, mut roles) = (HashMap::new(), Vec::new());
        for key in settings {
            // Made from the key, so a new key of the same name is another principal.
            let mark = mark_texts(&key.hash.secret("sessions"), &["owner"]);
            // A secret for each purpose: a mark for one use proves nothing elsewhere.
            let principal = principals.intern(mark, &key.name, Some(key.hash.secret("handles of tasks")));
            let endpoints = key.views.as_ref().map(|names| names.iter().cloned().collect());
            let (name, tools) = (key.name.clone(), key.tools.clone());
            roles.push((principal.role, RoleAccess { name, endpoints, tools, rate: key.rate }));
            keys.insert(key.hash, KnownKey { hash: key.hash, principal, expires: key.expires });
        }
        let anonymous = settings.is_empty().then(|| principals.intern_anonymous());
        let admitted = keys.values().map(|known| &known.principal).chain(&anonymous);
        principals.retain(&admitted.map(|principal| principal.id).collect());
        // The new version voids every cached identity, since a key may have been removed.
        let keys = ApiKeys { keys, anonymous, principals, version: Arc::default() };
        (Arc::new(keys), AccessTable::new(roles))
    }

    /// Returns the principals that are admitted now.
    pub fn principals(&self) -> &Arc<PrincipalTable> {
        &self.principals
    }

    fn find_key(&self, headers: &HeaderMap) -> Result<&KnownKey, AuthError> {
        let hash = KeyHash::of(credential(headers)?);
        // The lookup by hash reveals nothing of a key. Equality is decided in constant time.
        self.keys.get(&hash).filter(|known| known.hash.matches(&hash)).ok_or(AuthError::Invalid(InvalidKey::Unknown))
    }
}

impl Authenticator for ApiKeys {
    fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Principal>, AuthError> {
        if let Some(anonymous) = &self.anonymous {
            return Ok(anonymous.clone());
        }
        let known = self.find_key(headers)?;
        check_not_expired(known.expires, &known.principal)?;
        Ok(known.principal.clone())
    }

    fn authenticate_cached(
        &self,
        headers: &HeaderMap,
        cached: &mut Option<CachedIdentity>,
    ) -> Result<Arc<Principal>, AuthError> {
        // Only `Authorization` is cached. `X-API-Key` is looked up for each request.
        let said = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).filter(|_| self.anonymous.is_none());
        let Some(said) = said else { return self.authenticate(headers) };
        if let Some(known) = &*cached
            && Arc::ptr_eq(&known.version, &self.version)
            && verify_slices_are_equal(&known.credential, said).is_ok()
        {
            // A key can expire on an open connection.
            check_not_expired(known.expires, &known.principal)?;
            return Ok(known.principal.clone());
        }
        let KnownKey { principal, expires, .. } = self.find_key(headers)?;
        check_not_expired(*expires, principal)?;
        *cached = Some(CachedIdentity {
            version: self.version.clone(),
            credential: said.to_vec(),
            principal: principal.clone(),
            expires: *expires,
        });
        Ok(principal.clone())
    }
}

/// Fails if a key has expired.
fn check_not_expired(expires: Option<jiff::Timestamp>, principal: &Arc<Principal>) -> Result<(), AuthError> {
    match expires {
        Some(expires) if jiff::Timestamp::now() >= expires => {
            Err(AuthError::Invalid(InvalidKey::Expired(principal.clone())))
        }
        _ => Ok(()),
    }
}

/// Error for credentials that are no bearer token, or no text.
const MALFORMED: AuthError = AuthError::Invalid(InvalidKey::Malformed);

/// Returns the key in `Authorization: Bearer …`, if there is that header.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, AuthError> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().map_err(|_| MALFORMED)?;
    let (scheme, key) = text.split_once(' ').ok_or(MALFORMED)?;
    // RFC 9110, 11.1: the name of an authentication scheme is case-insensitive.
    if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(key.trim())) } else { Err(MALFORMED) }
}

/// Returns the key in `Authorization: Bearer …`, or in `X-API-Key`.
fn credential(headers: &HeaderMap) -> Result<&str, AuthError> {
    if let Some(key) = bearer(headers)? {
        return Ok(key);
    }
    match headers.get("x-api-key") {
        Some(value) => value.to_str().map_err(|_| MALFORMED),
        None => Err(AuthError::Missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::GlobList;

    fn key(name: &str, key: &str) -> KeySettings {
        KeySettings {
            name: name.to_owned(),
            hash: KeyHash::of(key),
            views: None,
            tools: GlobList::all(),
            rate: None,
            expires: None,
        }
    }

    fn with(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    #[test]
    fn a_key_is_its_principal_and_nothing_else_is() {
        let expired = KeySettings { expires: Some(jiff::Timestamp::UNIX_EPOCH), ..key("old", "mg_old") };
        let (ring, _) = ApiKeys::new(&[key("a", "mg_a"), key("b", "mg_b"), expired]);
        let who = |headers: HeaderMap| ring.authenticate(&headers).map(|p| p.name.clone());
        assert_eq!(who(with("authorization", "Bearer mg_a")), Ok("a".to_owned()));
        assert_eq!(who(with("authorization", "bearer  mg_b ")), Ok("b".to_owned()));
        assert_eq!(who(with("x-api-key", "mg_b")), Ok("b".to_owned()));
        assert_eq!(who(HeaderMap::new()), Err(AuthError::Missing));
        let unknown = [("Bearer mg_c", "unknown key"), ("Bearer ", "unknown key"), ("Bearer mg_old", "expired key")];
        let malformed = ["Bearer", "Basic mg_a", "mg_a"].map(|wrong| (wrong, "not a bearer token"));
        for (wrong, cause) in unknown.into_iter().chain(malformed) {
            let denied = who(with("authorization", wrong)).unwrap_err();
            assert_eq!((matches!(denied, AuthError::Invalid(_)), denied.cause()), (true, cause), "{wrong}");
            assert_eq!(denied.key(), (cause == "expired key").then_some("old"), "{wrong}");
        }
    }

    #[test]
    fn a_key_that_stays_is_the_same_principal_and_no_id_is_used_twice() {
        let who = |ring: &ApiKeys, key: &str| ring.authenticate(&with("x-api-key", key)).map(|p| p.id).ok();
        let (first, _) = ApiKeys::new(&[key("a", "mg_a"), key("b", "mg_b")]);
        // `a` goes, `b` moves up, `c` is new, and then `a` comes back.
        let (second, access) = first.reloaded(&[key("b", "mg_b"), key("c", "mg_c")]);
        let (third, _) = second.reloaded(&[key("a", "mg_a"), key("b", "mg_b2")]);
        assert_eq!(who(&second, "mg_b"), who(&first, "mg_b"));
        assert_eq!(who(&second, "mg_a"), None);
        let gone = first.authenticate(&with("x-api-key", "mg_a")).unwrap();
        assert!(!second.principals().admits(&gone));
        assert!(!access.allows_tool(&gone, "x") && !access.allows_endpoint(&gone, ""));
        let old = [who(&first, "mg_a"), who(&first, "mg_b"), who(&second, "mg_c")];
        for new in [who(&third, "mg_a"), who(&third, "mg_b2")] {
            assert!(new.is_some() && !old.contains(&new), "{new:?} of {old:?}");
        }
        let (open, access) = third.reloaded(&[]);
        let anonymous = open.authenticate(&HeaderMap::new()).unwrap();
        assert!(open.principals().admits(&anonymous) && access.allows_tool(&anonymous, "x"));
        let removed = third.authenticate(&with("x-api-key", "mg_a")).unwrap();
        assert!(!open.principals().admits(&removed) && !access.allows_tool(&removed, "x"));
    }
}
