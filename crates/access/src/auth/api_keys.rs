//! API keys of clients.
//!
//! Owns how a request's key is read (`bearer`, `sent_key`), the step from it to its principal, and
//! which principals keys admit. Does not decide what a principal may do (`policy`). Invariant: a
//! removed key admits nobody.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::auth::authenticator::{
    AuthError, AuthRefusal, Authenticator, InvalidCredentials, ProvenIdentity,
};
use crate::auth::expiry::is_past;
use crate::auth::named_key::{KeyHash, KeySettings, mark_texts};
use crate::auth::principal_table::PrincipalTable;
use crate::policy::RoleAccess;
use moongate_model::{Principal, RoleId};

/// Name of the method.
const METHOD: &str = "API keys";

/// Keys that open the gateway.
pub(super) struct ApiKeys(HashMap<KeyHash, KnownKey>);

struct KnownKey {
    hash: KeyHash,
    principal: Arc<Principal>,
    expires: Option<jiff::Timestamp>,
}

impl ApiKeys {
    /// Creates the keys, and the access of each. A key with the same name and hash as before keeps
    /// its principal, whatever its position. Any other key gets a new one. The principals of
    /// removed keys are no longer admitted.
    pub(super) fn new(
        principals: &PrincipalTable,
        settings: &[KeySettings],
    ) -> (Self, Vec<(RoleId, RoleAccess)>) {
        let mut keys = HashMap::new();
        let mut roles = Vec::new();
        for key in settings {
            // Made from the key, so a new key of the same name is another principal.
            let principal_key = mark_texts(&key.hash.secret("sessions"), &["owner"]);
            // A secret for each purpose: a mark for one use proves nothing elsewhere.
            let principal = principals.intern(
                METHOD,
                principal_key,
                &key.name,
                Some(key.hash.secret("handles of tasks")),
            );
            principals.set_expiry(&principal_key, key.expires);
            let endpoints = key
                .views
                .as_ref()
                .map(|names| names.iter().cloned().collect());
            let name = key.name.clone();
            let tools = vec![key.tools.clone()];
            roles.push((
                principal.role(),
                RoleAccess {
                    name,
                    shared_role: key.role.clone(),
                    endpoints,
                    tools,
                    rate: key.rate,
                },
            ));
            keys.insert(
                key.hash,
                KnownKey {
                    hash: key.hash,
                    principal,
                    expires: key.expires,
                },
            );
        }
        // After the loop: a kept key must find its old principal, and no reload may drop it in
        // between.
        principals.retain(
            METHOD,
            &keys.values().map(|known| known.principal.id).collect(),
        );
        (ApiKeys(keys), roles)
    }
}

impl Authenticator for ApiKeys {
    fn name(&self) -> &'static str {
        METHOD
    }

    fn advice(&self) -> &'static str {
        "A valid API key is needed: Authorization: Bearer <key>"
    }

    fn authenticate(&self, headers: &HeaderMap, _: &str) -> Result<ProvenIdentity, AuthRefusal> {
        let hash = KeyHash::of(credential(headers)?);
        // The lookup by hash reveals nothing of a key. Equality is decided in constant time.
        let known = self
            .0
            .get(&hash)
            .filter(|known| known.hash.matches(&hash))
            .ok_or(UNKNOWN_KEY)?;
        let principal = known.principal.clone();
        let expires = known.expires;
        // Known but expired keys get their principal into the log, so an operator sees whose key it
        // was.
        if is_past(expires) {
            let expired = InvalidCredentials {
                cause: "expired key",
                principal: Some(principal),
            };
            return Err(AuthError::Invalid(expired).into());
        }
        Ok(ProvenIdentity::of(principal, expires))
    }

    fn expires(&self, principal: &Principal) -> Option<jiff::Timestamp> {
        self.0
            .values()
            .find(|known| *known.principal == *principal)?
            .expires
    }
}

/// Error for an unknown key.
pub const UNKNOWN_KEY: AuthError = AuthError::invalid("unknown key");
/// Error for credentials that are not a bearer token, or not text.
const MALFORMED: AuthError = AuthError::invalid("not a bearer token");

/// Returns the key in `Authorization: Bearer …`, if there is that header.
pub fn bearer(headers: &HeaderMap) -> Result<Option<&str>, AuthError> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| MALFORMED)?;
    let (scheme, key) = text.split_once(' ').ok_or(MALFORMED)?;
    // RFC 9110, 11.1: the name of an authentication scheme is case-insensitive. Section 11.4: one
    // or more spaces may come before the token.
    if scheme.eq_ignore_ascii_case("bearer") {
        Ok(Some(key.trim()))
    } else {
        Err(MALFORMED)
    }
}

/// Returns the key that a request of an authenticated client came with. `None` if no header has
/// one.
pub fn sent_key(headers: &HeaderMap) -> Option<&str> {
    // An empty text is part of every text, and authenticates nobody.
    credential(headers).ok().filter(|key| !key.is_empty())
}

