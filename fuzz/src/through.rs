//! Whole requests through a whole gateway, with a server in memory that notes what reaches it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use moongate::app::GatewayCore;
use moongate_config::LoadOptions;
use moongate_model::UpstreamState;
use moongate_protocol::SUPPORTED;
use moongate_telemetry::Metrics;
use moongate_transport::reaper::Reaper;
use moongate_transport::rpc_pipe::{RpcPipe, RpcPipeSettings};
use moongate_transport::{ByteBudget, Link as _, OutgoingMessage};
use moongate_upstream::{MemoryPipe, UpstreamRuntime};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

use super::text::Members;

const CONFIG: &str = r#"
[servers.s]
command = "memory"
timeout = "5s"
[servers.s.tools]
deny = ["secret"]
"#;

/// A gateway that lives as long as its thread.
struct World {
    runtime: Runtime,
    routes: Router,
    /// The calls that reached its server.
    calls: Arc<Mutex<Vec<String>>>,
    session: String,
}

thread_local! {
    static MODERN: World = World::new(true);
    static LEGACY: World = World::new(false);
}

/// A server of either era that has a tool, and one that nobody may use.
async fn server(stream: DuplexStream, modern: bool, calls: Arc<Mutex<Vec<String>>>) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // Not as values, which not all numbers fit into: whoever is not answered waits for its
        // timeout.
        let Ok(message) = serde_json::from_str::<Members>(&line) else {
            calls
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
            continue;
        };
        let method = message
            .last("method")
            .and_then(|method| serde_json::from_str::<String>(method).ok());
        let (id, method) = (
            message.last("id").map(str::to_owned),
            method.unwrap_or_default(),
        );
        let capabilities = json!({"tools": {}});
        let mut result = match &*method {
            "server/discover" if modern => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities})
            }
            "initialize" if !modern => {
                json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                "serverInfo": {"name": "s", "version": "1"}})
            }
            "tools/list" => {
                let tools = ["echo", "secret"]
                    .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
                json!({ "tools": tools })
            }
            "tools/call" => {
                calls
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
                json!({"content": []})
            }
            _ => Value::Null,
        };
        let Some(id) = id else { continue };
        if modern && result.is_object() {
            result["resultType"] = json!("complete");
        }
        let outcome = match result.is_null() {
            true => format!(
                "\"error\":{}",
                json!({"code": -32601, "message": "no such method"})
            ),
            false => format!("\"result\":{result}"),
        };
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{outcome}}}");
        if writer
            .write_all(format!("{answer}\n").as_bytes())
            .await
            .is_err()
        {
            return;
        }
    }
}

impl World {
    fn new(modern: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.toml");
        std::fs::write(&path, CONFIG).expect("a file");
        let options = LoadOptions {
            paths: vec![path],
            revisions: &SUPPORTED,
            ..LoadOptions::default()
        };
        let plan = moongate_config::load(&options)
            .unwrap_or_else(|problems| panic!("{problems}"))
            .plan;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = calls.clone();
        let dialing = Arc::new(move |_: &str| {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            tokio::spawn(server(theirs, modern, seen.clone()));
            let (reader, writer) = tokio::io::split(ours);
            Ok::<MemoryPipe, _>((Box::new(reader), Box::new(writer)))
        });
        let shared = Arc::new(
            UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled()).with_dialer(dialing),
        );
        let (routes, gateway) = {
            let core = GatewayCore::new(&plan, shared);
            (
                moongate_listener::router(core.shared_state.clone(), false),
                core.gateway,
            )
        };
        let mut world = World {
            runtime,
            routes,
            calls,
            session: String::new(),
        };
        world.runtime.block_on(async {
            gateway.start();
            while gateway.servers()[0].status().state != UpstreamState::Ready {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // Until what it has is in the catalogue.
            tokio::time::sleep(Duration::from_millis(200)).await;
        });
        world.session = world.open_session();
        world
    }

    fn open_session(&self) -> String {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "f", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
            .to_string();
        let response = self.send(&[], body.into_bytes()).expect("an answer");
        response.headers()["mcp-session-id"]
            .to_str()
            .expect("text")
            .to_owned()
    }

