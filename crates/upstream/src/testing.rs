//! Servers for unit tests: pipes in memory with a function at the other end. Owns the wire form,
//! HTTP included. Does not decide what a server answers: each test does. Invariant: no process and
//! no socket is opened.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::{mpsc, oneshot};

use crate::{ConnectTarget, HttpTransport, NetworkSettings, ServerSettings, UpstreamRuntime};
use moongate_oauth::ServerAuth;
use moongate_telemetry::Metrics;
use moongate_transport::reaper::Reaper;

/// Limit of messages that a server sends before they are read.
const MESSAGES_MAX: usize = 64;

/// Server's side of one connection.
#[derive(Clone)]
pub(super) struct ServerSide {
    out: mpsc::Sender<Value>,
    /// Number of the connection, from 0.
    pub(super) nth: usize,
}

impl ServerSide {
    pub(super) fn send(&self, message: Value) {
        self.out.try_send(message).unwrap();
    }

    /// Ends the connection, after what was sent before.
    pub(super) fn end(&self) {
        self.send(Value::Null);
    }

    pub(super) fn answer(&self, request: &Value, result: &Value) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Sends a notification of a subscription.
    pub(super) fn send_on_subscription(&self, method: &str, id: &Value) {
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        self.send(json!({"jsonrpc": "2.0", "method": method,
            "params": {"_meta": meta, "notifications": {}}}));
    }

    /// Answers like every legacy server. Returns false for other methods.
    pub(super) fn serve_legacy(&self, message: &Value) -> bool {
        let capabilities = json!({"tools": {}});
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => self.answer(
                message,
                &json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                    "serverInfo": {"name": "a", "version": "1"}}),
            ),
            "tools/list" => self.answer(
                message,
                &json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
            ),
            method => return method.starts_with("notifications/"),
        }
        true
    }
}

/// Stateless server on a pipe whose tools change.
pub(super) struct ChangingServer {
    /// Number of tools.
    pub(super) tools: AtomicUsize,
    /// Number of times that they were listed.
    pub(super) listed: AtomicUsize,
    /// Delay before the acknowledgement of a subscription, which works from then on. `None`: never.
    pub(super) acknowledges: Option<Duration>,
    /// Time that the list of prompts takes.
    pub(super) prompts: Duration,
    listener: Mutex<Option<(ServerSide, Value)>>,
}

/// Returns the tools `t0`, `t1` and so on.
pub(super) fn numbered_tools(count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| json!({"name": format!("t{n}"), "inputSchema": {"type": "object"}}))
        .collect()
}

impl ChangingServer {
    pub(super) fn new(acknowledges: Option<Duration>) -> Arc<Self> {
        let tools = AtomicUsize::new(1);
        let listed = AtomicUsize::new(0);
        let prompts = Duration::from_secs(2);
        Arc::new(ChangingServer {
            tools,
            listed,
            acknowledges,
            prompts,
            listener: Mutex::default(),
        })
    }

    /// Adds a tool and notifies the subscriber.
    pub(super) fn add_tool(&self) {
        self.tools.fetch_add(1, Ordering::Relaxed);
        if let Some((talk, id)) = &*self.listener.lock() {
            talk.send_on_subscription("notifications/tools/list_changed", id);
        }
    }

    /// Ends the stream of the subscriber.
    pub(super) fn end_listening(&self) {
        if let Some((talk, id)) = self.listener.lock().take() {
            talk.answer(&json!({"id": id}), &json!({"resultType": "complete"}));
        }
    }

    pub(super) fn serve(self: &Arc<Self>, talk: &ServerSide, message: &Value) {
        let list_changed = json!({"listChanged": true});
        let result = match message["method"].as_str().unwrap() {
            "server/discover" => {
                json!({"supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": list_changed, "prompts": list_changed}})
            }
            "subscriptions/listen" => {
                let changing = self.clone();
                let talk = talk.clone();
                let id = message["id"].clone();
                if let Some(after) = self.acknowledges {
                    tokio::spawn(async move {
                        tokio::time::sleep(after).await;
                        talk.send_on_subscription("notifications/subscriptions/acknowledged", &id);
                        *changing.listener.lock() = Some((talk, id));
                    });
                }
                return;
            }
            "tools/list" => {
                self.listed.fetch_add(1, Ordering::Relaxed);
                json!({"tools": numbered_tools(self.tools.load(Ordering::Relaxed))})
            }
            "prompts/list" => {
                let talk = talk.clone();
                let message = message.clone();
                let pause = self.prompts;
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    talk.answer(&message, &json!({"resultType": "complete", "prompts": []}));
                });
                return;
            }
            _ => return,
        };
        let mut result = result;
        result["resultType"] = json!("complete");
        talk.answer(message, &result);
    }
}

