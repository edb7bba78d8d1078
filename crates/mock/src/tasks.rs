//! Tasks in both wire forms: those of 2025-11-25 and those of the later extension.
//!
//! Owns their start and their methods. Does not own the work in them: the tools do. Invariant: a
//! task is found only in the form that it was made in.

use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::{
    call::{CallOutcome, CallStop, MockCall},
    frame::OutgoingFrame,
    mock_task::{MockTask, MockTaskState, RELATED, flatten_members, is_finished},
    revision::Revision,
    script::TaskRule,
    seal,
    server::MockServer,
    tools,
    wire::{self, ResultBody, RpcFailure},
};

/// Limit of tasks. Above it, a new task evicts another one.
const TASKS_MAX: usize = 4096;
/// Frames that wait for the reader of `tasks/result`.
const QUEUE: usize = 64;
/// Identifier of the later extension.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";

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
            Some(rule) if declares_tasks(call) => start(call, rule).await.map(Some),
            Some(rule) if rule.required => Err(undeclared().into()),
            // Without the client's declaration the tool runs as a plain call, unless its rule
            // requires a task.
            Some(_) => Ok(None),
        };
    }
    if call.revision != Revision::V2025_11_25 || call.server.script.tasks.is_empty() {
        return Ok(None);
    }
    match (rule, call.request.params["task"].is_object()) {
        (Some(rule), true) => start(call, rule).await.map(Some),
        (Some(rule), false) if rule.required => {
            // 2025-11-25 answers -32601 for a call that forgets the task, and for a task that the
            // tool does not support.
            Err(RpcFailure::new(-32601, format!("{tool} runs only as a task")).into())
        }
        (None, true) => {
            Err(RpcFailure::new(-32601, format!("{tool} does not run as a task")).into())
        }
        _ => Ok(None),
    }
}

fn declares_tasks(call: &MockCall) -> bool {
    call.capabilities["extensions"][EXTENSION].is_object()
}

fn undeclared() -> RpcFailure {
    let required = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    RpcFailure::new(-32021, "Missing required client capability")
        .data(required)
        .status(400)
}

async fn start(call: &MockCall, rule: &TaskRule) -> Result<ResultBody, CallStop> {
    if let Some(key) = &rule.ask_first {
        call.elicit(key, "What is your name?").await?;
    }
    let now = jiff::Timestamp::now().to_string();
    let ttl = call.request.params["task"]["ttl"].as_u64().or(rule.ttl_ms);
    let task = Arc::new(MockTask {
        id: seal::random_name(),
        rule: TaskRule {
            ttl_ms: ttl,
            ..rule.clone()
        },
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
    add_task(&call.server, &task);
    let encoded = task.encode();
    if let (true, Some(session)) = (task.legacy && rule.tell_first, &task.session) {
        call.server.listeners.send_to_session(
            session,
            wire::notification("notifications/tasks/status", &encoded),
        );
        // Long enough for the notification to be read before the answer.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    let work = tokio::spawn(run_task(
        call.inside_task(&task, forward_frames(&call.server, &task)),
        task.clone(),
    ));
    // The work may finish before this line. Aborting a finished task does nothing.
    task.state.lock().work = Some(work.abort_handle());
    Ok(if task.legacy {
        ResultBody::new().put("task", &encoded)
    } else {
        flatten_members(&encoded).put("resultType", &json!("task"))
    })
}

/// Adds a task to those of the server.
fn add_task(server: &MockServer, task: &Arc<MockTask>) {
    let mut all = server.tasks.lock();
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
    let server = server.clone();
    let task = task.clone();
    tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            let result_reader = task.state.lock().result_reader.clone();
            match (frame, result_reader, &task.session) {
                // A reader that disconnected loses its messages, as any client does.
                (frame, Some(out), _) => drop(out.send(frame).await),
                (OutgoingFrame::Message(text), None, Some(session)) => {
                    server.listeners.send_to_session(session, text);
                }
                _ => {}
            }
        }
    });
    out
}

async fn run_task(call: MockCall, task: Arc<MockTask>) {
    let name = call.request.params["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let end = match tools::run_tool(&call, &name).await {
        Ok(body) => Ok(body.text()),
        Err(CallStop::Failed(text)) => Ok(tools::text(&text).put("isError", &json!(true)).text()),
        Err(CallStop::Fail(fail)) => Err(fail),
        // A task returns input requests in its status, so this outcome means a mistake in the mock.
        Err(CallStop::InputRequired(..)) => {
            Err(RpcFailure::new(-32603, "a task asks in another way"))
        }
        Err(CallStop::Crash) => Err(RpcFailure::new(-32603, "a task takes nobody down")),
    };
    // The extension has `failed` only for JSON-RPC errors. A result with `isError` is `completed`
    // there.
    let is_error =
        |text: &String| serde_json::from_str::<Value>(text).is_ok_and(|v| v["isError"] == true);
    let failed = match &end {
        Ok(text) => task.legacy && is_error(text),
        Err(_) => true,
    };
    task.set_status(
        &call.server.listeners,
        if failed { "failed" } else { "completed" },
        |state| state.end = Some(end),
    );
}

