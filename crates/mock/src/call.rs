//! Call: one request while it is answered.
//!
//! Owns what a tool may do before it answers: progress and logs. Does not own the methods or what a
//! tool asks (`input_requests`). Invariant: a caller gets nothing after the response.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    frame::OutgoingFrame,
    mock_task::MockTask,
    revision::Revision,
    server::MockServer,
    session::MockSession,
    wire::{self, ResultBody, RpcFailure, WireRequest},
};

/// Log levels, mildest first.
pub(super) const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// Reason why a method has no result.
#[derive(Debug)]
pub(super) enum CallStop {
    /// JSON-RPC error.
    Fail(RpcFailure),
    /// Tool result with `isError`.
    Failed(String),
    /// Input requests by key, which the caller has to answer first (modern). The flag says if it
    /// also gets a `requestState`.
    InputRequired(Value, bool),
    /// Crash of the server.
    Crash,
}

impl From<RpcFailure> for CallStop {
    fn from(fail: RpcFailure) -> Self {
        Self::Fail(fail)
    }
}

pub(super) type CallOutcome = Result<ResultBody, CallStop>;

/// Request with its caller and the channel for the response.
pub(super) struct MockCall {
    pub(super) server: Arc<MockServer>,
    pub(super) revision: Revision,
    pub(super) capabilities: Value,
    pub(super) client: Value,
    /// Session of the caller. `None` for modern callers, and for legacy callers of a server without
    /// sessions.
    pub(super) session: Option<Arc<MockSession>>,
    /// HTTP headers of the request. `None` on other transports.
    pub(super) headers: Option<Vec<(String, String)>>,
    pub(super) request: WireRequest,
    /// Input responses of a modern caller so far, by key.
    pub(super) input_responses: Value,
    pub(super) out: mpsc::Sender<OutgoingFrame>,
    /// Task that the call runs in, if any.
    pub(super) task: Option<Arc<MockTask>>,
}

impl MockCall {
    pub(super) fn argument(&self, key: &str) -> &Value {
        &self.request.params["arguments"][key]
    }

    pub(super) fn text_argument<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.argument(key).as_str().unwrap_or(default)
    }

    pub(super) fn number_argument(&self, key: &str, default: u64) -> u64 {
        self.argument(key).as_u64().unwrap_or(default)
    }

    /// Sends a message before the response. Waits while the caller does not read.
    pub(super) async fn send_message(&self, message: String) {
        // A disconnected caller gets nothing. The transport decides if the call continues.
        let _ = self.out.send(OutgoingFrame::Message(message)).await;
    }

    /// Reports progress to a caller that gave a token.
    pub(super) async fn progress(&self, done: u64, total: u64) {
        let token = self.request.meta("progressToken");
        if token.is_null() {
            return;
        }
        let mut params = json!({"progressToken": token, "progress": done, "total": total});
        // The member `message` is new in 2025-03-26.
        if self.revision >= Revision::V2025_03_26 {
            params["message"] = json!(format!("step {done} of {total}"));
        }
        self.send_message(wire::notification("notifications/progress", &params))
            .await;
    }

    /// Sends a log message to a caller that asked for this level.
    pub(super) async fn log(&self, level: &str, data: &Value) {
        // 2026-07-28 has no `logging/setLevel`: a request without `logLevel` in its `_meta` gets no
        // log messages.
        let floor = match (&self.session, self.revision.is_modern()) {
            (_, true) => match self
                .request
                .meta("io.modelcontextprotocol/logLevel")
                .as_str()
            {
                Some(level) => level.to_owned(),
                None => return,
            },
            // A client that set no level leaves the choice to the server. This one sends
            // everything.
            (Some(session), false) => session.log.lock().clone().unwrap_or_else(|| "debug".into()),
            (None, false) => "debug".into(),
        };
        if level_rank(level) >= level_rank(&floor) {
            let params = json!({"level": level, "logger": "mock", "data": data});
            self.send_message(wire::notification("notifications/message", &params))
                .await;
        }
    }

    /// Returns a copy of the call that runs inside a task and sends its messages there.
    pub(super) fn inside_task(
        &self,
        task: &Arc<MockTask>,
        out: mpsc::Sender<OutgoingFrame>,
    ) -> Self {
        Self {
            server: self.server.clone(),
            revision: self.revision,
            capabilities: self.capabilities.clone(),
            client: self.client.clone(),
            session: self.session.clone(),
            headers: self.headers.clone(),
            request: self.request.clone(),
            input_responses: self.input_responses.clone(),
            out,
            task: Some(task.clone()),
        }
    }
}

/// Returns the position of a log level. An unknown one counts as the lowest.
fn level_rank(level: &str) -> usize {
    LEVELS.iter().position(|l| *l == level).unwrap_or(0)
}