/// Returns the key in `Authorization: Bearer …`, or in `X-API-Key`.
fn credential(headers: &HeaderMap) -> Result<&str, AuthError> {
    if let Some(key) = bearer(headers)? {
        return Ok(key);
    }
    // A fallback only. With both headers, an invalid `Authorization` is refused and does not fall
    // through.
    match headers.get("x-api-key") {
        Some(value) => value.to_str().map_err(|_| MALFORMED),
        None => Err(AuthError::Missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{AuthMethods, AuthSettings};
    use crate::policy::GlobList;

    fn key(name: &str, key: &str) -> KeySettings {
        KeySettings {
            name: name.to_owned(),
            hash: KeyHash::of(key),
            role: None,
            views: None,
            tools: GlobList::all(),
            rate: None,
            expires: None,
        }
    }

    fn keys(keys: &[KeySettings]) -> AuthSettings {
        AuthSettings {
            keys: keys.to_vec(),
            ..AuthSettings::default()
        }
    }

    fn headers_with(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    fn name_of(ring: &AuthMethods, headers: &HeaderMap) -> Result<String, AuthError> {
        ring.authenticate(headers, "", None)
            .map(|identity| identity.principal.name.clone())
            .map_err(|refusal| refusal.error)
    }

    fn id_of(ring: &AuthMethods, key: &str) -> Option<u32> {
        ring.authenticate(&headers_with("x-api-key", key), "", None)
            .map(|identity| identity.principal.id)
            .ok()
    }

    #[test]
    fn only_a_key_proves_its_principal() {
        let expired = KeySettings {
            expires: Some(jiff::Timestamp::UNIX_EPOCH),
            ..key("old", "mg_old")
        };
        let (ring, _) = AuthMethods::new(&keys(&[key("a", "mg_a"), key("b", "mg_b"), expired]));
        assert_eq!(
            name_of(&ring, &headers_with("authorization", "Bearer mg_a")),
            Ok("a".to_owned())
        );
        assert_eq!(
            name_of(&ring, &headers_with("authorization", "bearer  mg_b ")),
            Ok("b".to_owned())
        );
        assert_eq!(
            name_of(&ring, &headers_with("x-api-key", "mg_b")),
            Ok("b".to_owned())
        );
        assert_eq!(name_of(&ring, &HeaderMap::new()), Err(AuthError::Missing));
        let unknown = [
            ("Bearer mg_c", "unknown key"),
            ("Bearer ", "unknown key"),
            ("Bearer mg_old", "expired key"),
        ];
        let malformed = ["Bearer", "Basic mg_a", "mg_a"].map(|wrong| (wrong, "not a bearer token"));
        for (wrong, cause) in unknown.into_iter().chain(malformed) {
            let denied = name_of(&ring, &headers_with("authorization", wrong)).unwrap_err();
            assert!(matches!(denied, AuthError::Invalid(_)), "{wrong}");
            assert_eq!(denied.cause(), cause, "{wrong}");
            assert_eq!(
                denied.principal_name(),
                (cause == "expired key").then_some("old"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_key_that_stays_is_the_same_principal_and_no_id_is_used_twice() {
        let (first, _) = AuthMethods::new(&keys(&[key("a", "mg_a"), key("b", "mg_b")]));
        // `a` goes, `b` moves up, `c` is new, and then `a` comes back.
        let (second, access) = first.reloaded(&keys(&[key("b", "mg_b"), key("c", "mg_c")]));
        let (third, _) = second.reloaded(&keys(&[key("a", "mg_a"), key("b", "mg_b2")]));
        assert_eq!(id_of(&second, "mg_b"), id_of(&first, "mg_b"));
        assert_eq!(id_of(&second, "mg_a"), None);
        let gone = first
            .authenticate(&headers_with("x-api-key", "mg_a"), "", None)
            .ok()
            .unwrap()
            .principal;
        assert!(!second.principals().admits(&gone));
        assert!(!access.allows_tool(&gone, "x") && !access.allows_endpoint(&gone, ""));
        let old = [
            id_of(&first, "mg_a"),
            id_of(&first, "mg_b"),
            id_of(&second, "mg_c"),
        ];
        for new in [id_of(&third, "mg_a"), id_of(&third, "mg_b2")] {
            assert!(new.is_some() && !old.contains(&new), "{new:?} of {old:?}");
        }
        let (open, access) = third.reloaded(&keys(&[]));
        let anonymous = open
            .authenticate(&HeaderMap::new(), "", None)
            .ok()
            .unwrap()
            .principal;
        assert!(open.principals().admits(&anonymous) && access.allows_tool(&anonymous, "x"));
        let removed = third
            .authenticate(&headers_with("x-api-key", "mg_a"), "", None)
            .ok()
            .unwrap()
            .principal;
        assert!(!open.principals().admits(&removed) && !access.allows_tool(&removed, "x"));
    }
}
