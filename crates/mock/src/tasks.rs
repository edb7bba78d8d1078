//! Tasks in both wire forms: those of 2025-11-25 and those of the later extension.
//!
//! Owns the tasks of a server and their status messages. Does not own the work in them: the tools do. Invariant: a
//! finished task keeps its final status.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::AbortHandle,
};

use super::{
    call::{CallOutcome, CallStop, MockCall},
    record::lock,
    revision::Revision,
    script::TaskRule,
    seal,
    server::{MockServer, OutgoingFrame},
    tools,
    wire::{self, ResultBody, RpcFailure},
};

/// Limit of tasks. Above it, a new task evicts another one.
const TASKS_MAX: usize = 4096;
/// Frames that wait for the reader of `tasks/result`.
const QUEUE: usize = 64;
/// Identifier of the later extension.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Key in `_meta` that names the task of a message (2025-11-25).
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Tasks of a server, by id.
pub(super) type TaskTable = Mutex<HashMap<String, Arc<MockTask>>>;

/// Task of a tool call.
pub(super) struct MockTask {
    id: String,
    rule: TaskRule,
    legacy: bool,
    created: String,
    session: Option<String>,
    state: Mutex<MockTaskState>,
    changed: Notify,
}

struct MockTaskState {
    status: &'static str,
    updated: String,
    end: Option<Result<String, RpcFailure>>,
    pending_requests: BTreeMap<String, (Value, oneshot::Sender<Value>)>,
    result_reader: Option<mpsc::Sender<OutgoingFrame>>,
    work: Option<AbortHandle>,
}

/// Adds the server's task capabilities for this revision.
pub(super) fn announce(server: &MockServer, revision: Revision, all: &mut Value) {
    if server.script.tasks.is_empty() {
        return;
    }
    if revision.is_modern() {
        all["extensions"] = json!({EXTENSION: {}});
    } else if revision == Revision::V2025_11_25 {
        all["tasks"] = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
    }
}

/// Starts the tool's call as a task, if it should be one.
pub(super) async fn create(call: &MockCall, tool: &str) -> Result<Option<ResultBody>, CallStop> {
    let rule = call.server.script.tasks.get(tool);
    if call.revision.is_modern() {
        return match rule {
            None => Ok(None),
            Some(rule) if declared(call) => start(call, rule).await.map(Some),
            Some(rule) if rule.required => Err(undeclared().into()),
            // Without the client's declaration the tool runs as a plain call, unless its rule requires a task.
            Some(_) => Ok(None),
        };
    }
    if call.revision != Revision::V2025_11_25 || call.server.script.tasks.is_empty() {
        return Ok(None);
    }
    match (rule, call.request.params["task"].is_object()) {
        (Some(rule), true) => start(call, rule).await.map(Some),
        (Some(rule), false) if rule.required => {
            // 2025-11-25 answers -32601 for a call that forgets the task, and for a task that the tool does not
            // support.
            Err(RpcFailure::new(-32601, format!("{tool} runs only as a task")).into())
        }
        (None, true) => Err(RpcFailure::new(-32601, format!("{tool} does not run as a task")).into()),
        _ => Ok(None),
    }
}

fn declared(call: &MockCall) -> bool {
    call.capabilities["extensions"][EXTENSION].is_object()
}

fn undeclared() -> RpcFailure {
    let required = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    RpcFailure::new(-32021, "Missing required client capability").data(required).status(400)
}

