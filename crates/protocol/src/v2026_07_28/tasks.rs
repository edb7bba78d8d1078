//! Tasks in the wire form of the extension `io.modelcontextprotocol/tasks` (SEP-2663).
//!
//! Owns the members of a task and the extension's capability. Pure functions without state.
//! Invariant: the outcome of a task keeps its bytes.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::tasks::{TimeMembers, append_members, extract_task, write_members};
use crate::v2026_07_28::error_codes::MISSING_CAPABILITY;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::RpcError;
use moongate_model::{
    Error, InputKind, InputRequest, McpErrorKind, McpMethod, Outcome, TaskCapabilities, TaskMethod,
    TaskState,
};

/// Identifier of the extension.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

const TIME_MEMBERS: TimeMembers = TimeMembers {
    ttl: "ttlMs",
    poll: "pollIntervalMs",
};

/// Searches prepared once: they run for each request.
static EXTENSION_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(EXTENSION));
static TASKS_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("tasks"));

/// True if the capabilities of a client or a server contain the extension.
pub(super) fn is_declared(capabilities: &RawJson) -> bool {
    // A search of the bytes first: this runs for each request, and most clients do not name the
    // extension.
    EXTENSION_FINDER.find(capabilities.bytes()).is_some()
        && capabilities
            .as_object()
            .and_then(|c| c.get_object("extensions"))
            .is_some_and(|e| e.get(EXTENSION).is_some_and(RawJson::is_object))
}

/// Reads a server's task capabilities.
pub(super) fn read_capability(capabilities: &JsonObject) -> Option<TaskCapabilities> {
    // The extension has no list of tasks, and the server alone decides which calls become tasks.
    is_declared(&capabilities.to_raw()).then_some(TaskCapabilities {
        list: false,
        cancel: true,
        any_tool: true,
    })
}

/// Sets or removes the extension in the capabilities of a client of another revision.
///
/// SEP-2663, Backward Compatibility: "This extension is not defined under the `2025-11-25` protocol
/// version". So such a client's own words about it, or about the tasks of its revision, are not
/// passed on.
pub(crate) fn set_declared(capabilities: &RawJson, on: bool) -> RawJson {
    // Most clients have no tasks at all. Their bytes are shared and not written again.
    if !on && TASKS_FINDER.find(capabilities.bytes()).is_none() {
        return capabilities.clone();
    }
    let mut all = capabilities.as_object().unwrap_or_default();
    all.remove("tasks");
    let mut extensions = all.get_object("extensions").unwrap_or_default();
    extensions.remove(EXTENSION);
    if on {
        extensions.set(ByteString::literal(EXTENSION), RawJson::literal("{}"));
    }
    if extensions.is_empty() {
        all.remove("extensions");
    } else {
        all.set(ByteString::literal("extensions"), extensions.to_raw());
    }
    all.to_raw()
}

/// Builds the `extensions` of a server that has tasks, together with `others`.
pub(super) fn extensions(others: &JsonObject) -> RawJson {
    others
        .clone()
        .with(EXTENSION, RawJson::literal("{}"))
        .to_raw()
}

/// Builds the error for clients that did not declare the extension.
///
/// "Servers MUST return this error for non-declaring clients issuing `tasks/get`, `tasks/update`,
/// and `tasks/cancel` requests". The gateway returns it for task subscriptions, too.
pub(super) fn missing_capability() -> Error {
    let required = JsonObject::new().with("extensions", extensions(&JsonObject::new()));
    let data = JsonObject::new().with("requiredCapabilities", required.to_raw());
    let message = format!("Missing required client capability: the extension {EXTENSION}");
    Error::new(McpErrorKind::MissingCapability, message).with_data(data.to_raw())
}

/// True if the error says that a call can run only as a task. The server never ran that call.
pub(super) fn is_required(error: &Error) -> bool {
    match &error.kind {
        McpErrorKind::ServerError(RpcError {
            code: MISSING_CAPABILITY,
            data: Some(data),
            ..
        }) => {
            let required = data
                .as_object()
                .and_then(|data| data.get("requiredCapabilities").cloned());
            required.is_some_and(|capabilities| is_declared(&capabilities))
        }
        _ => false,
    }
}

/// Reads a result that is a task, with its inlined parts. Fails with a reason.
pub(super) fn read_task(result: &mut JsonObject) -> Result<TaskState, &'static str> {
    let mut task =
        extract_task(result, &TIME_MEMBERS).ok_or("it has no taskId or no known status")?;
    if let Some(asked) = task.other_members.remove("inputRequests") {
        task.input_requests = read_input_requests(&asked)?;
    }
    task.outcome = match (
        task.other_members.remove("result"),
        task.other_members.remove("error"),
    ) {
        (Some(result), _) => Some(Ok(result)),
        (None, Some(error)) => Some(Err(error)),
        (None, None) => None,
    };
    Ok(task)
}