    /// Sends a POST; gives the answer once it is there, and nothing where the request cannot be
    /// made at all.
    fn send(&self, headers: &[(&[u8], &[u8])], body: Vec<u8>) -> Option<Response<Body>> {
        let mut request = Request::builder()
            .method("POST")
            .uri("/mcp")
            .header("host", "localhost");
        request = request.header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).ok()?;
        let routes = self.routes.clone();
        let answered = self.runtime.block_on(async {
            let response =
                tokio::time::timeout(Duration::from_secs(20), routes.oneshot(request)).await;
            let response = response
                .expect("a request is answered")
                .unwrap_or_else(|never| match never {});
            let (head, body) = response.into_parts();
            if head
                .headers
                .get("content-type")
                .is_some_and(|kind| kind == "text/event-stream")
            {
                // A stream may have no end: what a client does then is its own affair.
                return Response::from_parts(head, Body::empty());
            }
            let bytes = body
                .collect()
                .await
                .map(|body| body.to_bytes())
                .unwrap_or_default();
            Response::from_parts(head, Body::from(bytes))
        });
        Some(answered)
    }

    /// The calls since the last time.
    fn reached(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What reaches a server is one call, of the tool that was allowed, with the bytes that the client
/// sent.
fn judge(line: &str, body: &[u8]) {
    let message: Members = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    assert_eq!(message.only("jsonrpc"), Some("\"2.0\""), "{line}");
    assert_eq!(message.only("method"), Some("\"tools/call\""), "{line}");
    assert!(
        message
            .only("id")
            .is_some_and(|id| id.bytes().all(|b| b.is_ascii_digit())),
        "{line}"
    );
    let params: Members =
        serde_json::from_str(message.only("params").expect("params")).expect("an object");
    assert_eq!(params.only("name"), Some("\"echo\""), "{line}");
    // A line break between tokens becomes a space on a pipe.
    let flat: Vec<u8> = body
        .iter()
        .map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b })
        .collect();
    if let Some(arguments) = params.only("arguments") {
        let same = memchr::memmem::find(&flat, arguments.as_bytes()).is_some();
        assert!(same, "the client never sent {arguments}");
    }
}

/// Headers and body of a stateless client, as it likes: a call only runs where both say the same.
///
/// The input is lines of headers, an empty line, and the body.
pub fn headers(data: &[u8]) {
    let end = memchr::memmem::find(data, b"\n\n").unwrap_or(data.len());
    let (head, body) = (&data[..end], data.get(end + 2..).unwrap_or_default());
    let lines = head.split(|byte| *byte == b'\n').take(40);
    let pairs: Vec<(&[u8], &[u8])> = lines
        .filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
        // Which host it is, and what is sent, is decided before.
        .filter(|(name, _)| {
            ![&b"host"[..], b"content-length", b"transfer-encoding"]
                .contains(&&*name.to_ascii_lowercase())
        })
        .collect();
    MODERN.with(|world| {
        if world.send(&pairs, body.to_vec()).is_none() {
            return;
        }
        let reached = world.reached();
        assert!(reached.len() <= 1, "one request is one call: {reached:?}");
        for line in reached {
            judge(&line, body);
            let value = |name: &str| {
                let mut found = pairs
                    .iter()
                    .filter(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes()));
                let first = found.next().map(|(_, value)| *value);
                assert!(
                    found.all(|(_, other)| Some(*other) == first),
                    "{name} says two things"
                );
                first
            };
            assert_eq!(value("mcp-method"), Some(&b"tools/call"[..]), "{line}");
            let name = value("mcp-name").expect("the tool is named");
            // As it is, or in the form for what headers cannot hold.
            assert!(name == b"s__echo" || name.starts_with(b"=?"), "{name:?}");
        }
    });
}