async fn start(call: &MockCall, rule: &TaskRule) -> Result<ResultBody, CallStop> {
    if let Some(key) = &rule.ask_first {
        call.elicit(key, "What is your name?").await?;
    }
    let now = jiff::Timestamp::now().to_string();
    let ttl = call.request.params["task"]["ttl"].as_u64().or(rule.ttl_ms);
    let task = Arc::new(MockTask {
        id: seal::random_name(),
        rule: TaskRule { ttl_ms: ttl, ..rule.clone() },
        legacy: !call.revision.is_modern(),
        created: now.clone(),
        session: call.session.as_ref().map(|s| s.id.clone()),
        state: Mutex::new(MockTaskState {
            status: "working",
            updated: now,
            end: None,
            pending_requests: BTreeMap::new(),
            result_reader: None,
            work: None,
        }),
        changed: Notify::new(),
    });
    add(&call.server, &task);
    let encoded = task.encode();
    if let (true, Some(session)) = (task.legacy && rule.tell_first, &task.session) {
        call.server.send_to_session(session, wire::notification("notifications/tasks/status", &encoded));
        // Long enough for the notification to be read before the answer.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    let work = tokio::spawn(work(call.inside_task(&task, forward_frames(&call.server, &task)), task.clone()));
    // The work may finish before this line. Aborting a finished task does nothing.
    lock(&task.state).work = Some(work.abort_handle());
    Ok(if task.legacy {
        ResultBody::new().put("task", &encoded)
    } else {
        flat(&encoded).put("resultType", &json!("task"))
    })
}

/// Adds a task to those of the server.
fn add(server: &MockServer, task: &Arc<MockTask>) {
    let mut all = lock(&server.tasks);
    if all.len() >= TASKS_MAX {
        // Any task may go: no test makes this many.
        let any = all.keys().next().cloned().unwrap_or_default();
        all.remove(&any);
    }
    all.insert(task.id.clone(), task.clone());
}

/// Forwards the work's messages to the reader of `tasks/result`, or else to the task's session.
fn forward_frames(server: &Arc<MockServer>, task: &Arc<MockTask>) -> mpsc::Sender<OutgoingFrame> {
    let (out, mut frames) = mpsc::channel(QUEUE);
    let (server, task) = (server.clone(), task.clone());
    tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            let result_reader = lock(&task.state).result_reader.clone();
            match (frame, result_reader, &task.session) {
                // A reader that disconnected loses its messages, as any client does.
                (frame, Some(out), _) => drop(out.send(frame).await),
                (OutgoingFrame::Message(text), None, Some(session)) => drop(server.send_to_session(session, text)),
                _ => {}
            }
        }
    });
    out
}

async fn work(call: MockCall, task: Arc<MockTask>) {
    let name = call.request.params["name"].as_str().unwrap_or_default().to_owned();
    let end = match tools::run_tool(&call, &name).await {
        Ok(body) => Ok(body.text()),
        Err(CallStop::Failed(text)) => Ok(tools::text(&text).put("isError", &json!(true)).text()),
        Err(CallStop::Fail(fail)) => Err(fail),
        // A task returns input requests in its status, so this outcome means a mistake in the mock.
        Err(CallStop::InputRequired(..)) => Err(RpcFailure::new(-32603, "a task asks in another way")),
        Err(CallStop::Crash) => Err(RpcFailure::new(-32603, "a task takes nobody down")),
    };
    // The extension has `failed` only for JSON-RPC errors. A result with `isError` is `completed` there.
    let is_error = |text: &String| serde_json::from_str::<Value>(text).is_ok_and(|v| v["isError"] == true);
    let failed = match &end {
        Ok(text) => task.legacy && is_error(text),
        Err(_) => true,
    };
    task.set_status(&call.server, if failed { "failed" } else { "completed" }, |state| state.end = Some(end));
}

impl MockTask {
    /// Moves the task to a status and notifies its session. Does nothing if the task is finished.
    fn set_status(&self, server: &MockServer, status: &'static str, update: impl FnOnce(&mut MockTaskState)) {
        let mut state = lock(&self.state);
        if is_finished(state.status) {
            return;
        }
        state.status = status;
        state.updated = jiff::Timestamp::now().to_string();
        update(&mut state);
        drop(state);
        if let (true, Some(session)) = (self.legacy && self.rule.tell, &self.session) {
            server.send_to_session(session, wire::notification("notifications/tasks/status", &self.encode()));
        }
        self.changed.notify_waiters();
    }

    fn encode(&self) -> Value {
        let state = lock(&self.state);
        let (ttl, poll) = if self.legacy { ("ttl", "pollInterval") } else { ("ttlMs", "pollIntervalMs") };
        json!({"taskId": self.id, "status": state.status, "statusMessage": format!("It is {}.", state.status),
            "createdAt": self.created, "lastUpdatedAt": state.updated,
            ttl: self.rule.ttl_ms, poll: self.rule.poll_ms})
    }

    /// Task in the extension's full form, with its input requests and its result or error.
    fn detailed(&self) -> ResultBody {
        let mut body = flat(&self.encode());
        let state = lock(&self.state);
        if state.status == "input_required" {
            let requests: BTreeMap<_, _> =
                state.pending_requests.iter().map(|(key, (request, _))| (key, request)).collect();
            body = body.put("inputRequests", &json!(requests));
        }
        match &state.end {
            Some(Ok(text)) => body.raw("result", text.clone()),
            Some(Err(fail)) => body.put("error", &json!({"code": fail.code, "message": fail.message})),
            None => body,
        }
    }

