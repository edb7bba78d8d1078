//! A client that launches `moongate stdio` and speaks over its standard streams, every byte by
//! hand.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::harness::{modern_meta, within};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");

/// The launched program, and the client's ends of its streams.
pub(crate) struct StdioProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    log: Arc<Mutex<String>>,
    /// What came while something else was waited for.
    early: Vec<Value>,
}

impl StdioProcess {
    /// Launches `moongate stdio` with these flags and variables.
    pub(crate) fn launch(flags: &[&str], variables: &[(&str, &str)]) -> StdioProcess {
        let mut command = Command::new(PROGRAM);
        command
            .arg("stdio")
            .args(flags)
            .env_remove("MOONGATE_KEY")
            .envs(variables.iter().copied());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let mut errors = child.stderr.take().unwrap();
        tokio::spawn({
            let log = log.clone();
            async move {
                let mut part = [0; 4096];
                while let Ok(n @ 1..) = errors.read(&mut part).await {
                    *log.lock().unwrap() += &String::from_utf8_lossy(&part[..n]);
                }
            }
        });
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        StdioProcess {
            stdin: child.stdin.take(),
            child,
            lines,
            log,
            early: Vec::new(),
        }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) async fn raw(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        within(
            "the line is taken",
            stdin.write_all(format!("{text}\n").as_bytes()),
        )
        .await
        .unwrap();
        stdin.flush().await.unwrap();
    }

    pub(crate) async fn say(&mut self, message: &Value) {
        self.raw(&message.to_string()).await;
    }

    /// A request of a session.
    pub(crate) async fn ask(&mut self, id: i64, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
    }

    /// A request without a session.
    pub(crate) async fn ask_modern(&mut self, id: i64, method: &str, mut params: Value) {
        let mut meta = modern_meta();
        for (key, value) in params["_meta"].as_object().into_iter().flatten() {
            meta[key] = value.clone();
        }
        params["_meta"] = meta;
        self.ask(id, method, params).await;
    }

    pub(crate) async fn tell(&mut self, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }

    /// The next message, whatever it is.
    pub(crate) async fn hear(&mut self) -> Value {
        match self.early.is_empty() {
            true => self
                .line()
                .await
                .unwrap_or_else(|| panic!("it ended: {}", self.log())),
            false => self.early.remove(0),
        }
    }

    async fn line(&mut self) -> Option<Value> {
        let line = within("a line", self.lines.next_line()).await.unwrap()?;
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} on stdout: {line:?}"));
        assert!(
            message["jsonrpc"] == "2.0" || message.is_array(),
            "{message}"
        );
        Some(message)
    }

    /// The first message that is wanted; others are kept.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&wanted) {
            return self.early.remove(at);
        }
        loop {
            let message = self
                .line()
                .await
                .unwrap_or_else(|| panic!("it ended: {}", self.log()));
            if wanted(&message) {
                return message;
            }
            self.early.push(message);
        }
    }

    /// The answer to a request.
    pub(crate) async fn answer(&mut self, id: i64) -> Value {
        self.until(|m| m["id"] == id && m["method"].is_null()).await
    }

    pub(crate) async fn result(&mut self, id: i64) -> Value {
        let answer = self.answer(id).await;
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    pub(crate) async fn notification(&mut self, method: &str) -> Value {
        self.until(|m| m["method"] == method && m["id"].is_null())
            .await
    }

    /// What came and was not asked for.
    pub(crate) fn kept(&self) -> &[Value] {
        &self.early
    }

    pub(crate) async fn initialize(&mut self, revision: &str, capabilities: Value) -> Value {
        let params = json!({"protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"}});
        self.ask(0, "initialize", params).await;
        let result = self.result(0).await;
        assert_eq!(result["protocolVersion"], revision);
        self.tell("notifications/initialized", json!({})).await;
        result
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Closes the client's end.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end: how it ended, and what it said until then.
    pub(crate) async fn ended(&mut self) -> (ExitStatus, Vec<Value>) {
        let mut said = std::mem::take(&mut self.early);
        while let Some(message) = self.line().await {
            said.push(message);
        }
        (within("it ends", self.child.wait()).await.unwrap(), said)
    }
}
