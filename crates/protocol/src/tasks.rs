//! Tasks, as far as their wire forms agree.
//!
//! Owns the reading and writing of one level of a task. Does not know the revisions' names for
//! times; callers pass them. Invariant: unknown members of a task pass unchanged.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{TaskState, TaskStatus};

/// Names of a revision's members that hold times.
pub(super) struct TimeMembers {
    /// Name of the time for which the task is kept.
    pub(super) ttl: &'static str,
    /// Name of the interval between polls.
    pub(super) poll: &'static str,
}

/// Extracts a task from a result. Members around it stay. `None` without a task.
pub(super) fn extract_task(result: &mut JsonObject, names: &TimeMembers) -> Option<TaskState> {
    let id = result.get_string("taskId")?;
    // A task with an unknown status doesn't count as one, because nobody could see whether it is
    // over.
    let status = TaskStatus::from_name(&result.get_string("status")?)?;
    let meta = result.remove("_meta");
    let mut members = std::mem::take(result);
    if let Some(meta) = meta {
        // `_meta` belongs to the response, not to the task.
        result.set(ByteString::literal("_meta"), meta);
    }
    // What stays in `members` passes to the client, under names that the gateway need not know.
    members.remove("taskId");
    members.remove("status");
    let ttl = members.remove(names.ttl);
    let poll = members.remove(names.poll);
    Some(TaskState {
        id,
        status,
        ttl,
        poll_interval: poll,
        other_members: members,
        input_requests: Vec::new(),
        outcome: None,
    })
}

/// Writes the task's own members with the given `status`.
pub(super) fn write_members(
    task: &TaskState,
    status: TaskStatus,
    names: &TimeMembers,
) -> JsonObject {
    let mut object = JsonObject::new()
        .with("taskId", RawJson::string(&task.id))
        .with("status", RawJson::string(TaskStatus::name(status)));
    for (key, value) in task.other_members.iter() {
        object.set(key.clone(), value.clone());
    }
    // In both wire forms the time to live MUST be there, and may be `null`.
    object.set(
        ByteString::literal(names.ttl),
        task.ttl.clone().unwrap_or(RawJson::NULL),
    );
    if let Some(poll) = &task.poll_interval {
        object.set(ByteString::literal(names.poll), poll.clone());
    }
    object
}

/// Appends the members around a task to its own.
pub(super) fn append_members(mut task: JsonObject, around: &JsonObject) -> JsonObject {
    for (key, value) in around.iter() {
        task.set(key.clone(), value.clone());
    }
    task
}

/// Support of a tool for tasks (2025-11-25/basic/utilities/tasks.mdx, Tool-Level Negotiation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskSupport {
    Forbidden,
    Optional,
    Required,
}

/// Reads a tool's support for tasks.
///
/// "If `execution.taskSupport` is not present or `"forbidden"`, clients MUST NOT attempt to invoke
/// the tool as a task."
pub(super) fn task_support(definition: Option<&JsonObject>) -> TaskSupport {
    let execution = definition.and_then(|tool| tool.get_object("execution"));
    match execution
        .and_then(|execution| execution.get_string("taskSupport"))
        .as_deref()
    {
        Some("optional") => TaskSupport::Optional,
        Some("required") => TaskSupport::Required,
        _ => TaskSupport::Forbidden,
    }
}

/// Returns the tool with the mark that it may run as a task. `None` if the tool has such a mark
/// already.
pub(super) fn offer_as_task(definition: &RawJson) -> Option<RawJson> {
    let mut tool = definition.as_object()?;
    let mut execution = match tool.get("execution") {
        None => JsonObject::new(),
        Some(raw) => raw.as_object()?,
    };
    // The server's own word stays, also where it forbids tasks.
    if execution.get("taskSupport").is_some() {
        return None;
    }
    execution.set(
        ByteString::literal("taskSupport"),
        RawJson::literal("\"optional\""),
    );
    tool.set(ByteString::literal("execution"), execution.to_raw());
    Some(tool.to_raw())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const WORDS: TimeMembers = TimeMembers {
        ttl: "ttl",
        poll: "pollInterval",
    };

    fn object(json: &str) -> JsonObject {
        JsonObject::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap()
    }

    #[test]
    fn a_task_comes_out_as_it_went_in() {
        let json = r#"{"taskId":"a","status":"working","createdAt":"x","x-more":1.0,"ttl":null,"pollInterval":5}"#;
        let mut result = object(json);
        result.set(ByteString::literal("_meta"), RawJson::literal("{\"k\":1}"));
        let task = extract_task(&mut result, &WORDS).unwrap();
        assert_eq!(&result.bytes()[..], br#"{"_meta":{"k":1}}"#);
        assert_eq!(task.id.as_str(), "a");
        assert_eq!(task.status, TaskStatus::Working);
        assert_eq!(task.poll_delay().as_millis(), 50, "no faster than that");
        assert_eq!(
            write_members(&task, task.status, &WORDS).bytes(),
            Bytes::from_static(json.as_bytes())
        );
        for none in [
            r#"{"status":"working"}"#,
            r#"{"taskId":"a"}"#,
            r#"{"taskId":"a","status":"odd"}"#,
        ] {
            assert!(extract_task(&mut object(none), &WORDS).is_none(), "{none}");
        }
    }

    fn support_of(word: &str) -> TaskSupport {
        task_support(Some(&object(&format!(
            r#"{{"execution":{{"taskSupport":"{word}"}}}}"#
        ))))
    }

    #[test]
    fn tools_are_offered_unless_they_say_otherwise() {
        let plain = RawJson::literal(r#"{"name":"a"}"#);
        let want = br#"{"name":"a","execution":{"taskSupport":"optional"}}"#;
        assert_eq!(&offer_as_task(&plain).unwrap().bytes()[..], want);
        assert_eq!(
            offer_as_task(&RawJson::literal(
                r#"{"execution":{"taskSupport":"forbidden"}}"#
            )),
            None
        );
        assert_eq!(task_support(None), TaskSupport::Forbidden);
        assert_eq!(
            [
                support_of("optional"),
                support_of("required"),
                support_of("x")
            ],
            [
                TaskSupport::Optional,
                TaskSupport::Required,
                TaskSupport::Forbidden
            ]
        );
    }
}
