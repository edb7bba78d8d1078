//! All keys: from a request's credentials to its principal.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::auth::{KeyHash, KeySettings};
use crate::model::Principal;
use crate::policy::{ANYBODY, Access, AccessTable};

/// The keys that open the gateway; without any, everybody may come in (and it listens on loopback only).
pub struct KeyRing {
    keys: HashMap<KeyHash, Known>,
    anybody: Arc<Principal>,
    /// The id of the next principal. None is given twice, so that nothing that was kept for one is found by another.
    next: u32,
    /// What is remembered of another ring does not hold here.
    mark: Arc<()>,
}

/// A key that opened the gateway on a connection, so that the same need not be hashed again with each request.
pub struct Remembered {
    ring: Arc<()>,
    said: Vec<u8>,
    principal: Arc<Principal>,
    expires: Option<jiff::Timestamp>,
}

struct Known {
    hash: KeyHash,
    principal: Arc<Principal>,
    expires: Option<jiff::Timestamp>,
}

/// Why credentials do not open the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There are none.
    Missing,
    /// They are wrong, or no longer valid: the same answer, and the difference is for the operator.
    Wrong(WrongKey),
}

/// The difference between wrong keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongKey {
    /// Not a bearer token, or not text.
    Malformed,
    /// Nobody has it.
    Unknown,
    /// This principal had it.
    Expired(Arc<Principal>),
}

impl Denied {
    /// The cause, for the operator's log.
    pub fn cause(&self) -> &'static str {
        match self {
            Denied::Missing => "no key",
            Denied::Wrong(WrongKey::Malformed) => "not a bearer token",
            Denied::Wrong(WrongKey::Unknown) => "unknown key",
            Denied::Wrong(WrongKey::Expired(_)) => "expired key",
        }
    }

    /// The name of the key, where it was one.
    pub fn key(&self) -> Option<&str> {
        match self {
            Denied::Wrong(WrongKey::Expired(principal)) => Some(&principal.name),
            _ => None,
        }
    }
}

impl KeyRing {
    /// The ring, and the table of what each key opens.
    pub fn new(settings: &[KeySettings]) -> (Self, AccessTable) {
        let anybody = Arc::new(Principal { name: "anybody".to_owned(), id: ANYBODY });
        KeyRing { keys: HashMap::new(), anybody, next: 0, mark: Arc::default() }.followed_by(settings)
    }

    /// The ring after a change of the keys: a key that keeps its name and its hash stays the same principal, wherever it
    /// stands by now; any other is a new one.
    pub fn followed_by(&self, settings: &[KeySettings]) -> (Self, AccessTable) {
        let (mut keys, mut rows, mut next) = (HashMap::new(), Vec::new(), self.next);
        for key in settings {
            let same = |known: &&Known| known.hash.matches(&key.hash) && known.principal.name == key.name;
            let principal = match self.keys.get(&key.hash).filter(same) {
                Some(known) => known.principal.clone(),
                None => {
                    let id = next;
                    next = next.saturating_add(1).min(ANYBODY - 1);
                    Arc::new(Principal { name: key.name.clone(), id })
                }
            };
            let endpoints = key.views.as_ref().map(|names| names.iter().cloned().collect());
            let secret = key.hash.secret("handles of tasks");
            let (name, tools) = (key.name.clone(), key.tools.clone());
            rows.push((principal.id, Access { name, endpoints, tools, secret }));
            keys.insert(key.hash, Known { hash: key.hash, principal, expires: key.expires });
        }
        (KeyRing { keys, anybody: self.anybody.clone(), next, mark: Arc::default() }, AccessTable::new(rows))
    }

    /// The principal of a key by its name and hash, if it has this key.
    pub fn principal(&self, name: &str, hash: &KeyHash) -> Option<Arc<Principal>> {
        let known = self.keys.get(hash).filter(|known| known.hash.matches(hash))?;
        (known.principal.name == name).then(|| known.principal.clone())
    }

    /// Who comes in without a key, where that is allowed.
    pub fn anybody(&self) -> Option<Arc<Principal>> {
        self.keys.is_empty().then(|| self.anybody.clone())
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
        let known = self.known(headers)?;
        still(known.expires, &known.principal)?;
        Ok(known.principal.clone())
    }

