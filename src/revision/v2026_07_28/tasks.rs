//! Tasks as the extension `io.modelcontextprotocol/tasks` spells them (SEP-2663): pure functions.

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{RpcError, code};
use crate::model::{AskKind, Error, Method, Outcome, Question, Reason, Task, TaskFeatures, TaskMethod};
use crate::revision::tasks::{Words, join, members, take};
use crate::revision::v2026_07_28::{MISSING_CAPABILITY, RETIRED};

/// The extension's name.
pub(in crate::revision) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

const WORDS: Words = Words { ttl: "ttlMs", poll: "pollIntervalMs" };

/// Whether capabilities, a client's or a server's, hold the extension.
pub(super) fn declared(capabilities: &Raw) -> bool {
    memchr::memmem::find(capabilities.bytes(), EXTENSION.as_bytes()).is_some()
        && capabilities
            .as_object()
            .and_then(|c| c.object("extensions"))
            .is_some_and(|e| e.get(EXTENSION).is_some_and(Raw::is_object))
}

/// What a server with these capabilities can do with tasks.
pub(super) fn features(capabilities: &Object) -> Option<TaskFeatures> {
    declared(&capabilities.raw()).then_some(TaskFeatures { list: false, cancel: true, any_tool: true })
}

/// The capabilities of a client of another revision, with the extension or without it.
///
/// SEP-2663, Backward Compatibility: "This extension is not defined under the `2025-11-25` protocol version": what such
/// a client says of it, or of the tasks of its own revision, is not passed on.
pub(in crate::revision) fn declare(capabilities: &Raw, on: bool) -> Raw {
    if !on && memchr::memmem::find(capabilities.bytes(), b"tasks").is_none() {
        return capabilities.clone();
    }
    let mut all = capabilities.as_object().unwrap_or_default();
    all.remove("tasks");
    let mut extensions = all.object("extensions").unwrap_or_default();
    extensions.remove(EXTENSION);
    if on {
        extensions.set(Text::literal(EXTENSION), Raw::literal("{}"));
    }
    if extensions.is_empty() {
        all.remove("extensions");
    } else {
        all.set(Text::literal("extensions"), extensions.raw());
    }
    all.raw()
}

/// The `extensions` of a server that has tasks, and these others.
pub(super) fn extensions(others: &Object) -> Raw {
    others.clone().with(EXTENSION, Raw::literal("{}")).raw()
}

/// "Servers MUST return this error for non-declaring clients issuing `tasks/get`, `tasks/update`, and `tasks/cancel`
/// requests", and for those that ask for the states of tasks on a stream.
pub(super) fn missing() -> Error {
    let required = Object::new().with("extensions", extensions(&Object::new()));
    let data = Object::new().with("requiredCapabilities", required.raw());
    let message = format!("Missing required client capability: the extension {EXTENSION}");
    Error::new(Reason::MissingCapability, message).with_data(data.raw())
}

/// Whether a server says that it can run a call only as a task: it never ran it, then.
pub(super) fn is_required(error: &Error) -> bool {
    match &error.reason {
        Reason::Answered(RpcError { code: MISSING_CAPABILITY, data: Some(data), .. }) => {
            let required = data.as_object().and_then(|data| data.get("requiredCapabilities").cloned());
            required.is_some_and(|capabilities| declared(&capabilities))
        }
        _ => false,
    }
}

/// Reads the task that a result is; the inlined parts are read too. Fails in words.
pub(super) fn read(result: &mut Object) -> Result<Task, &'static str> {
    let mut task = take(result, &WORDS).ok_or("it has no taskId, or no status that is known")?;
    if let Some(asked) = task.rest.remove("inputRequests") {
        task.questions = questions(&asked)?;
    }
    task.end = match (task.rest.remove("result"), task.rest.remove("error")) {
        (Some(result), _) => Some(Ok(result)),
        (None, Some(error)) => Some(Err(error)),
        (None, None) => None,
    };
    Ok(task)
}

/// Reads what a server asks.
pub(super) fn questions(asked: &Raw) -> Result<Vec<(Text, Question)>, &'static str> {
    let asked = asked.as_object().ok_or("inputRequests is no object")?;
    let mut questions = Vec::new();
    for (key, request) in asked.iter() {
        let request = request.as_object();
        let (request, method) =
            request.and_then(|r| r.text("method").map(|m| (r, m))).ok_or("an input request has no method")?;
        let params = request.object("params").unwrap_or_default();
        questions.push((key.clone(), Question { kind: AskKind::of(&method, &params), method, params }));
    }
    Ok(questions)
}