    /// Sends an input request from inside the task.
    pub(super) async fn request_input(
        &self,
        call: &MockCall,
        key: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, CallStop> {
        if self.legacy {
            return self.request_session(call, method, params).await;
        }
        let (answer, answered) = oneshot::channel();
        // "Each request key in `inputRequests` MUST be unique over the lifetime of a single task" (SEP-2663).
        let key = format!("{key}-{}", call.server.next_number());
        let request = json!({"method": method, "params": params});
        self.set_status(&call.server, "input_required", |state| {
            state.pending_requests.insert(key, (request, answer));
        });
        let answer = answered.await.map_err(|_| CallStop::Failed("nobody answered".into()))?;
        self.resume_if_answered(call);
        Ok(answer)
    }

    fn resume_if_answered(&self, call: &MockCall) {
        if lock(&self.state).pending_requests.is_empty() {
            self.set_status(&call.server, "working", |_| {});
        }
    }

    /// Sends an input request on the stream of `tasks/result`, or at once on the session's own stream if the rule is
    /// eager.
    async fn request_session(&self, call: &MockCall, method: &str, mut params: Value) -> Result<Value, CallStop> {
        let Some(session) = &call.session else { return Err(CallStop::Failed("there is no session to ask".into())) };
        let number = call.server.next_number();
        let id = format!("\"task-ask-{number}\"");
        let Some(reply) = session.expect_response(&id) else {
            return Err(CallStop::Failed("too many asks are open".into()));
        };
        // "All requests, notifications, and responses related to a task MUST include the
        // `io.modelcontextprotocol/related-task` key in their `_meta` field" (2025-11-25, basic/utilities/tasks).
        params["_meta"][RELATED] = json!({"taskId": self.id});
        let request = wire::request(&id, method, &params);
        let key = format!("{number:08}");
        self.set_status(&call.server, "input_required", |state| {
            // The entry marks the task as waiting. The response comes through the session, so its channel is never
            // used.
            state.pending_requests.insert(key.clone(), (Value::Null, oneshot::channel().0));
        });
        if self.rule.eager {
            call.server.send_to_session(&session.id, request);
        } else {
            self.wait_for_result_reader().await;
            call.send_message(request).await;
        }
        let reply = reply.await;
        lock(&self.state).pending_requests.remove(&key);
        self.resume_if_answered(call);
        match reply {
            // The same MUST binds the client's response, and a gateway in between must not lose it.
            Ok(Ok(result)) if result["_meta"][RELATED]["taskId"] != self.id.as_str() => {
                Err(CallStop::Failed(format!("the answer does not name the task: {result}")))
            }
            Ok(Ok(mut result)) => {
                if let Some(all) = result.as_object_mut() {
                    all.remove("_meta");
                }
                Ok(result)
            }
            Ok(Err(error)) => Err(CallStop::Failed(format!("the client answered with an error: {error}"))),
            Err(_) => Err(CallStop::Failed("the client did not answer".into())),
        }
    }

    async fn wait_for_result_reader(&self) {
        loop {
            // Subscribe before the check, or a change between the two would be missed.
            let changed = self.changed.notified();
            if lock(&self.state).result_reader.is_some() {
                return;
            }
            changed.await;
        }
    }
}

fn is_finished(status: &str) -> bool {
    !matches!(status, "working" | "input_required")
}

fn flat(object: &Value) -> ResultBody {
    object.as_object().into_iter().flatten().fold(ResultBody::new(), |body, (key, value)| body.put(key, value))
}

fn find(call: &MockCall) -> Result<Arc<MockTask>, RpcFailure> {
    let id = call.request.params["taskId"].as_str().ok_or_else(|| RpcFailure::params("`taskId` is missing"))?;
    let task = lock(&call.server.tasks).get(id).cloned();
    let legacy = !call.revision.is_modern();
    // A task is found only in the form that it was made in: ids of one form mean nothing in the other.
    task.filter(|task| task.legacy == legacy).ok_or_else(|| RpcFailure::params(format!("Task not found: {id}")))
}

/// Answers the methods of the later extension. `None` if the method is none of them.
pub(super) fn modern(call: &MockCall) -> Option<CallOutcome> {
    let known = matches!(call.request.method.as_str(), "tasks/get" | "tasks/update" | "tasks/cancel");
    if !known || call.server.script.tasks.is_empty() {
        return None;
    }
    if !declared(call) {
        return Some(Err(undeclared().into()));
    }
    let task = match find(call) {
        Ok(task) => task,
        Err(fail) => return Some(Err(fail.into())),
    };
    Some(Ok(match call.request.method.as_str() {
        "tasks/get" => task.detailed(),
        "tasks/update" => {
            for (key, answer) in call.request.params["inputResponses"].as_object().into_iter().flatten() {
                if let Some((_, waiting)) = lock(&task.state).pending_requests.remove(key) {
                    // The work may have been cancelled meanwhile.
                    let _ = waiting.send(answer.clone());
                }
            }
            ResultBody::new()
        }
        // `tasks/cancel` has an empty result here. The client polls `tasks/get` for the status.
        _ => {
            cancel(call, &task);
            ResultBody::new()
        }
    }))
}

fn cancel(call: &MockCall, task: &MockTask) {
    task.set_status(&call.server, "cancelled", |state| {
        state.pending_requests.clear();
        if let Some(work) = state.work.take() {
            work.abort();
        }
    });
}

/// Answers the methods of 2025-11-25. `None` if the method is none of them.
pub(super) async fn legacy(call: &MockCall) -> Option<CallOutcome> {
    let known = matches!(call.request.method.as_str(), "tasks/get" | "tasks/result" | "tasks/list" | "tasks/cancel");
    if !known || call.server.script.tasks.is_empty() || call.revision != Revision::V2025_11_25 {
        return None;
    }
    if call.request.method == "tasks/list" {
        return Some(list(call));
    }
    let task = match find(call) {
        Ok(task) => task,
        Err(fail) => return Some(Err(fail.into())),
    };
    Some(match call.request.method.as_str() {
        "tasks/get" => Ok(flat(&task.encode())),
        "tasks/result" => result(call, &task).await,
        _ => {
            let status = lock(&task.state).status;
            if is_finished(status) {
                return Some(Err(RpcFailure::params(format!("Cannot cancel: the task is {status}")).into()));
            }
            cancel(call, &task);
            Ok(flat(&task.encode()))
        }
    })
}

async fn result(call: &MockCall, task: &MockTask) -> CallOutcome {
    // The newest reader gets the task's messages, so a client may reconnect.
    lock(&task.state).result_reader = Some(call.out.clone());
    task.changed.notify_waiters();
    loop {
        // Subscribe before the check, or a change between the two would be missed.
        let changed = task.changed.notified();
        let (status, end) = {
            let state = lock(&task.state);
            (state.status, state.end.clone())
        };
        match end {
            // "it MUST block the response until the task reaches a terminal status" (2025-11-25,
            // basic/utilities/tasks).
            _ if !is_finished(status) => changed.await,
            Some(Ok(text)) => {
                let body =
                    ResultBody::verbatim(&text).ok_or_else(|| RpcFailure::new(-32603, "the result is no object"))?;
                let mut meta = body.get("_meta").unwrap_or_else(|| json!({}));
                meta[RELATED] = json!({"taskId": task.id});
                return Ok(body.put("_meta", &meta));
            }
            Some(Err(fail)) => return Err(fail.into()),
            None => return Err(RpcFailure::new(-32603, format!("The task was {status}")).into()),
        }
    }
}

/// Lists the tasks of the session, in pages.
fn list(call: &MockCall) -> CallOutcome {
    let session = call.session.as_ref().map(|s| s.id.clone());
    let mut tasks: Vec<_> = lock(&call.server.tasks).values().filter(|t| t.session == session).cloned().collect();
    tasks.sort_by(|a, b| (&a.created, &a.id).cmp(&(&b.created, &b.id)));
    let first = match &call.request.params["cursor"] {
        Value::Null => 0,
        cursor => {
            let n = cursor.as_str().and_then(|c| c.strip_prefix("tasks-")?.parse::<usize>().ok());
            n.filter(|n| *n <= tasks.len()).ok_or_else(|| RpcFailure::params("Invalid cursor"))?
        }
    };
    let size = if call.server.script.list.page_size == 0 { usize::MAX } else { call.server.script.list.page_size };
    let page: Vec<Value> = tasks.iter().skip(first).take(size).map(|task| task.encode()).collect();
    let next = first.saturating_add(size);
    let body = ResultBody::new().put("tasks", &json!(page));
    Ok(if next < tasks.len() { body.put("nextCursor", &json!(format!("tasks-{next}"))) } else { body })
}
