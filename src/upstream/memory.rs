//! Server in memory for unit tests, with a scripted behaviour for each connection. Owns the counts of its connections.
//! Does not script single messages (`testing.rs`). Invariant: no process and no socket is opened.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use crate::json::{JsonObject, RawJson};
use crate::link::reaper::Reaper;
use crate::link::{LinkError, MemoryPipe};
use crate::model::{Call, Caller, Error, McpMethod, Outcome};
use crate::telemetry::Metrics;
use crate::upstream::{ConnectTarget, ServerSettings, SharingMode, Upstream, UpstreamContext};

/// Scripted behaviour of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::upstream) enum ServerBehaviour {
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
pub(in crate::upstream) struct MemoryServer {
    ways: Mutex<Vec<ServerBehaviour>>,
    last: ServerBehaviour,
    /// Attempts to connect.
    pub(in crate::upstream) dialed: AtomicUsize,
    /// Connections that are open.
    pub(in crate::upstream) open: AtomicUsize,
}

impl MemoryServer {
    /// Creates a server whose connections behave in this order. The last behaviour repeats.
    pub(in crate::upstream) fn new(ways: &[ServerBehaviour]) -> Arc<Self> {
        let (last, first) = ways.split_last().unwrap();
        let ways = Mutex::new(first.iter().rev().copied().collect());
        Arc::new(MemoryServer { ways, last: *last, dialed: AtomicUsize::default(), open: AtomicUsize::default() })
    }

    pub(in crate::upstream) fn dialed(&self) -> usize {
        self.dialed.load(Ordering::SeqCst)
    }

    pub(in crate::upstream) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    fn dial(self: &Arc<Self>) -> Result<MemoryPipe, LinkError> {
        self.dialed.fetch_add(1, Ordering::SeqCst);
        let way = self.ways.lock().unwrap().pop().unwrap_or(self.last);
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
    pub(in crate::upstream) fn upstream(self: &Arc<Self>, change: impl Fn(&mut ServerSettings)) -> Arc<Upstream> {
        let connect =
            ConnectTarget::Stdio { command: "memory".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
        let mut settings = ServerSettings { share: SharingMode::Session, ..ServerSettings::new("a", connect) };
        settings.protocol = Some("2025-11-25".to_owned());
        change(&mut settings);
        let memory = self.clone();
        let shared = UpstreamContext::new(Arc::new(Metrics::new()), Reaper::disabled())
            .with_dialer(Arc::new(move |_| memory.dial()));
        Upstream::new(settings, Arc::new(shared), Arc::new(|_, _| {}))
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
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
            }
            "tools/list" => json!({"tools": []}),
            _ => json!({"content": []}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        writer.write_all(format!("{answer}\n").as_bytes()).await.ok();
    }
}

/// Creates a call of a tool.
pub(in crate::upstream) fn tool(name: &str) -> Call {
    Call::new(McpMethod::CallTool, JsonObject::new().with("name", RawJson::string(name)))
}

/// Calls a tool in a task of its own.
pub(in crate::upstream) fn call(
    upstream: &Arc<Upstream>,
    caller: &Arc<Caller>,
    name: &str,
) -> tokio::task::JoinHandle<Result<Outcome, Error>> {
    tokio::spawn(upstream.call(caller, tool(name)).outcome())
}
