//! All keys: from a request's credentials to its principal.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::auth::{KeyHash, KeySettings};
use crate::model::Principal;
use crate::policy::{ANYBODY, Access, AccessTable};

/// The keys that open the gateway; without any, everybody may come in (and it listens on loopback only).
pub struct KeyRing {
    keys: HashMap<KeyHash, Known>,
    anybody: Arc<Principal>,
}

struct Known {
    hash: KeyHash,
    principal: Arc<Principal>,
    expires: Option<jiff::Timestamp>,
}

/// Why credentials do not open the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There are none.
    Missing,
    /// They are wrong, or no longer valid: the same answer.
    Wrong,
}

impl KeyRing {
    /// The ring, and the table of what each key opens; the principals' ids are its rows.
    pub fn new(settings: &[KeySettings]) -> (Self, AccessTable) {
        let mut keys = HashMap::new();
        let mut rows = Vec::new();
        for (row, key) in settings.iter().enumerate() {
            let id = u32::try_from(row).unwrap_or(u32::MAX);
            let principal = Arc::new(Principal { name: key.name.clone(), id });
            keys.insert(key.hash, Known { hash: key.hash, principal, expires: key.expires });
            let endpoints = key.views.as_ref().map(|names| names.iter().cloned().collect());
            let secret = key.hash.secret("handles of tasks");
            rows.push(Access { endpoints, tools: key.tools.clone(), secret });
        }
        let anybody = Arc::new(Principal { name: "anybody".to_owned(), id: ANYBODY });
        (KeyRing { keys, anybody }, AccessTable::new(rows))
    }

    /// By what each principal is known in another run of the gateway: made of its key, so that another key of the same
    /// name is somebody else.
    pub fn owners(&self) -> HashMap<u32, [u8; 16]> {
        if self.keys.is_empty() {
            return HashMap::from([(ANYBODY, [0; 16])]);
        }
        let owner = |known: &Known| (known.principal.id, known.hash.secret("sessions").mark(&["owner"]));
        self.keys.values().map(owner).collect()
    }

    /// Who sends this request.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Principal>, Denied> {
        if self.keys.is_empty() {
            return Ok(self.anybody.clone());
        }
        let key = credential(headers)?;
        let hash = KeyHash::of(key);
        // The table is found by hash, which tells nothing of a key; equality is decided in constant time.
        let known = self.keys.get(&hash).filter(|known| known.hash.matches(&hash)).ok_or(Denied::Wrong)?;
        match known.expires {
            Some(expires) if jiff::Timestamp::now() >= expires => Err(Denied::Wrong),
            _ => Ok(known.principal.clone()),
        }
    }
}

/// The key in `Authorization: Bearer …`, or in `X-API-Key`.
fn credential(headers: &HeaderMap) -> Result<&str, Denied> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let text = value.to_str().map_err(|_| Denied::Wrong)?;
        let (scheme, key) = text.split_once(' ').ok_or(Denied::Wrong)?;
        return if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(Denied::Wrong) };
    }
    match headers.get("x-api-key") {
        Some(value) => value.to_str().map_err(|_| Denied::Wrong),
        None => Err(Denied::Missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Globs;

    fn key(name: &str, key: &str) -> KeySettings {
        KeySettings {
            name: name.to_owned(),
            hash: KeyHash::of(key),
            views: None,
            tools: Globs::all(),
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
        let (ring, _) = KeyRing::new(&[key("a", "mg_a"), key("b", "mg_b"), expired]);
        let who = |headers: HeaderMap| ring.authenticate(&headers).map(|p| p.name.clone());
        assert_eq!(who(with("authorization", "Bearer mg_a")), Ok("a".to_owned()));
        assert_eq!(who(with("authorization", "bearer  mg_b ")), Ok("b".to_owned()));
        assert_eq!(who(with("x-api-key", "mg_b")), Ok("b".to_owned()));
        assert_eq!(who(HeaderMap::new()), Err(Denied::Missing));
        for wrong in ["Bearer mg_c", "Bearer ", "Bearer", "Basic mg_a", "mg_a", "Bearer mg_old"] {
            assert_eq!(who(with("authorization", wrong)), Err(Denied::Wrong), "{wrong}");
        }
    }
}
