//! Tasks in the wire form of 2025-11-25 (basic/utilities/tasks.mdx).
//!
//! Owns the members of a task and the related-task key. Pure functions without state. Invariant: a
//! task id in `_meta` is local to one hop.

use bytes::Bytes;

use crate::notifications::encode_notification;
use crate::tasks::{TimeMembers, append_members, extract_task, write_members};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::RpcNotification;
use moongate_model::{Error, McpErrorKind, Outcome, TaskCapabilities, TaskState, TaskStatus};

/// Key of the task that a message is related to.
///
/// "All requests, notifications, and responses related to a task MUST include the
/// `io.modelcontextprotocol/related-task` key in their `_meta` field".
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

const TIME_MEMBERS: TimeMembers = TimeMembers {
    ttl: "ttl",
    poll: "pollInterval",
};

/// Reads a server's task capabilities. Only tasks of tool calls are supported.
pub(super) fn read_capability(capabilities: &JsonObject) -> Option<TaskCapabilities> {
    let tasks = capabilities.get_object("tasks")?;
    let calls = tasks
        .get_object("requests")
        .and_then(|r| r.get_object("tools"))
        .is_some_and(|t| t.get("call").is_some());
    // 2025-11-25/basic/utilities/tasks.mdx, Tool-Level Negotiation: "If a server's capabilities do
    // not include `tasks.requests.tools.call`, then clients MUST NOT attempt to use task
    // augmentation on that server's tools".
    calls.then(|| TaskCapabilities {
        list: tasks.has_object("list"),
        cancel: tasks.has_object("cancel"),
        any_tool: false,
    })
}

/// Writes the task capabilities.
pub(super) fn write_capability(capabilities: TaskCapabilities) -> RawJson {
    let mut tasks = JsonObject::new();
    for (name, on) in [("list", capabilities.list), ("cancel", capabilities.cancel)] {
        if on {
            tasks.set(ByteString::literal(name), RawJson::literal("{}"));
        }
    }
    tasks
        .with("requests", RawJson::literal(r#"{"tools":{"call":{}}}"#))
        .to_raw()
}

/// Reads the response to a call that was sent as a task. `None` if it is the call's plain result.
pub(super) fn read_created(result: &mut JsonObject) -> Option<TaskState> {
    // A server may also run the call at once. Then `task` is missing, and this is its result.
    let mut task = result.get_object("task")?;
    let read = extract_task(&mut task, &TIME_MEMBERS)?;
    result.remove("task");
    Some(read)
}

/// Reads a result that is a task itself.
pub(super) fn read_state(result: &mut JsonObject) -> Option<TaskState> {
    extract_task(result, &TIME_MEMBERS)
}

/// Method of the notification with a task's status. Servers may omit it, and it belongs to no call.
pub(super) const STATUS_METHOD: &str = "notifications/tasks/status";

/// Reads the task from a notification with its status.
pub(super) fn read_status(notification: &RpcNotification) -> Option<TaskState> {
    // 2025-11-25/basic/utilities/tasks.mdx, Task Status Notification: "Requestors MUST NOT rely on
    // receiving this notifications, as it is optional." So it only makes a status known sooner.
    if &*notification.method != STATUS_METHOD {
        return None;
    }
    extract_task(&mut notification.params.clone(), &TIME_MEMBERS)
}

/// Encodes the notification with a task's status.
pub(super) fn write_status(task: &TaskState) -> Bytes {
    encode_notification(
        STATUS_METHOD,
        &write_members(task, task.status, &TIME_MEMBERS),
    )
}

/// Writes the response to a call that became a task.
pub(super) fn write_created(outcome: &Outcome, task: &TaskState) -> JsonObject {
    let task = write_members(task, task.status, &TIME_MEMBERS);
    append_members(
        JsonObject::new().with("task", task.to_raw()),
        &outcome.result,
    )
}

/// Writes a task as a separate result.
pub(super) fn write_state(outcome: &Outcome, task: &TaskState) -> JsonObject {
    append_members(
        write_members(task, status(task), &TIME_MEMBERS),
        &outcome.result,
    )
}

/// Returns the status in this revision. A tool call with `isError` is completed in 2026-07-28, but
/// failed here.
///
/// "`failed`: […] For tool calls specifically, this includes cases where the tool call result has
/// `isError` set to true."
fn status(task: &TaskState) -> TaskStatus {
    match (&task.outcome, task.status) {
        (Some(Ok(end)), TaskStatus::Completed) if is_error_result(end) => TaskStatus::Failed,
        (_, status) => status,
    }
}

fn is_error_result(result: &RawJson) -> bool {
    result
        .as_object()
        .is_some_and(|result| result.is_true("isError"))
}

/// Returns the task that a message names.
pub(crate) fn task_of(params: &JsonObject) -> Option<ByteString> {
    let meta = params.get("_meta")?;
    // A cheap search first: most messages have no such key and are not parsed.
    memchr::memmem::find(meta.bytes(), RELATED_TASK.as_bytes())?;
    meta.as_object()?
        .get_object(RELATED_TASK)?
        .get_string("taskId")
}

/// Removes the task id from a message, since it is local to one hop.
pub(crate) fn untag_task(object: &mut JsonObject) {
    // A search of the bytes first: every message passes here, and few belong to a task.
    let named = object
        .get("_meta")
        .is_some_and(|m| memchr::memmem::find(m.bytes(), RELATED_TASK.as_bytes()).is_some());
    let Some(mut meta) = object.get_object("_meta").filter(|_| named) else {
        return;
    };
    meta.remove(RELATED_TASK);
    if meta.is_empty() {
        object.remove("_meta");
    } else {
        object.set(ByteString::literal("_meta"), meta.to_raw());
    }
}

/// Writes a task id into a message.
pub(super) fn tag_task(object: &mut JsonObject, id: &str) {
    let mut meta = object.get_object("_meta").unwrap_or_default();
    meta.set(
        ByteString::literal(RELATED_TASK),
        JsonObject::new()
            .with("taskId", RawJson::string(id))
            .to_raw(),
    );
    object.set(ByteString::literal("_meta"), meta.to_raw());
}

/// Builds the error for cancelling a finished task.
///
/// "Attempt to cancel a task already in a terminal status: `-32602` (Invalid params)".
pub(crate) fn terminal_error(status: TaskStatus) -> Error {
    let message = format!(
        "Cannot cancel task: already in terminal status '{}'",
        status.name()
    );
    Error::new(McpErrorKind::InvalidParams, message)
}