/// Writes what a server asks.
pub(super) fn write_questions<'a>(questions: impl Iterator<Item = (&'a Text, &'a Question)>) -> Raw {
    let mut map = Object::new();
    for (key, question) in questions {
        let mut request = Object::new().with("method", Raw::string(&question.method));
        if !question.params.is_empty() {
            request.set(Text::literal("params"), question.params.raw());
        }
        map.set(key.clone(), request.raw());
    }
    map.raw()
}

/// A task with all its parts: a `DetailedTask`.
pub(super) fn detailed(task: &Task) -> Object {
    let mut object = members(task, task.status, &WORDS);
    if !task.questions.is_empty() {
        object.set(
            Text::literal("inputRequests"),
            write_questions(task.questions.iter().map(|(key, question)| (key, question))),
        );
    }
    match &task.end {
        Some(Ok(result)) => object.set(Text::literal("result"), result.clone()),
        Some(Err(error)) => object.set(Text::literal("error"), emitted(error)),
        None => {}
    }
    object
}

/// An error as this revision may emit it, inside a task as everywhere.
fn emitted(error: &Raw) -> Raw {
    let retired = |error: &Object| error.get("code").and_then(|c| c.read().ok()).is_some_and(|c| RETIRED.contains(&c));
    match error.as_object() {
        Some(mut object) if retired(&object) => {
            object.set(Text::literal("code"), Raw::of(&code::INVALID_PARAMS));
            object.raw()
        }
        _ => error.clone(),
    }
}

/// The result of a call that became a task, or was about one.
pub(super) fn result(method: &Method, outcome: Outcome) -> Object {
    match (method, &outcome.task) {
        (Method::CallTool, Some(task)) => {
            let created = Object::new().with("resultType", Raw::literal("\"task\""));
            join(join(created, &members(task, task.status, &WORDS)), &outcome.result)
        }
        // "On success, the server MUST acknowledge the request with an empty result."
        (Method::Task(TaskMethod::Answer | TaskMethod::Cancel), _) => Object::new(),
        (_, Some(task)) => join(detailed(task), &outcome.result),
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
            (r#"{"tasks":{"list":{}},"roots":{}}"#, false, r#"{"roots":{}}"#),
            (r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#, false, "{}"),
            (r#"{"extensions":{"x":{},"io.modelcontextprotocol/tasks":{}}}"#, false, r#"{"extensions":{"x":{}}}"#),
            ("{}", true, r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
        ];
        for (given, on, want) in table {
            let got = declare(&Raw::literal(given), on);
            assert_eq!(got.bytes(), want.as_bytes(), "{given}");
            assert_eq!(declared(&got), on);
        }
        assert!(!declared(&Raw::literal(r#"{"x":"io.modelcontextprotocol/tasks"}"#)));
    }

    #[test]
    fn a_detailed_task_comes_out_as_it_went_in() {
        let json = r#"{"taskId":"a","status":"input_required","createdAt":"x","ttlMs":5,"pollIntervalMs":7,"inputRequests":{"k":{"method":"elicitation/create","params":{"n":1.0}}}}"#;
        let task = read(&mut Object::parse(Bytes::from_static(json.as_bytes())).unwrap()).unwrap();
        assert_eq!(detailed(&task).bytes(), Bytes::from_static(json.as_bytes()));
        assert_eq!(task.questions[0].1.kind, AskKind::ElicitForm);
        let wrong = r#"{"taskId":"a","status":"input_required","inputRequests":[]}"#;
        assert!(read(&mut Object::parse(Bytes::from_static(wrong.as_bytes())).unwrap()).is_err());
        let failed = r#"{"taskId":"a","status":"failed","ttlMs":null,"error":{"code":-32002,"message":"no"}}"#;
        let task = read(&mut Object::parse(Bytes::from_static(failed.as_bytes())).unwrap()).unwrap();
        assert_eq!(
            detailed(&task).bytes(),
            failed.replace("-32002", "-32602").as_bytes(),
            "a code of revisions before"
        );
    }

    #[test]
    fn only_a_task_that_is_needed_counts_as_needed() {
        let error = |code, data| Error::answered(RpcError { code, message: "".into(), data: Some(Raw::literal(data)) });
        let tasks = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        assert!(is_required(&error(MISSING_CAPABILITY, tasks)));
        assert!(!is_required(&error(-32602, tasks)));
        assert!(!is_required(&error(MISSING_CAPABILITY, r#"{"requiredCapabilities":{"sampling":{}}}"#)));
    }
}
