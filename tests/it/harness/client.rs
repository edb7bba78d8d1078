//! Clients by hand: every byte that they send is the test's own, so that no mistake of the gateway's is shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client as Pool, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::{Stream, within};

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25, with a session.
    Legacy,
    /// 2026-07-28, without.
    Modern,
}

/// Both.
pub(crate) const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

const OLD: &str = "2025-11-25";
const NEW: &str = "2026-07-28";

/// Plain HTTP.
#[derive(Clone)]
pub(crate) struct Http(Pool<HttpConnector, Full<Bytes>>);

impl Http {
    /// A client with connections of its own.
    pub(crate) fn new() -> Self {
        Http(Pool::builder(TokioExecutor::new()).build_http())
    }

    /// Sends a request; gives the response while its body is still coming.
    pub(crate) async fn open(
        &self,
        verb: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(verb).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        within(&format!("{verb} {url}"), self.0.request(request.body(Full::new(body.into())).unwrap())).await.unwrap()
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&self, verb: &str, url: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        Reply::read(self.open(verb, url, headers, body).await).await
    }

    /// Sends a request to somebody who may be gone; nothing if it got no whole response.
    pub(crate) async fn try_send(
        &self,
        verb: &str,
        url: &str,
        headers: &[(&'static str, String)],
        body: impl Into<Bytes>,
    ) -> Option<Reply> {
        let mut request = Request::builder().method(verb).uri(url);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let response = within(&format!("{verb} {url}"), self.0.request(request)).await.ok()?;
        let (head, body) = response.into_parts();
        let body = within("the body", body.collect()).await.ok()?.to_bytes();
        Some(Reply { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// A GET.
    pub(crate) async fn get(&self, url: &str) -> Reply {
        self.send("GET", url, &[], "").await
    }
}

/// A whole response.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// The status.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = within("the body", body.collect()).await.unwrap().to_bytes();
        Reply { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// A header.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|v| v.to_str().unwrap()).unwrap_or_default()
    }

    /// The body as text.
    pub(crate) fn text_body(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// All JSON-RPC messages, whether the body is one or a stream of them.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if !self.header("content-type").starts_with("text/event-stream") {
            return vec![self.json()];
        }
        let text = self.text_body();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|json| !json.is_empty()).map(|json| serde_json::from_str(json).unwrap()).collect()
    }

    /// The last message: the answer.
    pub(crate) fn answer(&self) -> Value {
        self.messages().pop().unwrap_or_else(|| panic!("no message in {:?}", self.body))
    }

    /// The result.
    pub(crate) fn result(&self) -> Value {
        let answer = self.answer();
        assert!(answer["result"].is_object(), "status {}: {answer}", self.status);
        answer["result"].clone()
    }

    /// The error.
    pub(crate) fn error(&self) -> Value {
        let answer = self.answer();
        assert!(answer["error"].is_object(), "status {}: {answer}", self.status);
        answer["error"].clone()
    }

    /// The first text of a tool's result that is no error.
    pub(crate) fn text(&self) -> String {
        let result = self.result();
        assert_ne!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}")).to_owned()
    }

    /// The text of a tool's result that is an error, over HTTP 200.
    pub(crate) fn failure(&self) -> String {
        let result = self.result();
        assert_eq!((self.status, &result["isError"]), (200, &json!(true)), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The names of the items in a list.
    pub(crate) fn names(&self) -> Vec<String> {
        let result = self.result();
        let list =
            ["tools", "prompts", "resources", "resourceTemplates"].into_iter().find_map(|k| result[k].as_array());
        let name = |item: &Value| item["name"].as_str().unwrap().to_owned();
        list.unwrap_or_else(|| panic!("no list in {result}")).iter().map(name).collect()
    }
}

/// `_meta` of a modern request.
pub(crate) fn modern_meta() -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}})
}

/// A request as JSON.
pub(crate) fn body_of(id: impl Into<Value>, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}).to_string()
}

/// An MCP client.
#[derive(Clone)]
pub(crate) struct Client {
    /// The endpoint.
    pub(crate) url: String,
    /// How it speaks.
    pub(crate) era: Era,
    /// Its session.
    pub(crate) session: Option<String>,
    /// Its connections.
    pub(crate) http: Http,
    pub(crate) key: Option<String>,
    pub(crate) next: Arc<AtomicU64>,
}

impl Client {
    /// Connects without a key.
    pub(crate) async fn open(url: &str, era: Era) -> Client {
        Client::with_key(url, era, None).await
    }

