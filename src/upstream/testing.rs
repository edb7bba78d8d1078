//! Servers for unit tests: pipes in memory, and a function at their other end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::mpsc;

use crate::link::guard::Guard;
use crate::telemetry::Metrics;
use crate::upstream::{Connect, ServerSettings, Shared};

/// What a server may say before it is read.
const WAITING: usize = 64;

/// A server's side of one connection.
#[derive(Clone)]
pub(super) struct Talk {
    out: mpsc::Sender<Value>,
    /// Which connection it is, from 0.
    pub(super) nth: usize,
}

impl Talk {
    pub(super) fn say(&self, message: Value) {
        self.out.try_send(message).unwrap();
    }

    pub(super) fn answer(&self, request: &Value, result: &Value) {
        self.say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Does what every legacy server does; false: it is something else.
    pub(super) fn legacy(&self, message: &Value) -> bool {
        let capabilities = json!({"tools": {}});
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => self.answer(
                message,
                &json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "a", "version": "1"}}),
            ),
            "tools/list" => self.answer(message, &json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})),
            method => return method.starts_with("notifications/"),
        }
        true
    }
}

/// Shared parts that lead to a server wherever they dial: what it does with each message, on which connection.
pub(super) fn dialing(serve: impl Fn(&Talk, &Value) + Send + Sync + 'static) -> Arc<Shared> {
    let (serve, dialed) = (Arc::new(serve), AtomicUsize::new(0));
    let shared = Shared::new(Arc::new(Metrics::new()), Guard::none());
    Arc::new(shared.dialing(Arc::new(move |_| {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (out, says) = mpsc::channel(WAITING);
        let talk = Talk { out, nth: dialed.fetch_add(1, Ordering::Relaxed) };
        tokio::spawn(converse(theirs, talk, says, serve.clone()));
        let (reader, writer) = tokio::io::split(ours);
        Ok((Box::new(reader), Box::new(writer)))
    })))
}

async fn converse(
    pipe: DuplexStream,
    talk: Talk,
    mut says: mpsc::Receiver<Value>,
    serve: Arc<impl Fn(&Talk, &Value) + Send + Sync>,
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
                if writer.write_all(format!("{message}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Settings of a server on a pipe.
pub(super) fn settings() -> ServerSettings {
    ServerSettings::new(
        "a",
        Connect::Stdio { command: "none".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None },
    )
}