/// Reads a server's input requests.
pub(super) fn read_input_requests(
    asked: &RawJson,
) -> Result<Vec<(ByteString, InputRequest)>, &'static str> {
    let asked = asked.as_object().ok_or("inputRequests is not an object")?;
    let mut questions = Vec::new();
    for (key, request) in asked.iter() {
        let request = request.as_object();
        let (request, method) = request
            .and_then(|r| r.get_string("method").map(|m| (r, m)))
            .ok_or("an input request has no method")?;
        // `roots/list` has no parameters, so their absence is not an error.
        let params = request.get_object("params").unwrap_or_default();
        let kind = InputKind::classify(&method, &params);
        questions.push((
            key.clone(),
            InputRequest {
                kind,
                method,
                params,
                progress: None,
            },
        ));
    }
    Ok(questions)
}

/// Writes input requests.
pub(super) fn write_input_requests<'a>(
    questions: impl Iterator<Item = (&'a ByteString, &'a InputRequest)>,
) -> RawJson {
    let mut map = JsonObject::new();
    for (key, question) in questions {
        let mut request = JsonObject::new().with("method", RawJson::string(&question.method));
        if !question.params.is_empty() {
            request.set(ByteString::literal("params"), question.params.to_raw());
        }
        map.set(key.clone(), request.to_raw());
    }
    map.to_raw()
}

/// Writes a task with all its parts: a `DetailedTask`.
pub(super) fn write_detailed(task: &TaskState) -> JsonObject {
    let mut object = write_members(task, task.status, &TIME_MEMBERS);
    if !task.input_requests.is_empty() {
        object.set(
            ByteString::literal("inputRequests"),
            write_input_requests(
                task.input_requests
                    .iter()
                    .map(|(key, question)| (key, question)),
            ),
        );
    }
    match &task.outcome {
        Some(Ok(result)) => object.set(ByteString::literal("result"), result.clone()),
        Some(Err(error)) => object.set(ByteString::literal("error"), error.clone()),
        None => {}
    }
    object
}

/// Writes the result of a call that became a task, or was about one.
pub(super) fn write_result(method: &McpMethod, outcome: Outcome) -> JsonObject {
    match (method, &outcome.task) {
        (McpMethod::CallTool, Some(task)) => {
            let created = JsonObject::new().with("resultType", RawJson::literal("\"task\""));
            append_members(
                append_members(created, &write_members(task, task.status, &TIME_MEMBERS)),
                &outcome.result,
            )
        }
        // "On success, the server MUST acknowledge the request with an empty result."
        (McpMethod::Task(TaskMethod::Update | TaskMethod::Cancel), _) => JsonObject::new(),
        (_, Some(task)) => append_members(write_detailed(task), &outcome.result),
        (_, None) => outcome.result,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn another_revisions_words_for_tasks_are_not_passed_on() {
        let table = [
            (r#"{"sampling":{}}"#, false, r#"{"sampling":{}}"#),
            (
                r#"{"tasks":{"list":{}},"roots":{}}"#,
                false,
                r#"{"roots":{}}"#,
            ),
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
                false,
                "{}",
            ),
            (
                r#"{"extensions":{"x":{},"io.modelcontextprotocol/tasks":{}}}"#,
                false,
                r#"{"extensions":{"x":{}}}"#,
            ),
            (
                "{}",
                true,
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            ),
        ];
        for (given, on, want) in table {
            let got = set_declared(&RawJson::literal(given), on);
            assert_eq!(got.bytes(), want.as_bytes(), "{given}");
            assert_eq!(is_declared(&got), on);
        }
        assert!(!is_declared(&RawJson::literal(
            r#"{"x":"io.modelcontextprotocol/tasks"}"#
        )));
    }

    #[test]
    fn a_detailed_task_comes_out_as_it_went_in() {
        let json = r#"{"taskId":"a","status":"input_required","createdAt":"x","ttlMs":5,"pollIntervalMs":7,"inputRequests":{"k":{"method":"elicitation/create","params":{"n":1.0}}}}"#;
        let task = read_task(&mut JsonObject::parse(Bytes::from_static(json.as_bytes())).unwrap())
            .unwrap();
        assert_eq!(
            write_detailed(&task).bytes(),
            Bytes::from_static(json.as_bytes())
        );
        assert_eq!(task.input_requests[0].1.kind, InputKind::ElicitForm);
        let wrong = r#"{"taskId":"a","status":"input_required","inputRequests":[]}"#;
        assert!(
            read_task(&mut JsonObject::parse(Bytes::from_static(wrong.as_bytes())).unwrap())
                .is_err()
        );
        let failed = r#"{"taskId":"a","status":"failed","ttlMs":null,"error":{"code":-32002,"message":"no"}}"#;
        let task =
            read_task(&mut JsonObject::parse(Bytes::from_static(failed.as_bytes())).unwrap())
                .unwrap();
        assert_eq!(
            write_detailed(&task).bytes(),
            failed.as_bytes(),
            "its server's own code"
        );
    }

    fn error(code: i64, data: &'static str) -> Error {
        Error::from_server(RpcError {
            code,
            message: "".into(),
            data: Some(RawJson::literal(data)),
        })
    }

    #[test]
    fn only_a_task_that_is_needed_counts_as_needed() {
        let tasks =
            r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        assert!(is_required(&error(MISSING_CAPABILITY, tasks)));
        assert!(!is_required(&error(-32602, tasks)));
        assert!(!is_required(&error(
            MISSING_CAPABILITY,
            r#"{"requiredCapabilities":{"sampling":{}}}"#
        )));
    }
}
