//! Plain HTTP, as a test says it.
//!
//! Owns the connections of one client. Adds no headers itself. Invariant: every request ends or
//! fails its test.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

use crate::HttpReply;
use crate::wait::within;

/// An HTTP client. Clones share its connections.
#[derive(Clone)]
pub struct HttpClient(Client<HttpConnector, Full<Bytes>>);

impl Default for HttpClient {
    fn default() -> Self {
        HttpClient::new()
    }
}

impl HttpClient {
    /// Creates a client with its own connections.
    pub fn new() -> Self {
        HttpClient(Client::builder(TokioExecutor::new()).build_http())
    }

    /// Sends a request and returns the response while its body is still coming, or why there is
    /// none.
    pub async fn try_open(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>, Error> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        within(&format!("{method} {url}"), self.0.request(request)).await
    }

    /// Sends a request and returns the response while its body is still coming.
    pub async fn open(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        self.try_open(method, url, headers, body).await.unwrap()
    }

    /// Sends a request and reads the whole response.
    pub async fn send(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> HttpReply {
        HttpReply::read(self.open(method, url, headers, body).await).await
    }

    /// Sends a request to a server that may be gone. Returns nothing without a whole response.
    pub async fn try_send(
        &self,
        method: &str,
        url: &str,
        headers: &[(&'static str, String)],
        body: impl Into<Bytes>,
    ) -> Option<HttpReply> {
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let (head, body) = self
            .try_open(method, url, &headers, body)
            .await
            .ok()?
            .into_parts();
        let body = within("the body", body.collect()).await.ok()?.to_bytes();
        Some(HttpReply {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        })
    }

    /// Sends a GET and reads the whole response.
    pub async fn get(&self, url: &str) -> HttpReply {
        self.send("GET", url, &[], "").await
    }
}
