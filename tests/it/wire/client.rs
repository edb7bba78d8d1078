//! A client that speaks one revision as its specification spells it, with code of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioExecutor};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::sse::Sse;
use super::{Answer, GUARD, Stream};

/// The first revision without sessions.
pub(crate) const MODERN: &str = "2026-07-28";

/// A client at one revision.
pub(crate) struct Client {
    pub(crate) revision: &'static str,
    pub(crate) url: String,
    /// The session's id, once there is one.
    pub(crate) session: Option<String>,
    /// The stream of a client of HTTP+SSE.
    sse: Option<Sse>,
    capabilities: Value,
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    ids: AtomicU64,
}

/// A request that is being put together; members are JSON text, sent as they are written.
pub(crate) struct Ask<'a> {
    client: &'a Client,
    method: String,
    id: String,
    members: String,
    meta: String,
    headers: Vec<(String, String)>,
}

impl Client {
    /// A client that has said nothing yet.
    pub(crate) fn speaking(revision: &'static str, url: &str, capabilities: Value) -> Self {
        Client {
            revision,
            url: url.to_owned(),
            session: None,
            sse: None,
            capabilities,
            http: hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http(),
            ids: AtomicU64::new(100),
        }
    }

    /// A client that is ready to call: with a session where its revision has them.
    pub(crate) async fn open(revision: &'static str, url: &str, capabilities: Value) -> Self {
        let mut client = Client::speaking(revision, url, capabilities);
        // The path says which transport it is.
        if url.contains("/sse") {
            client.sse = Some(Sse::begin(url, Stream::of(client.http("GET", "", &[]).await)).await);
            let params = json!({"protocolVersion": revision, "capabilities": client.capabilities,
                "clientInfo": {"name": "pairs", "version": "1"}});
            assert_eq!(client.call("initialize", params).await.result()["protocolVersion"], revision);
            assert_eq!(client.notify("notifications/initialized", json!({})).await, 202);
            return client;
        }
        if !client.is_modern() {
            let answer = client.initialize(revision).await;
            assert_eq!(answer.result()["protocolVersion"], revision, "the gateway speaks another revision");
            client.session = Some(answer.headers["mcp-session-id"].to_str().unwrap().to_owned());
            assert_eq!(client.notify("notifications/initialized", json!({})).await, 202);
        }
        client
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.revision >= MODERN
    }