fn find(call: &MockCall) -> Result<Arc<MockTask>, RpcFailure> {
    let id = call.request.params["taskId"]
        .as_str()
        .ok_or_else(|| RpcFailure::params("`taskId` is missing"))?;
    let task = call.server.tasks.lock().get(id).cloned();
    let legacy = !call.revision.is_modern();
    // A task is found only in the form that it was made in: ids of one form mean nothing in the
    // other.
    task.filter(|task| task.legacy == legacy)
        .ok_or_else(|| RpcFailure::params(format!("Task not found: {id}")))
}

/// Answers the methods of the later extension. `None` if the method is none of them.
pub(super) fn modern(call: &MockCall) -> Option<CallOutcome> {
    let known = matches!(
        call.request.method.as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel"
    );
    if !known || call.server.script.tasks.is_empty() {
        return None;
    }
    if !declares_tasks(call) {
        return Some(Err(undeclared().into()));
    }
    let task = match find(call) {
        Ok(task) => task,
        Err(fail) => return Some(Err(fail.into())),
    };
    Some(Ok(match call.request.method.as_str() {
        "tasks/get" => task.detailed(),
        "tasks/update" => {
            for (key, answer) in call.request.params["inputResponses"]
                .as_object()
                .into_iter()
                .flatten()
            {
                if let Some((_, waiting)) = task.state.lock().pending_requests.remove(key) {
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
    task.set_status(&call.server.listeners, "cancelled", |state| {
        state.pending_requests.clear();
        if let Some(work) = state.work.take() {
            work.abort();
        }
    });
}

/// Answers the methods of 2025-11-25. `None` if the method is none of them.
pub(super) async fn legacy(call: &MockCall) -> Option<CallOutcome> {
    let known = matches!(
        call.request.method.as_str(),
        "tasks/get" | "tasks/result" | "tasks/list" | "tasks/cancel"
    );
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
        "tasks/get" => Ok(flatten_members(&task.encode())),
        "tasks/result" => result(call, &task).await,
        _ => {
            let status = task.state.lock().status;
            if is_finished(status) {
                return Some(Err(RpcFailure::params(format!(
                    "Cannot cancel: the task is {status}"
                ))
                .into()));
            }
            cancel(call, &task);
            Ok(flatten_members(&task.encode()))
        }
    })
}

async fn result(call: &MockCall, task: &MockTask) -> CallOutcome {
    // The newest reader gets the task's messages, so a client may reconnect.
    task.state.lock().result_reader = Some(call.out.clone());
    task.changed.notify_waiters();
    loop {
        // Subscribe before the check, or a change between the two would be missed.
        let changed = task.changed.notified();
        let (status, end) = {
            let state = task.state.lock();
            (state.status, state.end.clone())
        };
        match end {
            // "it MUST block the response until the task reaches a terminal status" (2025-11-25,
            // basic/utilities/tasks).
            _ if !is_finished(status) => changed.await,
            Some(Ok(text)) => {
                let body = ResultBody::verbatim(&text)
                    .ok_or_else(|| RpcFailure::new(-32603, "the result is no object"))?;
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
    let mut tasks: Vec<_> = call
        .server
        .tasks
        .lock()
        .values()
        .filter(|t| t.session == session)
        .cloned()
        .collect();
    tasks.sort_by(|a, b| (&a.created, &a.id).cmp(&(&b.created, &b.id)));
    let first = match &call.request.params["cursor"] {
        Value::Null => 0,
        cursor => {
            let n = cursor
                .as_str()
                .and_then(|c| c.strip_prefix("tasks-")?.parse::<usize>().ok());
            n.filter(|n| *n <= tasks.len())
                .ok_or_else(|| RpcFailure::params("Invalid cursor"))?
        }
    };
    let size = if call.server.script.list.page_size == 0 {
        usize::MAX
    } else {
        call.server.script.list.page_size
    };
    let page: Vec<Value> = tasks
        .iter()
        .skip(first)
        .take(size)
        .map(|task| task.encode())
        .collect();
    let next = first.saturating_add(size);
    let body = ResultBody::new().put("tasks", &json!(page));
    Ok(if next < tasks.len() {
        body.put("nextCursor", &json!(format!("tasks-{next}")))
    } else {
        body
    })
}