/// Creates a context that always dials this server: a function that handles each message of each
/// connection.
pub(super) fn dialing(
    serve: impl Fn(&ServerSide, &Value) + Send + Sync + 'static,
) -> Arc<UpstreamRuntime> {
    let serve = Arc::new(serve);
    let dialed = AtomicUsize::new(0);
    let shared = UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled());
    Arc::new(shared.with_dialer(Arc::new(move |_| {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (out, says) = mpsc::channel(MESSAGES_MAX);
        let talk = ServerSide {
            out,
            nth: dialed.fetch_add(1, Ordering::Relaxed),
        };
        tokio::spawn(converse(theirs, talk, says, serve.clone()));
        let (reader, writer) = tokio::io::split(ours);
        Ok((Box::new(reader), Box::new(writer)))
    })))
}

async fn converse(
    pipe: DuplexStream,
    talk: ServerSide,
    mut says: mpsc::Receiver<Value>,
    serve: Arc<impl Fn(&ServerSide, &Value) + Send + Sync>,
) {
    let (reader, mut writer) = tokio::io::split(pipe);
    let mut lines = BufReader::new(reader).lines();
    loop {
        tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => serve(&talk, &serde_json::from_str(&line).unwrap()),
                _ => return,
            },
            Some(message) = says.recv() => {
                if message.is_null() || writer.write_all(format!("{message}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Request over HTTP.
pub(super) struct ScriptedRequest {
    pub(super) verb: Method,
    pub(super) session: Option<String>,
    pub(super) message: Value,
}

/// Scripted answer to a request.
pub(super) enum ScriptedAnswer {
    /// Result, with a session id if one is opened.
    Result(Value, Option<String>),
    /// Result that comes later.
    Later(oneshot::Receiver<Value>),
    /// Messages on an event stream.
    Events(Vec<Value>),
    /// Status without a body.
    Status(u16),
    /// Broken connection.
    Broken,
}

impl ScriptedRequest {
    pub(super) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }
}

/// Creates a context like [`dialing`], for a server with a URL.
pub(super) fn dialing_http(
    serve: impl Fn(&ScriptedRequest) -> ScriptedAnswer + Send + Sync + 'static,
) -> Arc<UpstreamRuntime> {
    let serve = Arc::new(serve);
    let shared = UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled());
    Arc::new(shared.with_dialer(Arc::new(move |_| {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let serve = serve.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| respond(request, serve.clone()));
            // Scripted breaks end the connection with an error.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(theirs), service)
                .await;
        });
        let (reader, writer) = tokio::io::split(ours);
        Ok((Box::new(reader), Box::new(writer)))
    })))
}

async fn respond(
    request: Request<Incoming>,
    serve: Arc<impl Fn(&ScriptedRequest) -> ScriptedAnswer>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let session = head
        .headers
        .get("mcp-session-id")
        .map(|id| id.to_str().unwrap().to_owned());
    let message = serde_json::from_slice(&body).unwrap_or_default();
    let asked = ScriptedRequest {
        verb: head.method,
        session,
        message,
    };
    let (result, session) = match serve(&asked) {
        ScriptedAnswer::Result(result, session) => (result, session),
        ScriptedAnswer::Later(result) => (result.await.map_err(io::Error::other)?, None),
        ScriptedAnswer::Events(messages) => {
            let events: String = messages
                .iter()
                .map(|message| format!("data: {message}\n\n"))
                .collect();
            let response = Response::builder().header("content-type", "text/event-stream");
            return Ok(response.body(Full::from(events)).unwrap());
        }
        ScriptedAnswer::Status(status) => {
            return Ok(Response::builder()
                .status(status)
                .body(Full::default())
                .unwrap());
        }
        ScriptedAnswer::Broken => return Err(io::Error::other("broken")),
    };
    let answer = json!({"jsonrpc": "2.0", "id": asked.message["id"], "result": result}).to_string();
    let response = Response::builder().header("content-type", "application/json");
    let response = match session {
        Some(id) => response.header("mcp-session-id", id),
        None => response,
    };
    Ok(response.body(Full::from(answer)).unwrap())
}

/// Settings of a server with a URL that speaks the legacy revisions.
pub(super) fn settings_http() -> ServerSettings {
    let url = url::Url::parse("http://server.test/mcp").unwrap();
    let headers = Vec::new();
    let connect = ConnectTarget::Http {
        url,
        socket: None,
        headers,
        forward_headers: Vec::new(),
        auth: ServerAuth::default(),
        transport: HttpTransport::Streamable,
        network: NetworkSettings::default(),
    };
    ServerSettings {
        protocol: Some("2025-11-25".to_owned()),
        ..ServerSettings::new("a", connect)
    }
}

/// Settings of a server on a pipe.
pub(super) fn settings() -> ServerSettings {
    ServerSettings::new(
        "a",
        ConnectTarget::Stdio {
            command: "none".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
        },
    )
}

/// Server in memory with a scripted behaviour for each connection, and counts of its connections.
pub(super) mod memory {
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

