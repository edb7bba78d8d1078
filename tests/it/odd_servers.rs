//! Servers that are stricter, older or stranger than the newest SDKs, behind a gateway with its
//! default settings.
//!
//! Owns a scripted HTTP server. Invariant: a script decides about each request alone.

mod cookies;
mod definitions;
mod extended_server;
mod extension_clients;
mod extensions;
mod handshakes;
mod http;
mod programs;
mod starts;

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::harness::loopback;

/// A request: its method and path, its headers, and the message in it.
#[derive(Clone)]
struct Asked {
    path: String,
    headers: http_headers::HeaderMap,
    message: Value,
}

use ::http as http_headers;

impl Asked {
    fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

type Script = Arc<dyn Fn(&Asked) -> Response + Send + Sync>;

/// A server that answers as its script says.
#[derive(Clone)]
struct ScriptedServer {
    script: Script,
    asked: Arc<Mutex<Vec<Asked>>>,
    url: String,
}

impl ScriptedServer {
    async fn start(script: impl Fn(&Asked) -> Response + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let server = ScriptedServer {
            script: Arc::new(script),
            asked: Arc::default(),
            url,
        };
        let router = axum::Router::new()
            .fallback(respond)
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        server
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn count(&self, method: &str) -> usize {
        self.asked()
            .iter()
            .filter(|asked| asked.method() == method)
            .count()
    }
}

async fn respond(State(server): State<ScriptedServer>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let asked = Asked {
        path: head.uri.path().to_owned(),
        headers: head.headers,
        message: serde_json::from_slice(&body).unwrap_or_default(),
    };
    server.asked.lock().unwrap().push(asked.clone());
    (server.script)(&asked)
}

fn response(status: u16, kind: &str, body: impl Into<axum::body::Body>) -> Response {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(body.into())
        .unwrap()
}

fn json_response(status: u16, body: &Value) -> Response {
    response(status, "application/json", body.to_string())
}

fn error(asked: &Asked, code: i64, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": {"code": code, "message": text}})
}

/// The message with which a small legacy server answers. `Null` for notifications.
fn legacy_answer(asked: &Asked) -> Value {
    let result = match asked.method() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
        "tools/call" => {
            let text = asked.message["params"]["arguments"].to_string();
            json!({"content": [{"type": "text", "text": text}]})
        }
        method if method.starts_with("notifications/") => return Value::Null,
        _ => return error(asked, -32601, "Method not found"),
    };
    json!({"jsonrpc": "2.0", "id": asked.message["id"], "result": result})
}

/// Answers as a small legacy server does.
fn legacy(asked: &Asked) -> Response {
    match (asked.message.is_null(), legacy_answer(asked)) {
        (true, _) => response(405, "text/plain", ""),
        (false, Value::Null) => response(202, "text/plain", ""),
        (false, answer) => json_response(200, &answer),
    }
}
