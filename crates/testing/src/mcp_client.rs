//! An MCP client over HTTP, at any revision.
//!
//! Keeps a session where its revision has them, and adds the headers and `_meta` that the revision
//! demands. Does not judge what a tool answers. Invariant: two clients share nothing, unless one is
//! a clone of the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::http_sse::HttpSseStream;
use crate::messages::{self, INITIALIZED, LATEST_LEGACY, MODERN, extended, modern_meta};
use crate::{EventStream, HttpClient, HttpReply};

/// Revisions as most tests distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2025-11-25, with a session.
    Legacy,
    /// 2026-07-28, without sessions.
    Modern,
}

/// Both eras.
pub const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// Headers beyond those that the specification demands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HeaderStyle {
    /// All headers on every request, as many SDKs do it. Names are not encoded.
    Eager,
    /// Each header only where the specification of the revision names it.
    Exact,
}

/// An MCP client. A clone shares its session, its ids and its connections.
#[derive(Clone)]
pub struct McpClient {
    /// Revision that it speaks.
    pub revision: &'static str,
    /// Endpoint.
    pub url: String,
    /// Id of its session, once there is one.
    pub session: Option<String>,
    /// Connections.
    pub http: HttpClient,
    /// Key that it shows.
    pub key: Option<String>,
    /// Id of its next request.
    pub next_id: Arc<AtomicU64>,
    /// Capabilities that it declares.
    pub capabilities: Value,
    /// Headers that it sends.
    pub header_style: HeaderStyle,
    /// Stream of a client of HTTP+SSE.
    pub http_sse: Option<Arc<HttpSseStream>>,
}

impl McpClient {
    /// Creates a client that has said nothing yet. Its headers are exactly those of its revision.
    pub fn new(revision: &'static str, url: &str, capabilities: Value) -> Self {
        McpClient {
            revision,
            url: url.to_owned(),
            session: None,
            http: HttpClient::new(),
            key: None,
            next_id: Arc::new(AtomicU64::new(100)),
            capabilities,
            header_style: HeaderStyle::Exact,
            http_sse: None,
        }
    }

    /// Opens a client without a key.
    pub async fn open(url: &str, era: Era) -> Self {
        McpClient::with_key(url, era, None).await
    }

    /// Opens a client that sends all its headers always. A legacy one has a session then.
    pub async fn with_key(url: &str, era: Era, key: Option<&str>) -> Self {
        let revision = if era == Era::Legacy {
            LATEST_LEGACY
        } else {
            MODERN
        };
        let mut client = McpClient {
            key: key.map(str::to_owned),
            next_id: Arc::new(AtomicU64::new(1)),
            header_style: HeaderStyle::Eager,
            ..McpClient::new(revision, url, json!({}))
        };
        if era == Era::Legacy {
            client.initialize().await;
        }
        client
    }

