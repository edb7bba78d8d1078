//! Tasks as 2025-11-25 spells them (basic/utilities/tasks.mdx): pure functions.

use bytes::Bytes;

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::Notification;
use crate::model::{Error, Outcome, Reason, Task, TaskFeatures, TaskStatus};
use crate::revision::notices::notification;
use crate::revision::tasks::{Words, join, members, take};

/// "All requests, notifications, and responses related to a task MUST include the
/// `io.modelcontextprotocol/related-task` key in their `_meta` field".
pub(in crate::revision) const RELATED: &str = "io.modelcontextprotocol/related-task";

const WORDS: Words = Words { ttl: "ttl", poll: "pollInterval" };

/// What a server can do with tasks, from its capabilities. Tasks of other requests than tool calls are not carried.
pub(super) fn features(capabilities: &Object) -> Option<TaskFeatures> {
    let tasks = capabilities.object("tasks")?;
    let calls = tasks.object("requests").and_then(|r| r.object("tools")).is_some_and(|t| t.get("call").is_some());
    let has = |name: &str| tasks.get(name).is_some_and(Raw::is_object);
    calls.then(|| TaskFeatures { list: has("list"), cancel: has("cancel"), any_tool: false })
}

/// The capability that says the same.
pub(super) fn capability(features: TaskFeatures) -> Raw {
    let mut tasks = Object::new();
    for (name, on) in [("list", features.list), ("cancel", features.cancel)] {
        if on {
            tasks.set(Text::literal(name), Raw::literal("{}"));
        }
    }
    tasks.with("requests", Raw::literal(r#"{"tools":{"call":{}}}"#)).raw()
}

/// Reads the answer to a call that was to become a task: a `CreateTaskResult`, or what the call came to at once.
pub(super) fn created(result: &mut Object) -> Option<Task> {
    let mut task = result.object("task")?;
    let read = take(&mut task, &WORDS)?;
    result.remove("task");
    Some(read)
}

/// Reads a result that is a task itself.
pub(super) fn state(result: &mut Object) -> Option<Task> {
    take(result, &WORDS)
}

/// How a server tells of a task's state; optional, and about no call.
pub(super) const TOLD: &str = "notifications/tasks/status";

/// Reads what a server tells of a task.
pub(super) fn told(notification: &Notification) -> Option<Task> {
    if &*notification.method != TOLD {
        return None;
    }
    take(&mut notification.params.clone(), &WORDS)
}

/// Writes what is told of a task.
pub(super) fn write_told(task: &Task) -> Bytes {
    notification(TOLD, &members(task, task.status, &WORDS))
}

/// Writes the answer to a call that became a task.
pub(super) fn write_created(outcome: &Outcome, task: &Task) -> Object {
    let task = members(task, task.status, &WORDS);
    join(Object::new().with("task", task.raw()), &outcome.result)
}

/// Writes a task as a result of its own.
pub(super) fn write_state(outcome: &Outcome, task: &Task) -> Object {
    join(members(task, status(task), &WORDS), &outcome.result)
}

/// "`failed`: […] For tool calls specifically, this includes cases where the tool call result has `isError` set to
/// true." In the modern spelling such a task is completed.
fn status(task: &Task) -> TaskStatus {
    let is_error = |end: &Raw| end.as_object().and_then(|o| o.get("isError").cloned()).is_some_and(|v| v == TRUE);
    match (&task.end, task.status) {
        (Some(Ok(end)), TaskStatus::Completed) if is_error(end) => TaskStatus::Failed,
        (_, status) => status,
    }
}

const TRUE: Raw = Raw::literal("true");

/// The task that a message is about, if it names one.
pub(in crate::revision) fn related(params: &Object) -> Option<Text> {
    let meta = params.get("_meta")?;
    memchr::memmem::find(meta.bytes(), RELATED.as_bytes())?;
    meta.as_object()?.object(RELATED)?.text("taskId")
}

/// Takes the name of the task out of a message: it is local to a hop.
pub(in crate::revision) fn unrelate(object: &mut Object) {
    let named = object.get("_meta").is_some_and(|m| memchr::memmem::find(m.bytes(), RELATED.as_bytes()).is_some());
    let Some(mut meta) = object.object("_meta").filter(|_| named) else { return };
    meta.remove(RELATED);
    if meta.is_empty() {
        object.remove("_meta");
    } else {
        object.set(Text::literal("_meta"), meta.raw());
    }
}

/// Puts the name of a task into a message.
pub(super) fn relate(object: &mut Object, id: &str) {
    let mut meta = object.object("_meta").unwrap_or_default();
    meta.set(Text::literal(RELATED), Object::new().with("taskId", Raw::string(id)).raw());
    object.set(Text::literal("_meta"), meta.raw());
}

/// "Attempt to cancel a task already in a terminal status: `-32602` (Invalid params)".
pub(in crate::revision) fn already(status: TaskStatus) -> Error {
    let message = format!("Cannot cancel task: already in terminal status '{}'", status.name());
    Error::new(Reason::InvalidParams, message)
}
