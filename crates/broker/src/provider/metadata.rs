//! Metadata of the company's login (OpenID Connect Discovery 1.0).
//!
//! Owns its checks and its lifetime. Does not send people anywhere. Invariant: it belongs to the
//! configured issuer, and one fetch runs at a time.

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
/// Time for which stale metadata is used if it cannot be refetched.
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause after a failed fetch.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of scopes and methods to keep.
const LIST_MAX: usize = 200;

/// Endpoints of the provider.
pub(crate) struct ProviderEndpoints {
    /// Issuer, exactly as in the metadata.
    pub(crate) issuer: String,
    /// Endpoint that the browser opens.
    pub(crate) authorization: Url,
    /// Token endpoint.
    pub(crate) token: Url,
    /// Userinfo endpoint.
    pub(crate) userinfo: Option<Url>,
    /// Keys of ID tokens. `None`: the provider issues none.
    pub(crate) keys: Option<Arc<IssuerKeys>>,
    /// Scopes that it lists.
    pub(crate) scopes: Vec<String>,
    /// True if the client secret may be in the form.
    pub(crate) takes_posted_secret: bool,
    /// True if every answer has `iss` (RFC 9207).
    pub(crate) sends_issuer: bool,
}

/// Last metadata that was fetched.
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
    /// Returns the endpoints of the provider with this issuer. Fetches them if they are stale,
    /// while other callers wait.
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
        // Keys outlive the metadata, because they have their own lifetime.
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

/// Checked metadata, still without keys.
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
    /// Checks an issuer's document. S256 need not be listed, because Entra does not list what it
    /// supports.
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

/// Returns true if a document has the expected issuer. With or without a trailing slash, the
/// document is the same, and people omit the slash of Auth0.
fn is_same_issuer(named: &str, published: &str) -> bool {
    without_slash(named) == without_slash(published)
}

fn without_slash(text: &str) -> &str {
    text.strip_suffix('/').unwrap_or(text)
}

/// Parses an endpoint of an issuer. It must use TLS, unless the issuer itself does not.
fn endpoint(text: &str, issuer: &Url) -> Option<Url> {
    let url = parse_untrusted_url(text)?;
    let is_allowed = url.scheme() == "https" || url.origin() == issuer.origin();
    is_allowed.then_some(url)
}

/// Returns true if an authorization endpoint sets none of our parameters. Its other ones are
/// retained (RFC 6749, section 3.1).
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

    /// Checks the document with one part of its text replaced.
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
