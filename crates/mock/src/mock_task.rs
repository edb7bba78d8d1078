//! Task of a tool call: its status and its wire forms.
//!
//! Owns the table of tasks. Does not own the work in them (`tasks`) or what they ask
//! (`task_inputs`). Invariant: a finished task keeps its final status.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::AbortHandle,
};

use super::{
    frame::OutgoingFrame,
    listeners::ListenerTable,
    script::TaskRule,
    wire::{self, ResultBody, RpcFailure},
};

/// Key in `_meta` that names the task of a message (2025-11-25).
pub(super) const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Tasks of a server, by id.
pub(super) type TaskTable = Mutex<HashMap<String, Arc<MockTask>>>;

/// Task of a tool call.
pub(super) struct MockTask {
    pub(super) id: String,
    pub(super) rule: TaskRule,
    pub(super) legacy: bool,
    pub(super) created: String,
    pub(super) session: Option<String>,
    pub(super) state: Mutex<MockTaskState>,
    pub(super) changed: Notify,
}

/// State of a task that changes.
pub(super) struct MockTaskState {
    pub(super) status: &'static str,
    pub(super) updated: String,
    pub(super) end: Option<Result<String, RpcFailure>>,
    pub(super) pending_requests: BTreeMap<String, (Value, oneshot::Sender<Value>)>,
    pub(super) result_reader: Option<mpsc::Sender<OutgoingFrame>>,
    pub(super) work: Option<AbortHandle>,
}

impl MockTask {
    /// Moves the task to a status and notifies its session. Does nothing if the task is finished.
    pub(super) fn set_status(
        &self,
        listeners: &ListenerTable,
        status: &'static str,
        update: impl FnOnce(&mut MockTaskState),
    ) {
        let mut state = self.state.lock();
        if is_finished(state.status) {
            return;
        }
        state.status = status;
        state.updated = jiff::Timestamp::now().to_string();
        update(&mut state);
        drop(state);
        if let (true, Some(session)) = (self.legacy && self.rule.tell, &self.session) {
            listeners.send_to_session(
                session,
                wire::notification("notifications/tasks/status", &self.encode()),
            );
        }
        self.changed.notify_waiters();
    }

    pub(super) fn encode(&self) -> Value {
        let state = self.state.lock();
        let (ttl, poll) = if self.legacy {
            ("ttl", "pollInterval")
        } else {
            ("ttlMs", "pollIntervalMs")
        };
        json!({"taskId": self.id, "status": state.status,
            "statusMessage": format!("It is {}.", state.status),
            "createdAt": self.created, "lastUpdatedAt": state.updated,
            ttl: self.rule.ttl_ms, poll: self.rule.poll_ms})
    }

    /// Task in the extension's full form, with its input requests and its result or error.
    pub(super) fn detailed(&self) -> ResultBody {
        let mut body = flatten_members(&self.encode());
        let state = self.state.lock();
        if state.status == "input_required" {
            let requests: BTreeMap<_, _> = state
                .pending_requests
                .iter()
                .map(|(key, (request, _))| (key, request))
                .collect();
            body = body.put("inputRequests", &json!(requests));
        }
        match &state.end {
            Some(Ok(text)) => body.raw("result", text.clone()),
            Some(Err(fail)) => body.put(
                "error",
                &json!({"code": fail.code, "message": fail.message}),
            ),
            None => body,
        }
    }

    /// Waits for a reader of `tasks/result`.
    pub(super) async fn wait_for_result_reader(&self) {
        loop {
            // Subscribe before the check, or a change between the two would be missed.
            let changed = self.changed.notified();
            if self.state.lock().result_reader.is_some() {
                return;
            }
            changed.await;
        }
    }
}

pub(super) fn is_finished(status: &str) -> bool {
    !matches!(status, "working" | "input_required")
}

pub(super) fn flatten_members(object: &Value) -> ResultBody {
    object
        .as_object()
        .into_iter()
        .flatten()
        .fold(ResultBody::new(), |body, (key, value)| body.put(key, value))
}