    /// Connects; a legacy client opens its session.
    pub(crate) async fn with_key(url: &str, era: Era, key: Option<&str>) -> Client {
        let (url, key) = (url.to_owned(), key.map(str::to_owned));
        let mut client = Client { url, era, session: None, http: Http::new(), key, next: Arc::new(AtomicU64::new(1)) };
        if era == Era::Legacy {
            client.initialize().await;
        }
        client
    }

    /// Opens a session, and forgets the one before.
    pub(crate) async fn initialize(&mut self) -> Reply {
        self.initialize_with(json!({})).await
    }

    /// Opens a session of a client that can be asked for these.
    pub(crate) async fn initialize_with(&mut self, capabilities: Value) -> Reply {
        self.initialize_at(OLD, capabilities).await
    }

    /// Opens a session at another revision than usual.
    pub(crate) async fn initialize_at(&mut self, revision: &str, capabilities: Value) -> Reply {
        self.session = None;
        let params = json!({"protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"}});
        let reply = self.post(body_of(0, "initialize", params)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        self.session = Some(reply.header("mcp-session-id").to_owned());
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(initialized.to_string()).await.status, 202);
        reply
    }

    /// The headers of any request.
    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![("content-type", "application/json".to_owned())];
        headers.push(("accept", "application/json, text/event-stream".to_owned()));
        headers.extend(self.key.as_ref().map(|key| ("authorization", format!("Bearer {key}"))));
        headers.extend(self.session.as_ref().map(|id| ("mcp-session-id", id.clone())));
        headers.push(("mcp-protocol-version", if self.era == Era::Legacy { OLD } else { NEW }.to_owned()));
        headers
    }

    /// Sends a request of any kind to the endpoint.
    pub(crate) async fn raw(
        &self,
        verb: &str,
        extra: &[(&'static str, String)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let all = [self.headers(), extra.to_vec()].concat();
        let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.http.open(verb, &self.url, &all, body).await
    }

    /// POSTs a body as it is.
    pub(crate) async fn post(&self, body: impl Into<Bytes>) -> Reply {
        Reply::read(self.raw("POST", &[], body).await).await
    }

    /// Starts a request under an id; gives the response while its body is still coming.
    pub(crate) async fn start(&self, id: impl Into<Value>, method: &str, mut params: Value) -> Response<Incoming> {
        let mut extra = Vec::new();
        if self.era == Era::Modern {
            let mut meta = modern_meta();
            for (key, value) in params["_meta"].as_object().into_iter().flatten() {
                meta[key] = value.clone();
            }
            params["_meta"] = meta;
            extra.push(("mcp-method", method.to_owned()));
            let target = params["name"].as_str().or(params["uri"].as_str()).or(params["taskId"].as_str());
            extra.extend(target.map(|target| ("mcp-name", target.to_owned())));
        }
        self.raw("POST", &extra, body_of(id, method, params)).await
    }

    /// A request under an id, to its end.
    pub(crate) async fn request_as(&self, id: impl Into<Value>, method: &str, params: Value) -> Reply {
        Reply::read(self.start(id, method, params).await).await
    }

    /// A request, to its end.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Reply {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let reply = self.request_as(id, method, params).await;
        assert_eq!(reply.answer()["id"], id, "{reply:?}");
        reply
    }

    /// A call of a tool.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// The names of all tools.
    pub(crate) async fn tools(&self) -> Vec<String> {
        self.request("tools/list", json!({})).await.names()
    }

    /// A stream of whatever is not about a call: the session's own, or a subscription.
    pub(crate) async fn listen(&self) -> Stream {
        let response = match self.era {
            Era::Legacy => self.raw("GET", &[], "").await,
            Era::Modern => {
                let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
                self.start("listening", "subscriptions/listen", json!({"notifications": all})).await
            }
        };
        assert_eq!(response.status(), 200);
        Stream::new(response)
    }

    /// Subscribes to a resource, in the way of its era; gives the stream that tells of it.
    pub(crate) async fn subscribe(&self, uri: &str) -> Stream {
        match self.era {
            Era::Legacy => {
                let stream = self.listen().await;
                self.request("resources/subscribe", json!({"uri": uri})).await.result();
                stream
            }
            Era::Modern => {
                let params = json!({"notifications": {"resourceSubscriptions": [uri]}});
                Stream::new(self.start("listening", "subscriptions/listen", params).await)
            }
        }
    }
}