    /// Returns the era of its revision.
    pub fn era(&self) -> Era {
        if self.revision >= MODERN {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    /// Opens a session, and forgets the one before.
    pub async fn initialize(&mut self) -> HttpReply {
        self.initialize_with(json!({})).await
    }

    /// Opens a session with these capabilities.
    pub async fn initialize_with(&mut self, capabilities: Value) -> HttpReply {
        self.initialize_at(LATEST_LEGACY, capabilities).await
    }

    /// Opens a session at another revision. Headers name the usual one still.
    pub async fn initialize_at(&mut self, revision: &str, capabilities: Value) -> HttpReply {
        self.session = None;
        let reply = self
            .post(messages::initialize(0, revision, "test", &capabilities))
            .await;
        assert_eq!(reply.status, 200, "{reply:?}");
        self.session = Some(reply.header("mcp-session-id").to_owned());
        assert_eq!(self.post(INITIALIZED).await.status, 202);
        reply
    }

    /// Lists the headers of any request of an eager client.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![("content-type", "application/json".to_owned())];
        headers.push(("accept", "application/json, text/event-stream".to_owned()));
        headers.extend(
            self.key
                .as_ref()
                .map(|key| ("authorization", format!("Bearer {key}"))),
        );
        headers.extend(
            self.session
                .as_ref()
                .map(|id| ("mcp-session-id", id.clone())),
        );
        headers.push(("mcp-protocol-version", self.revision.to_owned()));
        headers
    }

    fn exact_headers(&self, method: &str) -> Vec<(&'static str, String)> {
        let accept = if method == "GET" {
            "text/event-stream"
        } else {
            "application/json, text/event-stream"
        };
        let mut headers = vec![("accept", accept.to_owned())];
        headers.extend((method == "POST").then(|| ("content-type", "application/json".to_owned())));
        if let Some(session) = &self.session {
            headers.push(("mcp-session-id", session.clone()));
            // 2025-06-18/basic/transports.mdx, Protocol Version Header.
            headers.extend(
                (self.revision >= "2025-06-18")
                    .then(|| ("mcp-protocol-version", self.revision.to_owned())),
            );
        }
        headers
    }

    /// Sends an HTTP request of any kind to the endpoint.
    pub async fn raw(
        &self,
        method: &str,
        extra: &[(&'static str, String)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let own = match self.header_style {
            HeaderStyle::Eager => self.headers(),
            HeaderStyle::Exact => self.exact_headers(method),
        };
        let all: Vec<(&str, &str)> = own
            .iter()
            .chain(extra)
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let url = self
            .http_sse
            .as_ref()
            .map_or(&self.url, |stream| &stream.post_url);
        self.http.open(method, url, &all, body).await
    }

    /// Posts a body as it is.
    pub async fn post(&self, body: impl Into<Bytes>) -> HttpReply {
        HttpReply::read(self.raw("POST", &[], body).await).await
    }

    /// Starts a request under an id, and returns the response while its body is still coming.
    pub async fn start(
        &self,
        id: impl Into<Value>,
        method: &str,
        mut params: Value,
    ) -> Response<Incoming> {
        let mut extra = Vec::new();
        if self.era() == Era::Modern {
            params["_meta"] = extended(modern_meta(), &params["_meta"]);
            extra.push(("mcp-method", method.to_owned()));
            let target = params["name"]
                .as_str()
                .or(params["uri"].as_str())
                .or(params["taskId"].as_str());
            extra.extend(target.map(|target| ("mcp-name", target.to_owned())));
        }
        self.raw("POST", &extra, messages::request(id, method, params))
            .await
    }

    /// Sends a request under an id, and reads the whole response.
    pub async fn request_as(&self, id: impl Into<Value>, method: &str, params: Value) -> HttpReply {
        HttpReply::read(self.start(id, method, params).await).await
    }

    /// Sends a request, and reads the whole response.
    pub async fn request(&self, method: &str, params: Value) -> HttpReply {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let reply = self.request_as(id, method, params).await;
        assert_eq!(reply.answer()["id"], id, "{reply:?}");
        reply
    }

    /// Calls a tool.
    pub async fn call(&self, tool: &str, arguments: Value) -> HttpReply {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    /// Lists the names of all tools.
    pub async fn tools(&self) -> Vec<String> {
        self.request("tools/list", json!({})).await.names()
    }

    /// Opens the stream of messages that belong to no call: the session's own, or a subscription.
    pub async fn listen(&self) -> EventStream {
        let response = match self.era() {
            Era::Legacy => self.raw("GET", &[], "").await,
            Era::Modern => {
                let all = json!({"toolsListChanged": true, "promptsListChanged": true,
                    "resourcesListChanged": true});
                self.start(
                    "listening",
                    "subscriptions/listen",
                    json!({"notifications": all}),
                )
                .await
            }
        };
        assert_eq!(response.status(), 200);
        EventStream::new(response)
    }

    /// Subscribes to a resource as its era does it, and returns the stream of its updates.
    pub async fn subscribe(&self, uri: &str) -> EventStream {
        match self.era() {
            Era::Legacy => {
                let stream = self.listen().await;
                self.request("resources/subscribe", json!({"uri": uri}))
                    .await
                    .result();
                stream
            }
            Era::Modern => {
                let params = json!({"notifications": {"resourceSubscriptions": [uri]}});
                EventStream::new(
                    self.start("listening", "subscriptions/listen", params)
                        .await,
                )
            }
        }
    }
}
