//! An HTTP endpoint with headers that every request carries.
//!
//! Posts bodies that a test writes itself. Judges no response, apart from the handshake. Invariant:
//! headers of one request come after those of all.

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use hyper_util::client::legacy::Error;
use serde_json::Value;

use crate::messages::{INITIALIZED, MODERN};
use crate::{EventStream, HttpClient};

/// A client of one URL.
pub struct HttpEndpoint {
    http: HttpClient,
    /// Where requests go.
    pub url: String,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
}

impl HttpEndpoint {
    /// Creates a client that accepts what the specification requires it to accept.
    pub fn new(url: &str) -> Self {
        let accept = (
            "accept".to_owned(),
            "application/json, text/event-stream".to_owned(),
        );
        let kind = ("content-type".to_owned(), "application/json".to_owned());
        Self {
            http: HttpClient::new(),
            url: url.to_owned(),
            headers: vec![accept, kind],
        }
    }

    /// Opens a session with this `initialize` request, whose revision the server must accept.
    pub async fn open_session(url: &str, initialize: &str) -> Self {
        let mut client = Self::new(url);
        let response = client.post(initialize).await;
        assert_eq!(response.status(), 200);
        let session = response.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let asked: Value = serde_json::from_str(initialize).unwrap();
        let revision = asked["params"]["protocolVersion"].as_str().unwrap();
        assert_eq!(
            EventStream::with_any_line_ends(response).response().await["result"]["protocolVersion"],
            revision
        );
        client.headers.push(("mcp-session-id".into(), session));
        client
            .headers
            .push(("mcp-protocol-version".into(), revision.into()));
        assert_eq!(client.post(INITIALIZED).await.status(), 202);
        client
    }

    /// Sends a request with more headers.
    pub async fn send(
        &self,
        method: &str,
        body: &str,
        more: &[(&str, &str)],
    ) -> Result<Response<Incoming>, Error> {
        let own = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<(&str, &str)> = own.chain(more.iter().copied()).collect();
        self.http
            .try_open(
                method,
                &self.url,
                &headers,
                Bytes::copy_from_slice(body.as_bytes()),
            )
            .await
    }

    /// Posts a body.
    pub async fn post(&self, body: &str) -> Response<Incoming> {
        self.send("POST", body, &[]).await.unwrap()
    }

    /// Posts a modern request with the headers that mirror it.
    pub async fn post_modern(&self, body: &str) -> Response<Incoming> {
        let value: Value = serde_json::from_str(body).unwrap();
        let params = &value["params"];
        let name = params["name"]
            .as_str()
            .or(params["uri"].as_str())
            .unwrap_or("-");
        let method = value["method"].as_str().unwrap();
        let mirrored = [
            ("mcp-protocol-version", MODERN),
            ("mcp-method", method),
            ("mcp-name", name),
        ];
        self.send("POST", body, &mirrored).await.unwrap()
    }
}
