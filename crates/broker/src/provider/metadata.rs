//! Metadata of the company's login (OpenID Connect Discovery 1.0).
//!
//! Owns its checks, and how long it counts. Does not send people anywhere. Invariant: it is the
//! metadata of the configured issuer, and one fetch is under way at a time.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use moongate_oauth::{is_own_parameter, parse_untrusted_url};
use moongate_tokens::IssuerKeys;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use crate::provider::fault::ProviderFault;
use crate::provider::provider_http::ProviderHttp;

/// Path of the document, below the issuer.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// Time for which metadata is fresh.
const AGE_MAX: Duration = Duration::from_secs(60 * 60);
/// Time for which metadata still counts when it cannot be fetched again.
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause after a fetch that failed.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of scopes and methods that are kept.
const LIST_MAX: usize = 200;

/// Endpoints of the provider.
pub(crate) struct ProviderEndpoints {
    /// Issuer, exactly as the metadata has it.
    pub(crate) issuer: String,
    /// Endpoint that the browser opens.
    pub(crate) authorization: Url,
    /// Endpoint that gives tokens.
    pub(crate) token: Url,
    /// Endpoint with claims of a person.
    pub(crate) userinfo: Option<Url>,
    /// Keys of ID tokens. `None`: the provider gives none.
    pub(crate) keys: Option<Arc<IssuerKeys>>,
    /// Scopes that it lists.
    pub(crate) scopes: Vec<String>,
    /// True if the secret of a client may be in the form.
    pub(crate) takes_posted_secret: bool,
    /// True if every answer has `iss` (RFC 9207).
    pub(crate) sends_issuer: bool,
}

/// Metadata that was fetched last.
#[derive(Default)]
pub(crate) struct MetadataCache(Mutex<HeldMetadata>);

#[derive(Default)]
struct HeldMetadata {
    found: Option<FoundMetadata>,
    failed: Option<Instant>,
}

struct FoundMetadata {
    endpoints: Arc<ProviderEndpoints>,
    keys_url: Url,
    fetched: Instant,
}

/// Document, as far as logins need it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MetadataDocument {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    scopes_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Vec<String>,
    authorization_response_iss_parameter_supported: bool,
}

impl MetadataCache {
    /// Returns the endpoints of the provider with this issuer. They are fetched if they are not
    /// fresh. Others wait meanwhile, for as long as a fetch takes.
    pub(crate) async fn find(
        &self,
        http: &ProviderHttp,
        named: &str,
    ) -> Result<Arc<ProviderEndpoints>, ProviderFault> {
        let mut held = self.0.lock().await;
        let now = Instant::now();
        if let Some(endpoints) = held.usable(now, AGE_MAX) {
            return Ok(endpoints);
        }
        let may_fetch = held.failed.is_none_or(|failed| now >= failed + PAUSE);
        if may_fetch {
            match fetch(http, named).await {
                Ok(document) => return Ok(held.keep(document, http)),
                Err(fault) => {
                    tracing::warn!("company login metadata not read: {fault}");
                    held.failed = Some(Instant::now());
                }
            }
        }
        held.usable(now, AGE_MAX + GRACE).ok_or(ProviderFault::Down)
    }
}

impl HeldMetadata {
    fn usable(&self, now: Instant, age_max: Duration) -> Option<Arc<ProviderEndpoints>> {
        let found = self.found.as_ref()?;
        (now < found.fetched + age_max).then(|| found.endpoints.clone())
    }

    fn keep(&mut self, checked: CheckedMetadata, http: &ProviderHttp) -> Arc<ProviderEndpoints> {
        let known = self.found.take();
        // Keys outlive the metadata, because they have their own times.
        let known = known
            .filter(|found| found.keys_url == checked.keys_url)
            .and_then(|found| found.endpoints.keys.clone());
        let keys =
            known.unwrap_or_else(|| IssuerKeys::new(checked.keys_url.clone(), http.key_fetcher()));
        let endpoints = Arc::new(ProviderEndpoints {
            keys: Some(keys),
            ..checked.endpoints
        });
        self.found = Some(FoundMetadata {
            endpoints: endpoints.clone(),
            keys_url: checked.keys_url,
            fetched: Instant::now(),
        });
        self.failed = None;
        endpoints
    }
}

/// Metadata that passed its checks, still without keys.
struct CheckedMetadata {
    endpoints: ProviderEndpoints,
    keys_url: Url,
}

async fn fetch(http: &ProviderHttp, named: &str) -> Result<CheckedMetadata, ProviderFault> {
    let mut url = http.issuer.clone();
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{path}{WELL_KNOWN}"));
    let answer = http.get(&url, None).await?;
    if answer.status != StatusCode::OK {
        return Err(ProviderFault::Down);
    }
    let document: MetadataDocument = answer.json().ok_or(ProviderFault::BadAnswer)?;
    document.check(named, &http.issuer)
}

