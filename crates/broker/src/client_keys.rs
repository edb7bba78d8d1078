//! Keys in a client document, inline or fetched.
//!
//! Owns when keys are refetched. Does not verify assertions (`moongate_tokens`). Invariant: an
//! assertion with an unknown key triggers a fetch at most every 30 seconds.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use moongate_tokens::{AssertionUse, IssuerKeys, JwkSet, TokenFault, verify_assertion};
use moongate_transport::fetcher::{FetchRules, Fetcher};
use url::Url;

/// Keys that a client signs its assertions with.
pub(crate) struct ClientKeys(KeySource);

enum KeySource {
    Inline(Arc<JwkSet>),
    Fetched(Arc<IssuerKeys>),
}

impl fmt::Debug for ClientKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self.0 {
            KeySource::Inline(_) => "ClientKeys(inline)",
            KeySource::Fetched(_) => "ClientKeys(fetched)",
        })
    }
}

impl ClientKeys {
    /// Creates inline keys from a document.
    pub(crate) fn inline(keys: JwkSet) -> Self {
        ClientKeys(KeySource::Inline(Arc::new(keys)))
    }

    /// Creates keys at a URL, which are fetched when first needed.
    pub(crate) fn fetched(url: Url, rules: &FetchRules) -> Self {
        let fetcher = Fetcher::with_system_roots(rules);
        ClientKeys(KeySource::Fetched(IssuerKeys::new(url, fetcher)))
    }

    /// Finds the keys for an assertion. `None`: they cannot be fetched.
    pub(crate) async fn find(&self, assertion: &str) -> Option<Arc<JwkSet>> {
        let keys = match &self.0 {
            KeySource::Inline(keys) => return Some(keys.clone()),
            KeySource::Fetched(keys) => keys,
        };
        let current = keys.current();
        let is_known = current
            .as_ref()
            .is_some_and(|current| has_key(current, assertion));
        if is_known || !keys.may_fetch() {
            return current;
        }
        keys.clone().refresh().await;
        keys.current()
    }
}

/// Returns false if no key in a set can have signed an assertion.
fn has_key(keys: &JwkSet, assertion: &str) -> bool {
    // The key is looked up before any claim is read, so any expected values show if it exists.
    let any_use = AssertionUse {
        client_id: "",
        audiences: ["", ""],
        now: Timestamp::UNIX_EPOCH,
    };
    !matches!(
        verify_assertion(assertion, keys, &any_use),
        Err(TokenFault::UnknownKey)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_set() -> JwkSet {
        let set = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a",
            "x":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"}]}"#;
        JwkSet::read(set.as_bytes()).unwrap()
    }

    #[test]
    fn a_key_is_known_by_its_name_and_type() {
        for (assertion, is_known) in [
            // {"alg":"EdDSA","kid":"a"}, {"alg":"EdDSA","kid":"b"}, {"alg":"ES256","kid":"a"}
            ("eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.e30.AA", true),
            ("eyJhbGciOiJFZERTQSIsImtpZCI6ImIifQ.e30.AA", false),
            ("eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.e30.AA", false),
            // Refetching does not help a text that is not an assertion.
            ("x", true),
        ] {
            assert_eq!(has_key(&key_set(), assertion), is_known, "{assertion}");
        }
    }

    #[tokio::test]
    async fn keys_in_a_document_need_no_fetch_and_private_ones_are_not_fetched() {
        let inline = ClientKeys::inline(key_set());
        assert!(inline.find("x").await.is_some());
        assert_eq!(format!("{inline:?}"), "ClientKeys(inline)");
        let url = Url::parse("https://127.0.0.1:1/keys").unwrap();
        let fetched = ClientKeys::fetched(url, &FetchRules::default());
        assert!(fetched.find("x").await.is_none());
    }
}