    /// Who sends another request on a connection.
    pub fn authenticate_again(
        &self,
        headers: &HeaderMap,
        remembered: &mut Option<Remembered>,
    ) -> Result<Arc<Principal>, Denied> {
        let said = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).filter(|_| !self.keys.is_empty());
        let Some(said) = said else { return self.authenticate(headers) };
        if let Some(known) = &*remembered
            && Arc::ptr_eq(&known.ring, &self.mark)
            && verify_slices_are_equal(&known.said, said).is_ok()
        {
            still(known.expires, &known.principal)?;
            return Ok(known.principal.clone());
        }
        let Known { principal, expires, .. } = self.known(headers)?;
        still(*expires, principal)?;
        let (ring, said) = (self.mark.clone(), said.to_vec());
        *remembered = Some(Remembered { ring, said, principal: principal.clone(), expires: *expires });
        Ok(principal.clone())
    }

    fn known(&self, headers: &HeaderMap) -> Result<&Known, Denied> {
        let hash = KeyHash::of(credential(headers)?);
        // The table is found by hash, which tells nothing of a key; equality is decided in constant time.
        self.keys.get(&hash).filter(|known| known.hash.matches(&hash)).ok_or(Denied::Wrong(WrongKey::Unknown))
    }
}

/// Whether a key holds now.
fn still(expires: Option<jiff::Timestamp>, principal: &Arc<Principal>) -> Result<(), Denied> {
    match expires {
        Some(expires) if jiff::Timestamp::now() >= expires => Err(Denied::Wrong(WrongKey::Expired(principal.clone()))),
        _ => Ok(()),
    }
}

/// What is no bearer token, or no text.
const MALFORMED: Denied = Denied::Wrong(WrongKey::Malformed);

/// The key in `Authorization: Bearer …`, if there is that header.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Denied> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().map_err(|_| MALFORMED)?;
    let (scheme, key) = text.split_once(' ').ok_or(MALFORMED)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(key.trim())) } else { Err(MALFORMED) }
}

/// The key in `Authorization: Bearer …`, or in `X-API-Key`.
fn credential(headers: &HeaderMap) -> Result<&str, Denied> {
    if let Some(key) = bearer(headers)? {
        return Ok(key);
    }
    match headers.get("x-api-key") {
        Some(value) => value.to_str().map_err(|_| MALFORMED),
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
        let unknown = [("Bearer mg_c", "unknown key"), ("Bearer ", "unknown key"), ("Bearer mg_old", "expired key")];
        let malformed = ["Bearer", "Basic mg_a", "mg_a"].map(|wrong| (wrong, "not a bearer token"));
        for (wrong, cause) in unknown.into_iter().chain(malformed) {
            let denied = who(with("authorization", wrong)).unwrap_err();
            assert_eq!((matches!(denied, Denied::Wrong(_)), denied.cause()), (true, cause), "{wrong}");
            assert_eq!(denied.key(), (cause == "expired key").then_some("old"), "{wrong}");
        }
    }

    #[test]
    fn a_key_that_stays_is_the_same_principal_and_no_id_is_used_twice() {
        let who = |ring: &KeyRing, key: &str| ring.authenticate(&with("x-api-key", key)).map(|p| p.id).ok();
        let (first, _) = KeyRing::new(&[key("a", "mg_a"), key("b", "mg_b")]);
        // `a` goes, `b` moves up, `c` is new, and then `a` comes back.
        let (second, access) = first.followed_by(&[key("b", "mg_b"), key("c", "mg_c")]);
        let (third, _) = second.followed_by(&[key("a", "mg_a"), key("b", "mg_b2")]);
        assert_eq!(who(&second, "mg_b"), who(&first, "mg_b"));
        assert_eq!(who(&second, "mg_a"), None);
        let gone = first.authenticate(&with("x-api-key", "mg_a")).unwrap();
        assert!(!access.knows(gone.id) && !access.tool(&gone, "x") && !access.endpoint(&gone, ""));
        let old = [who(&first, "mg_a"), who(&first, "mg_b"), who(&second, "mg_c")];
        for new in [who(&third, "mg_a"), who(&third, "mg_b2")] {
            assert!(new.is_some() && !old.contains(&new), "{new:?} of {old:?}");
        }
        let (open, access) = third.followed_by(&[]);
        assert!(access.knows(open.authenticate(&HeaderMap::new()).unwrap().id));
        assert!(!access.knows(third.authenticate(&with("x-api-key", "mg_a")).unwrap().id));
    }
}
