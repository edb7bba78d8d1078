//! Key sets of issuers (RFC 7517, section 5).
//!
//! Owns the choice of the keys that may have made a signature. Does not fetch a set. Invariant: a
//! key that cannot be read does not affect the others in its set.

use moongate_access::auth::SignatureAlgorithm;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::public_key::{JsonWebKey, PublicKey};

/// Maximum number of keys to try for a token that names none, or whose name matches several.
const TRIED_MAX: usize = 8;

/// Keys of an issuer.
#[derive(Debug)]
pub struct JwkSet(Vec<PublicKey>);

#[derive(Deserialize)]
struct SetDocument<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

impl JwkSet {
    /// Reads a set. `None`: it is not a set, or has no usable key.
    pub fn read(document: &[u8]) -> Option<Self> {
        let document: SetDocument<'_> = serde_json::from_slice(document).ok()?;
        let keys: Vec<PublicKey> = document
            .keys
            .iter()
            .filter_map(|key| serde_json::from_str::<JsonWebKey>(key.get()).ok())
            .filter_map(PublicKey::of)
            .collect();
        (!keys.is_empty()).then_some(JwkSet(keys))
    }

    /// Returns the keys that may have made a signature with this algorithm, filtered by the key
    /// name in the token.
    pub(crate) fn candidates(
        &self,
        kid: Option<&str>,
        algorithm: SignatureAlgorithm,
    ) -> Vec<&PublicKey> {
        self.0
            .iter()
            .filter(|key| key.supports(algorithm))
            .filter(|key| kid.is_none() || key.kid.as_deref() == kid)
            .take(TRIED_MAX)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P256: &str = r#""kty":"EC","crv":"P-256","x":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE","y":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE""#;

    fn set(keys: &[String]) -> Option<JwkSet> {
        JwkSet::read(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes())
    }

    fn key(members: &str) -> String {
        format!("{{{P256}{members}}}")
    }

    fn count(set: &JwkSet, kid: Option<&str>) -> usize {
        set.candidates(kid, SignatureAlgorithm::Es256).len()
    }

    #[test]
    fn an_unreadable_key_leaves_the_others() {
        let rsa = |n: &str| format!(r#"{{"kty":"RSA","n":"{n}","e":"AQAB"}}"#);
        // 2047 and 2048 bits.
        let short = rsa(&format!("f{}w", "_".repeat(340)));
        let long = rsa(&format!("_{}w", "_".repeat(340)));
        for unusable in [
            "1".to_owned(),
            "{}".to_owned(),
            r#"{"kty":5}"#.to_owned(),
            r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned(),
            r#"{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}"#.to_owned(),
            r#"{"kty":"OKP","crv":"X25519","x":"AQ"}"#.to_owned(),
            key(r#","use":"enc""#),
            key(r#","key_ops":["encrypt"]"#),
            key(r#","alg":"HS256""#),
            short,
        ] {
            assert!(set(std::slice::from_ref(&unusable)).is_none(), "{unusable}");
            let both = set(&[unusable.clone(), key("")]).unwrap();
            assert_eq!(count(&both, None), 1, "{unusable}");
        }
        let set = set(&[long]).unwrap();
        assert_eq!(set.candidates(None, SignatureAlgorithm::Ps256).len(), 1);
        assert_eq!(set.candidates(None, SignatureAlgorithm::Es256).len(), 0);
        assert!(JwkSet::read(b"<html>").is_none());
    }

    #[test]
    fn a_name_chooses_and_without_one_at_most_eight_keys_are_tried() {
        let named = set(&[key(r#","kid":"a""#), key(r#","kid":"b""#), key("")]).unwrap();
        assert_eq!(count(&named, Some("a")), 1);
        assert_eq!(count(&named, Some("c")), 0);
        assert_eq!(count(&named, None), 3);
        let many: Vec<String> = (0..20).map(|_| key("")).collect();
        assert_eq!(count(&set(&many).unwrap(), None), TRIED_MAX);
    }

    #[test]
    fn a_key_is_used_only_with_its_own_algorithm() {
        let set = set(&[key(r#","alg":"ES256""#)]).unwrap();
        for (algorithm, expected) in [
            (SignatureAlgorithm::Es256, 1),
            (SignatureAlgorithm::Es384, 0),
            (SignatureAlgorithm::Rs256, 0),
            (SignatureAlgorithm::EdDsa, 0),
        ] {
            assert_eq!(
                set.candidates(None, algorithm).len(),
                expected,
                "{algorithm:?}"
            );
        }
    }
}