impl MetadataDocument {
    /// Checks the document that was found for an issuer. S256 need not be listed, because Entra
    /// does not list what it supports.
    fn check(self, named: &str, issuer: &Url) -> Result<CheckedMetadata, ProviderFault> {
        if !is_same_issuer(named, &self.issuer) {
            return Err(ProviderFault::BadAnswer);
        }
        let usable = |text: &str| endpoint(text, issuer).ok_or(ProviderFault::BadAnswer);
        let methods = &self.token_endpoint_auth_methods_supported;
        let takes_posted_secret = methods
            .iter()
            .take(LIST_MAX)
            .any(|method| method == "client_secret_post");
        let userinfo = self.userinfo_endpoint.as_deref();
        Ok(CheckedMetadata {
            keys_url: usable(&self.jwks_uri)?,
            endpoints: ProviderEndpoints {
                authorization: endpoint(&self.authorization_endpoint, issuer)
                    .filter(has_no_own_parameter)
                    .ok_or(ProviderFault::BadAnswer)?,
                token: usable(&self.token_endpoint)?,
                userinfo: userinfo.and_then(|text| endpoint(text, issuer)),
                keys: None,
                scopes: self.scopes_supported.into_iter().take(LIST_MAX).collect(),
                takes_posted_secret,
                sends_issuer: self.authorization_response_iss_parameter_supported,
                issuer: self.issuer,
            },
        })
    }
}

/// Returns true if a document has the issuer that was asked for. Both texts with and without a
/// slash at the end lead to the same document, and people leave out that of Auth0.
fn is_same_issuer(named: &str, published: &str) -> bool {
    without_slash(named) == without_slash(published)
}

fn without_slash(text: &str) -> &str {
    text.strip_suffix('/').unwrap_or(text)
}

/// Parses an endpoint of an issuer. It has TLS, unless the issuer itself has none.
fn endpoint(text: &str, issuer: &Url) -> Option<Url> {
    let url = parse_untrusted_url(text)?;
    let is_allowed = url.scheme() == "https" || url.origin() == issuer.origin();
    is_allowed.then_some(url)
}

/// Returns true if an authorization endpoint leaves our parameters to us. What it has already stays
/// (RFC 6749, section 3.1).
fn has_no_own_parameter(endpoint: &Url) -> bool {
    endpoint
        .query_pairs()
        .all(|(name, _)| name != "nonce" && !is_own_parameter(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://login.test/t";
    const DOCUMENT: &str = r#"{
        "issuer": "https://login.test/t",
        "authorization_endpoint": "https://login.test/authorize?x=1",
        "token_endpoint": "https://login.test/token",
        "jwks_uri": "https://keys.test/keys",
        "userinfo_endpoint": "https://login.test/me",
        "scopes_supported": ["openid", "offline_access"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "authorization_response_iss_parameter_supported": true
    }"#;

    /// Checks the document where one part of the text is another.
    fn check(part: &str, other: &str) -> Option<CheckedMetadata> {
        assert!(DOCUMENT.contains(part), "{part}");
        let text = DOCUMENT.replace(part, other);
        let document: MetadataDocument = serde_json::from_str(&text).unwrap();
        document.check(ISSUER, &Url::parse(ISSUER).unwrap()).ok()
    }

    #[test]
    fn a_whole_document_is_read() {
        let found = check("", "").unwrap();
        assert_eq!(found.keys_url.as_str(), "https://keys.test/keys");
        let endpoints = found.endpoints;
        assert_eq!(endpoints.issuer, ISSUER);
        assert_eq!(endpoints.scopes, ["openid", "offline_access"]);
        assert!(endpoints.takes_posted_secret && endpoints.sends_issuer);
        assert!(endpoints.userinfo.is_some());
    }

    #[test]
    fn another_issuer_or_an_endpoint_without_tls_is_refused() {
        let issuer = "\"https://login.test/t\"";
        for (part, other) in [
            (issuer, "\"https://evil.test/t\""),
            (issuer, "\"https://login.test\""),
            (issuer, "\"https://login.test/t//\""),
            (issuer, "\"\""),
            (
                "https://login.test/authorize",
                "http://login.test/authorize",
            ),
            ("https://login.test/authorize", "javascript:alert(1)//"),
            ("authorize?x=1", "authorize?redirect_uri=https://evil.test"),
            ("authorize?x=1", "authorize?n%6fnce=1"),
            ("https://login.test/token", "http://169.254.169.254/token"),
            ("https://login.test/token", "https://u:p@login.test/token"),
            ("https://keys.test/keys", "file:///etc/passwd"),
        ] {
            assert!(check(part, other).is_none(), "{other}");
        }
        assert!(check(issuer, "\"https://login.test/t/\"").is_some());
        let found = check("https://login.test/me", "http://login.test/me").unwrap();
        assert!(found.endpoints.userinfo.is_none());
    }
}
