//! Requests to URLs that a login learned from others.
//!
//! Owns how they are sent, and how a JSON document is read. Does not know what it says. Invariant:
//! a document that is missing, not JSON or of the wrong shape is `None`, one that may appear later
//! is an error, and no error quotes a byte of it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use moongate_transport::fetcher::{FetchError, FetchFailure, Fetcher};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::untrusted_url;

/// Media type of documents.
const JSON: &str = "application/json";
/// Media type of forms.
const FORM: &str = "application/x-www-form-urlencoded";

/// Fetcher for the login at one server, which may be at a private address itself.
#[derive(Clone, Copy)]
pub(crate) struct LoginFetcher<'a> {
    /// Fetcher with the rules of the config.
    pub(crate) fetcher: &'a Fetcher,
    /// URL of the server that the login is for.
    pub(crate) server: &'a Url,
}

/// Reason why a document that may exist was not read.
#[derive(Debug)]
pub(crate) enum DocumentError {
    /// The fetch failed.
    Fetch(FetchError),
    /// This host is down or too busy.
    Busy(String),
}

impl LoginFetcher<'_> {
    /// Fetches a JSON document about the server. `None` if it does not exist.
    pub(crate) async fn get_resource_json<T: DeserializeOwned>(
        self,
        url: &Url,
    ) -> Result<Option<T>, DocumentError> {
        read_json(url, self.send_as_server(url, get()).await)
    }

    /// Fetches a JSON document of an authorization server. `None` if it does not exist.
    pub(crate) async fn get_json<T: DeserializeOwned>(
        self,
        url: &Url,
    ) -> Result<Option<T>, DocumentError> {
        read_json(url, self.send(url, get()).await)
    }

    /// Posts a JSON document.
    pub(crate) async fn post_json(
        self,
        url: &Url,
        document: &impl Serialize,
    ) -> Result<Response<Bytes>, FetchError> {
        let text = serde_json::to_vec(document).expect("our documents are JSON");
        self.send(url, post(JSON, Bytes::from(text))).await
    }

    /// Posts a form, as a client that authenticates with this header. Waits for the response for up
    /// to `timeout`.
    pub(crate) async fn post_form(
        self,
        url: &Url,
        form: String,
        authorization: Option<HeaderValue>,
        timeout: Duration,
    ) -> Result<Response<Bytes>, FetchError> {
        let mut request = post(FORM, Bytes::from(form));
        if let Some(value) = authorization {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let fetcher = self.fetcher;
        fetcher
            .fetch_within(timeout, self.server, url, request)
            .await
    }

    /// Sends a request to an authorization server.
    // 2026-07-28, basic/authorization, "Communication Security": "All authorization server
    // endpoints MUST be served over HTTPS." Whoever configured a server without TLS agreed to plain
    // requests to that server, but not to codes and passwords on the same network.
    async fn send(self, url: &Url, request: Request<Bytes>) -> Result<Response<Bytes>, FetchError> {
        if url.scheme() == "http" && !untrusted_url::is_loopback(url) {
            return self.fetcher.fetch(url, request).await;
        }
        self.send_as_server(url, request).await
    }

    /// Sends a request to a URL that may be at the server's own origin.
    async fn send_as_server(
        self,
        url: &Url,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, FetchError> {
        let server = untrusted_url::http_url(self.server);
        self.fetcher.fetch_at(&server, url, request).await
    }
}

/// Reads a response with a document. `None`: it has none.
fn read_json<T: DeserializeOwned>(
    url: &Url,
    fetched: Result<Response<Bytes>, FetchError>,
) -> Result<Option<T>, DocumentError> {
    let response = match fetched {
        Ok(response) => response,
        // A site that sends every unknown path to its front page has no such document.
        Err(error) if error.kind == FetchFailure::Redirect => return Ok(None),
        Err(error) => return Err(DocumentError::Fetch(error)),
    };
    match response.status() {
        StatusCode::OK => Ok(serde_json::from_slice(response.body()).ok()),
        // Without the document, the login might go to another authorization server.
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            Err(DocumentError::Busy(untrusted_url::host(url)))
        }
        _ => Ok(None),
    }
}

fn get() -> Request<Bytes> {
    request(Method::GET, Bytes::new())
}

fn request(method: Method, body: Bytes) -> Request<Bytes> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    // Otherwise, GitHub answers with a form.
    let accepted = HeaderValue::from_static(JSON);
    request.headers_mut().insert(ACCEPT, accepted);
    request
}

fn post(media_type: &'static str, body: Bytes) -> Request<Bytes> {
    let mut request = request(Method::POST, body);
    let media_type = HeaderValue::from_static(media_type);
    request.headers_mut().insert(CONTENT_TYPE, media_type);
    request
}