    use crate::{ConnectTarget, NoSink, ServerSettings, Upstream, UpstreamRuntime};
    use moongate_jsonrpc::json::{JsonObject, RawJson};
    use moongate_model::SharingMode;
    use moongate_model::{Call, Caller, Error, McpMethod, Outcome};
    use moongate_telemetry::Metrics;
    use moongate_transport::reaper::Reaper;
    use moongate_transport::{LinkError, MemoryPipe};

    /// Scripted behaviour of a connection.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) enum ServerBehaviour {
        /// Answers after this time.
        Answers(Duration),
        /// Reads and never answers.
        Mute,
        /// Ends on the first message.
        Dies,
        /// Answers the handshake, and ends on the first call.
        DiesLater,
        /// Cannot be started.
        Unstartable,
    }

    /// Server in memory: the script of its next connections, and counts of the earlier ones.
    pub(crate) struct MemoryServer {
        ways: Mutex<Vec<ServerBehaviour>>,
        last: ServerBehaviour,
        /// Attempts to connect.
        pub(crate) dialed: AtomicUsize,
        /// Connections that are open.
        pub(crate) open: AtomicUsize,
    }

    impl MemoryServer {
        /// Creates a server whose connections behave in this order. The last behaviour repeats.
        pub(crate) fn new(ways: &[ServerBehaviour]) -> Arc<Self> {
            let (last, first) = ways.split_last().unwrap();
            let ways = Mutex::new(first.iter().rev().copied().collect());
            Arc::new(MemoryServer {
                ways,
                last: *last,
                dialed: AtomicUsize::default(),
                open: AtomicUsize::default(),
            })
        }

        pub(crate) fn dialed(&self) -> usize {
            self.dialed.load(Ordering::SeqCst)
        }

        pub(crate) fn open(&self) -> usize {
            self.open.load(Ordering::SeqCst)
        }

        fn dial(self: &Arc<Self>) -> Result<MemoryPipe, LinkError> {
            self.dialed.fetch_add(1, Ordering::SeqCst);
            let way = self.ways.lock().pop().unwrap_or(self.last);
            if way == ServerBehaviour::Unstartable {
                return Err(LinkError::Spawn("no such command".to_owned()));
            }
            // One pipe for each direction, so that each can be closed by itself.
            let (reader, far_writer) = tokio::io::duplex(64 * 1024);
            let (writer, far_reader) = tokio::io::duplex(64 * 1024);
            self.open.fetch_add(1, Ordering::SeqCst);
            let memory = self.clone();
            tokio::spawn(async move {
                serve(far_reader, far_writer, way).await;
                memory.open.fetch_sub(1, Ordering::SeqCst);
            });
            Ok((Box::new(reader), Box::new(writer)))
        }

        /// Creates an upstream to this server. It speaks the newest revision with sessions.
        pub(crate) fn upstream(
            self: &Arc<Self>,
            change: impl Fn(&mut ServerSettings),
        ) -> Arc<Upstream> {
            let connect = ConnectTarget::Stdio {
                command: "memory".to_owned(),
                args: Vec::new(),
                env: Vec::new(),
                cwd: None,
            };
            let mut settings = ServerSettings::new("a", connect);
            settings.options.share = SharingMode::Session;
            settings.protocol = Some("2025-11-25".to_owned());
            change(&mut settings);
            let memory = self.clone();
            let shared = UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled())
                .with_dialer(Arc::new(move |_| memory.dial()));
            Upstream::new(settings, Arc::new(shared), Arc::new(NoSink))
        }
    }

    async fn serve(reader: DuplexStream, mut writer: DuplexStream, way: ServerBehaviour) {
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let method = message["method"].as_str().unwrap_or_default();
            match way {
                ServerBehaviour::Mute => continue,
                ServerBehaviour::Dies => return,
                ServerBehaviour::DiesLater if method == "tools/call" => return,
                ServerBehaviour::Answers(time) => tokio::time::sleep(time).await,
                ServerBehaviour::DiesLater | ServerBehaviour::Unstartable => {}
            }
            let hangs = message["params"]["name"] == "hang";
            // Notifications and responses get no answer, and this tool never ends.
            if message["id"].is_null() || method.is_empty() || hangs {
                continue;
            }
            let info = json!({"name": "memory", "version": "1"});
            let result = match method {
                "initialize" => {
                    json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                        "serverInfo": info})
                }
                "tools/list" => json!({"tools": []}),
                _ => json!({"content": []}),
            };
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            writer
                .write_all(format!("{answer}\n").as_bytes())
                .await
                .ok();
        }
    }

    /// Creates a call of a tool.
    pub(crate) fn tool(name: &str) -> Call {
        Call::new(
            McpMethod::CallTool,
            JsonObject::new().with("name", RawJson::string(name)),
        )
    }

    /// Calls a tool in its own task.
    pub(crate) fn call(
        upstream: &Arc<Upstream>,
        caller: &Arc<Caller>,
        name: &str,
    ) -> tokio::task::JoinHandle<Result<Outcome, Error>> {
        tokio::spawn(upstream.call(caller, tool(name)).outcome())
    }
}