    /// `initialize`, asking for `version`; opens no session of this client.
    pub(crate) async fn initialize(&self, version: &str) -> Answer {
        let params = json!({"protocolVersion": version, "capabilities": self.capabilities,
            "clientInfo": {"name": "pairs", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        Stream::of(self.http("POST", &body.to_string(), &[]).await).finish("1").await
    }

    /// One HTTP request, with the headers that every message of this client has.
    pub(crate) async fn http(&self, method: &str, body: &str, more: &[(String, String)]) -> Response<Incoming> {
        let uri = self.sse.as_ref().map_or(&self.url, |sse| &sse.to);
        let mut request = Request::builder().method(method).uri(uri);
        let accept = if method == "GET" { "text/event-stream" } else { "application/json, text/event-stream" };
        request = request.header("accept", accept);
        if method == "POST" {
            request = request.header("content-type", "application/json");
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
            // 2025-06-18/basic/transports.mdx, Protocol Version Header.
            if self.revision >= "2025-06-18" {
                request = request.header("mcp-protocol-version", self.revision);
            }
        }
        for (name, value) in more {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        timeout(GUARD, self.http.request(request)).await.expect("no response").expect("the connection broke")
    }

    /// A request with an id of its own.
    pub(crate) fn ask(&self, method: &str) -> Ask<'_> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed).to_string();
        let (members, meta) = (String::new(), String::new());
        Ask { client: self, method: method.to_owned(), id, members, meta, headers: Vec::new() }
    }

    pub(crate) async fn call(&self, method: &str, params: Value) -> Answer {
        self.ask(method).params(&params).send().await
    }

    pub(crate) async fn tool(&self, name: &str, arguments: Value) -> Answer {
        self.call("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    /// A notification; gives the HTTP status.
    pub(crate) async fn notify(&self, method: &str, params: Value) -> u16 {
        if let (Some(sse), "notifications/cancelled") = (&self.sse, method) {
            sse.forget(&params["requestId"].to_string());
        }
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let version = ("mcp-protocol-version".to_owned(), self.revision.to_owned());
        let headers = if self.is_modern() { vec![version] } else { Vec::new() };
        self.http("POST", &body.to_string(), &headers).await.status().as_u16()
    }

    /// Answers a request of the server (legacy); gives the HTTP status.
    pub(crate) async fn respond(&self, id: &Value, outcome: &Value) -> u16 {
        let member = if outcome["code"].is_number() { "error" } else { "result" };
        let body = json!({"jsonrpc": "2.0", "id": id, member: outcome});
        self.http("POST", &body.to_string(), &[]).await.status().as_u16()
    }

    /// The session's own stream (legacy), once its first bytes are there.
    pub(crate) async fn listen(&self) -> Stream {
        if let Some(sse) = &self.sse {
            return sse.listen();
        }
        let mut stream = Stream::of(self.http("GET", "", &[]).await);
        assert_eq!(stream.status, 200);
        assert!(stream.is_events(), "no event stream: {:?}", stream.headers);
        assert!(stream.begun().await, "the stream ended at once");
        stream
    }

    /// Ends the session (legacy).
    pub(crate) async fn delete(&self) -> u16 {
        if let Some(sse) = &self.sse {
            sse.close();
            return 204;
        }
        self.http("DELETE", "", &[]).await.status().as_u16()
    }
}

impl Ask<'_> {
    /// The id, as JSON text.
    pub(crate) fn id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }

    /// Members of the params, as JSON text without the braces.
    pub(crate) fn members(mut self, members: &str) -> Self {
        members.clone_into(&mut self.members);
        self
    }

    pub(crate) fn params(self, params: &Value) -> Self {
        let text = params.to_string();
        self.members(text.trim_start_matches('{').strip_suffix('}').unwrap())
    }

    /// Members of `_meta`, as JSON text without the braces.
    pub(crate) fn meta(mut self, members: &str) -> Self {
        members.clone_into(&mut self.meta);
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The request as JSON text.
    pub(crate) fn body(&self) -> String {
        let mut meta = self.meta.clone();
        if self.client.is_modern() {
            let separator = if meta.is_empty() { "" } else { "," };
            meta = format!(
                r#""io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientInfo":{{"name":"pairs","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{}{separator}{meta}"#,
                self.client.revision, self.client.capabilities,
            );
        }
        let mut params = self.members.clone();
        if !meta.is_empty() {
            let separator = if params.is_empty() { "" } else { "," };
            params = format!(r#"{params}{separator}"_meta":{{{meta}}}"#);
        }
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{{{params}}}}}"#, self.id, self.method)
    }

    /// The headers that mirror the body (2026-07-28/basic/transports/streamable-http.mdx, Request Metadata).
    fn mirrored(&self) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        if self.client.is_modern() {
            let mut add = |name: &str, value: &str| {
                if !headers.iter().any(|(given, _)| given == name) {
                    headers.push((name.to_owned(), encoded(value)));
                }
            };
            add("mcp-protocol-version", self.client.revision);
            add("mcp-method", &self.method);
            let params: Value = serde_json::from_str(&format!("{{{}}}", self.members)).unwrap_or_default();
            let key = match self.method.as_str() {
                "tools/call" | "prompts/get" => "name",
                "resources/read" => "uri",
                "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
                _ => "",
            };
            if let Some(value) = params[key].as_str() {
                add("mcp-name", value);
            }
        }
        headers
    }

    /// Sends it and reads the whole answer.
    pub(crate) async fn send(self) -> Answer {
        let id = self.id.clone();
        self.open().await.finish(&id).await
    }

    /// Sends it and reads nothing yet.
    pub(crate) async fn open(self) -> Stream {
        let body = self.body();
        let Some(sse) = &self.client.sse else {
            return Stream::of(self.client.http("POST", &body, &self.mirrored()).await);
        };
        let said = sse.expect(&body, &self.id);
        let response = self.client.http("POST", &body, &[]).await;
        if response.status() == 202 {
            return said;
        }
        sse.forget(&self.id);
        Stream::of(response)
    }

    /// Sends it and answers whatever the server asks meanwhile: in its own POST (legacy), or with a retry (modern).
    pub(crate) async fn answering(mut self, reply: impl Fn(&str, &Value) -> Value) -> (Answer, Vec<Value>) {
        let mut asked = Vec::new();
        if !self.client.is_modern() {
            let (client, id) = (self.client, self.id.clone());
            let mut stream = self.open().await;
            let mut messages = Vec::new();
            while let Some(message) = stream.next().await {
                if message.value.get("id").is_some() && !message.method().is_empty() {
                    let outcome = reply(message.method(), &message.value["params"]);
                    assert_eq!(client.respond(&message.value["id"], &outcome).await, 202);
                    asked.push(message.value);
                } else {
                    messages.push(message);
                }
            }
            let Stream { status, headers, read, .. } = stream;
            return (Answer { status, headers, bytes: read, messages, id }, asked);
        }
        let original = self.members.clone();
        for round in 1..10 {
            let (client, method, meta, headers) =
                (self.client, self.method.clone(), self.meta.clone(), self.headers.clone());
            let answer = self.send().await;
            let end = &answer.end().value["result"];
            if end["resultType"] != "input_required" {
                return (answer, asked);
            }
            let mut responses = json!({});
            for (key, request) in end["inputRequests"].as_object().into_iter().flatten() {
                responses[key] = reply(request["method"].as_str().unwrap(), &request["params"]);
                asked.push(request.clone());
            }
            let state = end["requestState"].as_str().map(|s| format!(r#","requestState":{}"#, json!(s)));
            let members = format!(r#"{original},"inputResponses":{responses}{}"#, state.unwrap_or_default());
            self = Ask { client, method, id: format!("\"round {round}\""), members, meta, headers };
        }
        panic!("asked for input ten times");
    }
}

fn encoded(value: &str) -> String {
    let plain = value.bytes().all(|b| (0x20..=0x7E).contains(&b)) && value.trim() == value;
    if plain { value.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(value)) }
}
