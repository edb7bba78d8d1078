//! A server with an extension, over HTTP and over TCP.
//!
//! Records what it receives, and asks its client where it is told to. Invariant: each question has
//! its own id, which begins with `q`.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{broadcast, mpsc};

use super::{json_response, response};
use crate::harness::{Setup, loopback};

/// A legacy server with an extension. Its tool `asking` and its method `com.example/ask` ask the
/// client.
#[derive(Clone)]
pub(super) struct ExtendedServer {
    pub(super) received: Arc<Mutex<Vec<Value>>>,
    answer: broadcast::Sender<Value>,
    asked: Arc<AtomicUsize>,
    /// Ways out of its connections over TCP.
    connections: Arc<Mutex<Vec<Out>>>,
    /// What `initialize` announces beside tools.
    announced: Value,
    pub(super) address: String,
}

type Out = mpsc::Sender<Value>;

impl ExtendedServer {
    fn new(address: String) -> Self {
        let announced = json!({"extensions": {"com.example/thing": {},
            "io.modelcontextprotocol/ui": {}},
            "experimental": {"com.example/trial": {}}});
        ExtendedServer {
            received: Arc::default(),
            answer: broadcast::Sender::new(64),
            asked: Arc::default(),
            connections: Arc::default(),
            announced,
            address,
        }
    }

    pub(super) async fn over_http() -> (Self, Setup) {
        let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
        let server = ExtendedServer::new(format!("http://{}/mcp", listener.local_addr().unwrap()));
        let router = axum::Router::new()
            .fallback(serve_post)
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let setup = Setup::new().with("servers.a", &format!("url = {:?}", server.address));
        (server, setup)
    }

    pub(super) async fn over_tcp() -> (Self, Setup) {
        Self::over_tcp_with(|_| ()).await
    }

    pub(super) async fn over_tcp_with(change: impl FnOnce(&mut Value)) -> (Self, Setup) {
        let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
        let mut server = ExtendedServer::new(listener.local_addr().unwrap().to_string());
        change(&mut server.announced);
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve_lines(socket));
            }
        });
        let setup = Setup::new().with("servers.a", &format!("tcp = {:?}", server.address));
        (server, setup)
    }

    async fn serve_lines(self, socket: tokio::net::TcpStream) {
        let (read, mut write) = socket.into_split();
        let (out, mut lines_out) = mpsc::channel::<Value>(64);
        self.connections.lock().unwrap().push(out.clone());
        tokio::spawn(async move {
            while let Some(message) = lines_out.recv().await {
                if write
                    .write_all(format!("{message}\n").as_bytes())
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            tokio::spawn(
                self.clone()
                    .react(serde_json::from_str(&line).unwrap(), out.clone()),
            );
        }
    }

    async fn react(self, message: Value, out: Out) {
        self.received.lock().unwrap().push(message.clone());
        if message["id"].as_str().is_some_and(|id| id.starts_with('q')) {
            // An error means that nobody waits for it.
            let _ = self.answer.send(message);
            return;
        }
        if message["id"].is_null() {
            // News that belong to no call.
            if message["method"] == "notifications/com.example/hello" {
                out.try_send(
                    json!({"jsonrpc": "2.0", "method": "notifications/com.example/news",
                    "params": {"n": 2}}),
                )
                .unwrap();
                if let Some(method) = message["params"]["ask"].as_str() {
                    self.ask(method, &out).await;
                }
            }
            return;
        }
        let tool = message["params"]["name"].as_str().unwrap_or_default();
        let result = match message["method"].as_str().unwrap() {
            "initialize" => {
                let mut capabilities = self.announced.clone();
                capabilities["tools"] = json!({});
                json!({"protocolVersion": "2025-06-18", "serverInfo": {"name": "s", "version": "1"},
                    "capabilities": capabilities})
            }
            "tools/list" => {
                json!({"tools": [{"name": "asking", "inputSchema": {"type": "object"}}]})
            }
            "com.example/thing" => json!({"echoed": message["params"], "ttlMs": 5}),
            "com.example/ask" => json!({"heard": self.ask("com.example/question", &out).await}),
            "tools/call" if tool == "asking" => {
                let heard = self
                    .ask(
                        message["params"]["arguments"]["method"].as_str().unwrap(),
                        &out,
                    )
                    .await;
                json!({"content": [{"type": "text", "text": heard.to_string()}]})
            }
            method => {
                let error =
                    json!({"code": -32601, "message": format!("the server has no {method}")});
                out.try_send(json!({"jsonrpc": "2.0", "id": message["id"], "error": error}))
                    .unwrap();
                return;
            }
        };
        out.try_send(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
            .unwrap();
    }

    /// Sends news and a question, and waits for what comes back.
    async fn ask(&self, method: &str, out: &Out) -> Value {
        let mut answers = self.answer.subscribe();
        let id = format!("q{}", self.asked.fetch_add(1, Ordering::Relaxed));
        out.try_send(
            json!({"jsonrpc": "2.0", "method": "notifications/com.example/news",
            "params": {"n": 1}}),
        )
        .unwrap();
        let params = json!({"messages": [], "maxTokens": 1, "_meta": {"progressToken": 77}});
        out.try_send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .unwrap();
        loop {
            let answer = answers.recv().await.unwrap();
            if answer["id"] == id {
                return answer;
            }
        }
    }

    /// Asks outside of calls, on each connection that was ever made.
    pub(super) fn ask_on_all_connections(&self, method: &'static str) {
        for out in self.connections.lock().unwrap().iter() {
            let server = self.clone();
            let out = out.clone();
            tokio::spawn(async move { server.ask(method, &out).await });
        }
    }

    /// The answers to its questions.
    pub(super) fn answers(&self) -> Vec<Value> {
        let received = self.received.lock().unwrap();
        received
            .iter()
            .filter(|message| message["id"].is_string() && message["method"].is_null())
            .cloned()
            .collect()
    }

    pub(super) fn received(&self, method: &str) -> Vec<Value> {
        self.received
            .lock()
            .unwrap()
            .iter()
            .filter(|message| message["method"] == method)
            .cloned()
            .collect()
    }
}

async fn serve_post(
    State(server): State<ExtendedServer>,
    head: http::Method,
    body: Bytes,
) -> Response {
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return response(405, "text/plain", "");
    };
    let (out, answers) = mpsc::channel(64);
    let is_request = message["id"].is_number() && message["method"].is_string();
    if head != http::Method::POST || !is_request {
        server.react(message, out).await;
        return response(202, "text/plain", "");
    }
    if message["method"] == "initialize" {
        let mut answers = answers;
        server.react(message, out).await;
        return json_response(200, &answers.recv().await.unwrap());
    }
    tokio::spawn(server.react(message, out));
    let events = futures_util::stream::unfold(answers, |mut answers| async move {
        let message = answers.recv().await?;
        Some((Ok::<_, Infallible>(format!("data: {message}\n\n")), answers))
    });
    response(200, "text/event-stream", Body::from_stream(events.boxed()))
}
