//! HTTP requests to the company's login.
//!
//! Owns how they are sent and counted. Does not interpret answers. Invariant: requests go only to
//! public addresses, the origin of the configured issuer, or `egress.allow`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use moongate_oauth::SecretText;
use moongate_telemetry::{Metrics, ProviderOutcome};
use moongate_transport::fetcher::{FetchError, FetchRules, Fetcher};
use serde::de::DeserializeOwned;
use url::Url;

use crate::provider::fault::ProviderFault;

/// Longest wait for tokens. Codes and many refresh tokens work once, so a lost answer loses the
/// login.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an answer, in bytes. GitHub needs a few thousand for each team.
const BODY_MAX: usize = 512 * 1024;

/// HTTP client for one provider.
pub(crate) struct ProviderHttp {
    fetcher: Fetcher,
    rules: FetchRules,
    /// Issuer, as a URL.
    pub(crate) issuer: Url,
    metrics: Arc<Metrics>,
}

/// Provider's answer, with any status.
pub(crate) struct ProviderAnswer {
    pub(crate) status: StatusCode,
    body: Bytes,
}

impl ProviderAnswer {
    /// Reads the body. `None`: it is not JSON of this shape.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Creates an answer for a test.
    #[cfg(test)]
    pub(crate) fn of(status: u16, body: &str) -> Self {
        ProviderAnswer {
            status: StatusCode::from_u16(status).unwrap(),
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }
}

impl ProviderHttp {
    /// Creates a client for the provider with this issuer. `rules` are the config's.
    pub(crate) fn new(issuer: Url, rules: &FetchRules, metrics: Arc<Metrics>) -> Self {
        // The operator chose the issuer, so it may be private.
        let rules = FetchRules {
            origins: vec![issuer.origin()],
            ..rules.clone()
        };
        ProviderHttp {
            fetcher: Fetcher::with_system_roots(&rules).with_body_max(BODY_MAX),
            rules,
            issuer,
            metrics,
        }
    }

    /// Returns a fetcher for URLs that the provider supplies, such as its keys'.
    pub(crate) fn key_fetcher(&self) -> Fetcher {
        Fetcher::with_system_roots(&self.rules)
    }

    /// Fetches a document with a person's access token.
    pub(crate) async fn get(
        &self,
        url: &Url,
        token: Option<&SecretText>,
    ) -> Result<ProviderAnswer, ProviderFault> {
        let mut request = request(Method::GET, Bytes::new());
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, bearer(token)?);
        }
        self.read(self.fetcher.fetch(url, request).await)
    }

    /// Posts a form to the token endpoint, with this header as client authentication.
    pub(crate) async fn post_form(
        &self,
        url: &Url,
        form: String,
        authorization: Option<HeaderValue>,
    ) -> Result<ProviderAnswer, ProviderFault> {
        let mut request = request(Method::POST, Bytes::from(form));
        let headers = request.headers_mut();
        let media_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, media_type);
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, value);
        }
        let fetching = self
            .fetcher
            .fetch_within(TOKEN_TIMEOUT, &self.issuer, url, request);
        self.read(fetching.await)
    }

    /// Counts an answer.
    fn read(
        &self,
        fetched: Result<Response<Bytes>, FetchError>,
    ) -> Result<ProviderAnswer, ProviderFault> {
        let outcome = match &fetched {
            Ok(response) => outcome_of(response.status()),
            Err(_) => "unreachable",
        };
        self.metrics.broker.provider.inc(ProviderOutcome(outcome));
        match fetched {
            Ok(response) => Ok(ProviderAnswer {
                status: response.status(),
                body: response.into_body(),
            }),
            Err(error) => {
                tracing::warn!("company login not reached: {error}");
                Err(ProviderFault::Down)
            }
        }
    }
}

fn outcome_of(status: StatusCode) -> &'static str {
    if status.is_success() {
        "answered"
    } else if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
        "refused"
    } else {
        "failed"
    }
}

fn request(method: Method, body: Bytes) -> Request<Bytes> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    // Otherwise GitHub answers with a form.
    let accepted = HeaderValue::from_static("application/json");
    request.headers_mut().insert(ACCEPT, accepted);
    request
}

/// Returns the header for an access token.
fn bearer(token: &SecretText) -> Result<HeaderValue, ProviderFault> {
    let text = format!("Bearer {}", token.expose());
    let mut value = HeaderValue::try_from(text).map_err(|_| ProviderFault::BadAnswer)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_what_they_are() {
        for (status, outcome) in [
            (200, "answered"),
            (204, "answered"),
            (400, "refused"),
            (403, "refused"),
            (429, "failed"),
            (503, "failed"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(outcome_of(status), outcome, "{status}");
        }
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused() {
        assert!(bearer(&SecretText::new("a\r\nb")).is_err());
        assert!(bearer(&SecretText::new("abc")).unwrap().is_sensitive());
    }
}
