//! Call: one request while it is answered.
//!
//! Owns what a tool may do before it answers: progress, logs, input requests. Does not own the methods. Invariant: it
//! never sends an input request that the client did not declare a capability for, unless a script says so.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    revision::Revision,
    server::{MockServer, OutgoingFrame},
    session::MockSession,
    tasks::MockTask,
    wire::{self, ResultBody, RpcFailure, WireRequest},
};

/// Time limit for the client's response to an input request.
const INPUT_TIMEOUT: Duration = Duration::from_secs(300);

/// Log levels, mildest first.
pub(super) const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Reason why a method has no result.
#[derive(Debug)]
pub(super) enum CallStop {
    /// JSON-RPC error.
    Fail(RpcFailure),
    /// Tool result with `isError`.
    Failed(String),
    /// Input requests by key, which the caller has to answer first (modern). The flag says if it also gets a
    /// `requestState`.
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
    /// Session of the caller. `None` for modern callers, and for legacy callers of a server without sessions.
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
        // A disconnected caller gets nothing. The transport decides if the call goes on.
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
        self.send_message(wire::notification("notifications/progress", &params)).await;
    }

    /// Sends a log message to a caller that wants this level.
    pub(super) async fn log(&self, level: &str, data: &Value) {
        // 2026-07-28 has no `logging/setLevel`: a request without `logLevel` in its `_meta` gets no log messages.
        let floor = match (&self.session, self.revision.is_modern()) {
            (_, true) => match self.request.meta("io.modelcontextprotocol/logLevel").as_str() {
                Some(level) => level.to_owned(),
                None => return,
            },
            // A client that set no level leaves the choice to the server. This one sends everything.
            (Some(session), false) => super::record::lock(&session.log).clone().unwrap_or_else(|| "debug".into()),
            (None, false) => "debug".into(),
        };
        let rank = |level: &str| LEVELS.iter().position(|l| *l == level).unwrap_or(0);
        if rank(level) >= rank(&floor) {
            let params = json!({"level": level, "logger": "mock", "data": data});
            self.send_message(wire::notification("notifications/message", &params)).await;
        }
    }

    /// Asks the user for a name.
    pub(super) async fn elicit(&self, key: &str, message: &str) -> Result<Value, CallStop> {
        let mut params = json!({
            "message": message,
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        });
        if self.revision >= Revision::V2025_11_25 {
            params["mode"] = json!("form");
        }
        let caps = &self.capabilities["elicitation"];
        // "An empty capabilities object is equivalent to declaring support for `form` mode only" (2025-11-25,
        // client/elicitation).
        let able = caps.is_object() && (caps["form"].is_object() || !caps["url"].is_object());
        self.check_declared(able, Revision::V2025_06_18, json!({"elicitation": {"form": {}}}))?;
        self.request_input(key, "elicitation/create", params).await
    }

    /// Asks the user to open a page.
    pub(super) async fn elicit_url(&self, key: &str, url: &str) -> Result<Value, CallStop> {
        let mut params = json!({"mode": "url", "message": "Please open this page.", "url": url});
        let id = format!("page-{}", self.server.next_number());
        // 2026-07-28 has neither `elicitationId` nor the notification below: the client retries the call.
        if !self.revision.is_modern() {
            params["elicitationId"] = json!(id);
        }
        let able = self.capabilities["elicitation"]["url"].is_object();
        self.check_declared(able, Revision::V2025_11_25, json!({"elicitation": {"url": {}}}))?;
        let answer = self.request_input(key, "elicitation/create", params).await?;
        if !self.revision.is_modern() {
            // No page exists, so the elicitation completes at once.
            self.send_message(wire::notification("notifications/elicitation/complete", &json!({"elicitationId": id})))
                .await;
        }
        Ok(answer)
    }

    /// Asks the client's model.
    pub(super) async fn sample(&self, prompt: &str) -> Result<Value, CallStop> {
        let content = json!({"type": "text", "text": prompt});
        let params = json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100});
        self.check_declared(self.capabilities["sampling"].is_object(), Revision::V2024_11_05, json!({"sampling": {}}))?;
        self.request_input("sample", "sampling/createMessage", params).await
    }

    /// Asks the client's model, which may call a tool.
    pub(super) async fn sample_with_tools(&self, prompt: &str) -> Result<Value, CallStop> {
        let content = json!({"type": "text", "text": prompt});
        let tool = json!({"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}});
        let params = json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100,
            "tools": [tool], "toolChoice": {"mode": "auto"}, "includeContext": "thisServer"});
        let able = self.capabilities["sampling"]["tools"].is_object();
        self.check_declared(able, Revision::V2025_11_25, json!({"sampling": {"tools": {}}}))?;
        self.request_input("sample", "sampling/createMessage", params).await
    }

    /// Asks for the client's roots.
    pub(super) async fn roots(&self) -> Result<Value, CallStop> {
        self.check_declared(self.capabilities["roots"].is_object(), Revision::V2024_11_05, json!({"roots": {}}))?;
        self.request_input("roots", "roots/list", json!({})).await
    }

    pub(super) fn check_declared(&self, declared: bool, since: Revision, required: Value) -> Result<(), CallStop> {
        if declared && self.revision >= since {
            return Ok(());
        }
        if self.revision.is_modern() {
            let fail = RpcFailure::new(-32021, "Missing required client capability");
            return Err(fail.data(json!({"requiredCapabilities": required})).status(400).into());
        }
        Err(CallStop::Failed(format!("the client did not declare the capability this needs: {required}")))
    }

    /// Returns a copy of the call that runs inside a task and sends its messages there.
    pub(super) fn inside_task(&self, task: &Arc<MockTask>, out: mpsc::Sender<OutgoingFrame>) -> Self {
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

    async fn request_input(&self, key: &str, method: &str, params: Value) -> Result<Value, CallStop> {
        // An answer that came before the task was made is used as it is. The task asks for all others itself.
        if let (Some(task), true) = (&self.task, self.input_responses[key].is_null()) {
            return task.request_input(self, key, method, params).await;
        }
        if self.revision.is_modern() {
            return match &self.input_responses[key] {
                Value::Null => Err(CallStop::InputRequired(json!({key: {"method": method, "params": params}}), true)),
                answer => Ok(answer.clone()),
            };
        }
        self.request(method, params).await
    }

    /// Sends a request to the client and waits for its result (legacy).
    pub(super) async fn request(&self, method: &str, params: Value) -> Result<Value, CallStop> {
        self.request_within(method, params, None).await
    }

    /// Sends a request to the client. With a patience, it is taken back after that time; none at all waits for nothing.
    pub(super) async fn request_within(
        &self,
        method: &str,
        params: Value,
        patience: Option<Duration>,
    ) -> Result<Value, CallStop> {
        let Some(session) = &self.session else {
            return Err(CallStop::Failed("cannot ask a client that has no session".into()));
        };
        let id = format!("\"ask-{}\"", self.server.next_number());
        let Some(reply) = session.expect_response(&id) else {
            return Err(CallStop::Failed("too many asks are open".into()));
        };
        self.send_outside(session, wire::request(&id, method, &params)).await;
        if patience == Some(Duration::ZERO) {
            return Err(CallStop::Failed("nobody waits for the answer".into()));
        }
        match tokio::time::timeout(patience.unwrap_or(INPUT_TIMEOUT), reply).await {
            Ok(Ok(Ok(result))) => Ok(result),
            Ok(Ok(Err(error))) => Err(CallStop::Failed(format!("the client answered with an error: {error}"))),
            _ if patience.is_some() => {
                let params = json!({"requestId": id.trim_matches('"'), "reason": "no longer needed"});
                self.send_outside(session, wire::notification("notifications/cancelled", &params)).await;
                Err(CallStop::Failed("the request was taken back".into()))
            }
            _ => Err(CallStop::Failed("the client did not answer".into())),
        }
    }

    /// Sends a message on the stream of the call or, if the script says so, on the session's.
    async fn send_outside(&self, session: &MockSession, message: String) {
        if !self.server.script.http.ask_on_get {
            return self.send_message(message).await;
        }
        // The client may open its stream just now.
        for _ in 0..500 {
            if self.server.send_to_session(&session.id, message.clone()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