/// A body as a client of either era likes it, with the headers that another reader of JSON would
/// give it: what was checked is what the server gets.
pub fn differential(data: &[u8]) {
    let Some((era, body)) = data.split_first() else {
        return;
    };
    let seen = serde_json::from_slice(body).unwrap_or(Members(Vec::new()));
    let params = seen
        .last("params")
        .and_then(|params| serde_json::from_str(params).ok())
        .unwrap_or(Members(Vec::new()));
    let text = |raw: Option<&str>| {
        raw.and_then(|raw| serde_json::from_str::<String>(raw).ok())
            .unwrap_or_default()
    };
    let (method, name) = (text(seen.last("method")), text(params.last("name")));
    let world = if era & 2 == 0 { &MODERN } else { &LEGACY };
    world.with(|world| {
        let mut pairs: Vec<(&[u8], &[u8])> = Vec::new();
        let (method, name) = (method.as_bytes(), name.as_bytes());
        if era & 1 == 0 {
            pairs.extend([
                (&b"mcp-protocol-version"[..], &b"2026-07-28"[..]),
                (b"mcp-method", method),
                (b"mcp-name", name),
            ]);
        } else {
            let session = world.session.as_bytes();
            pairs.extend([
                (&b"mcp-protocol-version"[..], &b"2025-11-25"[..]),
                (b"mcp-session-id", session),
            ]);
        }
        world.send(&pairs, body.to_vec());
        let reached = world.reached();
        assert!(reached.len() <= 1, "one request is one call: {reached:?}");
        for line in reached {
            judge(&line, body);
            // Whoever takes the last of two equal keys, as most readers do, sees the same call.
            assert_eq!(method, b"tools/call", "{line}");
            assert_eq!(name, b"s__echo", "{line}");
        }
    });
}

/// A pipe says the same however its bytes are cut.
///
/// The first byte is the size of the pieces; calls 1 to 4 are open.
pub fn lines(data: &[u8]) {
    let Some((cut, text)) = data.split_first() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let whole = runtime.block_on(read(text, text.len().max(1)));
    assert_eq!(
        runtime.block_on(read(text, usize::from(*cut).max(1))),
        whole
    );
}

/// What calls 1 to 4 were told, what belongs to none, and how many lines were no messages.
async fn read(text: &[u8], size: usize) -> (Vec<Vec<String>>, Vec<String>, usize) {
    let garbage = Arc::new(Mutex::new(0));
    let counted = garbage.clone();
    let (ours, theirs) = tokio::io::duplex(size);
    let (reader, _) = tokio::io::split(ours);
    let settings = RpcPipeSettings {
        max_message: 200,
        backlog: ByteBudget::new(1 << 20, "a", &Metrics::new()),
        correlate: Arc::new(|_, _| moongate_transport::MessageRoute::Events),
        on_garbage: Arc::new(move |_| *counted.lock().unwrap_or_else(PoisonError::into_inner) += 1),
        closed: "the other end closed the pipe",
        explain: None,
    };
    let duplex = RpcPipe::start(reader, tokio::io::sink(), settings);
    let mut events = duplex.open_server_stream(Vec::new()).await.expect("events");
    let mut calls = Vec::new();
    for id in 1..=4 {
        let outgoing = OutgoingMessage {
            body: Bytes::from_static(b"{}"),
            id: Some(id),
            headers: Vec::new(),
        };
        calls.push(duplex.send(outgoing).await.expect("it is open").messages);
    }
    let mut theirs = theirs;
    let bytes = text.to_vec();
    let writing = tokio::spawn(async move {
        for piece in bytes.chunks(size) {
            if theirs.write_all(piece).await.is_err() {
                return;
            }
        }
    });
    let _ = writing.await;
    let shown = |message: &dyn std::fmt::Debug| format!("{message:?}");
    let mut told = Vec::new();
    for mut call in calls {
        let mut all = Vec::new();
        while let Some(message) = call.next().await {
            match message {
                Ok(message) => all.push(shown(&message)),
                Err(error) => all.push(error.to_string()),
            }
        }
        told.push(all);
    }
    drop(duplex);
    let mut others = Vec::new();
    while let Some(Ok(message)) = events.next().await {
        others.push(shown(&message));
    }
    let garbage = *garbage.lock().unwrap_or_else(PoisonError::into_inner);
    (told, others, garbage)
}
