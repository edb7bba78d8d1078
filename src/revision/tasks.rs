//! Tasks, as far as their spellings agree: one level of a task read and written with its revision's words for times.

use crate::json::{Object, Raw, Text};
use crate::model::{Task, TaskStatus};

/// What a revision calls the members that hold times.
pub(super) struct Words {
    /// For how long the task is kept.
    pub(super) ttl: &'static str,
    /// How often to look at it.
    pub(super) poll: &'static str,
}

/// Takes a task out of a result; what stands around it stays. `None`: there is none.
pub(super) fn take(result: &mut Object, words: &Words) -> Option<Task> {
    let id = result.text("taskId")?;
    let status = TaskStatus::from_name(&result.text("status")?)?;
    let meta = result.remove("_meta");
    let mut rest = std::mem::take(result);
    if let Some(meta) = meta {
        result.set(Text::literal("_meta"), meta);
    }
    rest.remove("taskId");
    rest.remove("status");
    let (ttl, poll) = (rest.remove(words.ttl), rest.remove(words.poll));
    Some(Task { id, status, ttl, poll, rest, questions: Vec::new(), end: None })
}

/// The task's own members, `status` as it is given.
pub(super) fn members(task: &Task, status: TaskStatus, words: &Words) -> Object {
    let mut object =
        Object::new().with("taskId", Raw::string(&task.id)).with("status", Raw::string(TaskStatus::name(status)));
    for (key, value) in task.rest.iter() {
        object.set(key.clone(), value.clone());
    }
    // In both spellings the time to live MUST be there, and may be `null`.
    object.set(Text::literal(words.ttl), task.ttl.clone().unwrap_or(Raw::NULL));
    if let Some(poll) = &task.poll {
        object.set(Text::literal(words.poll), poll.clone());
    }
    object
}

/// Puts what stands around a task behind its members.
pub(super) fn join(mut task: Object, around: &Object) -> Object {
    for (key, value) in around.iter() {
        task.set(key.clone(), value.clone());
    }
    task
}

/// How tools say whether they run as tasks (2025-11-25/basic/utilities/tasks.mdx, Tool-Level Negotiation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Support {
    Forbidden,
    Optional,
    Required,
}

/// "If `execution.taskSupport` is not present or `"forbidden"`, clients MUST NOT attempt to invoke the tool as a task."
pub(super) fn support(definition: Option<&Object>) -> Support {
    let execution = definition.and_then(|tool| tool.object("execution"));
    match execution.and_then(|execution| execution.text("taskSupport")).as_deref() {
        Some("optional") => Support::Optional,
        Some("required") => Support::Required,
        _ => Support::Forbidden,
    }
}

/// The tool, listed as one that may run as a task; `None` if it says so itself, or says that it may not.
pub(super) fn offered(definition: &Raw) -> Option<Raw> {
    let mut tool = definition.as_object()?;
    let mut execution = match tool.get("execution") {
        None => Object::new(),
        Some(raw) => raw.as_object()?,
    };
    if execution.get("taskSupport").is_some() {
        return None;
    }
    execution.set(Text::literal("taskSupport"), Raw::literal("\"optional\""));
    tool.set(Text::literal("execution"), execution.raw());
    Some(tool.raw())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const WORDS: Words = Words { ttl: "ttl", poll: "pollInterval" };

    fn object(json: &str) -> Object {
        Object::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap()
    }

    #[test]
    fn a_task_comes_out_as_it_went_in() {
        let json = r#"{"taskId":"a","status":"working","createdAt":"x","x-more":1.0,"ttl":null,"pollInterval":5}"#;
        let mut result = object(json);
        result.set(Text::literal("_meta"), Raw::literal("{\"k\":1}"));
        let task = take(&mut result, &WORDS).unwrap();
        assert_eq!(&result.bytes()[..], br#"{"_meta":{"k":1}}"#);
        assert_eq!((task.id.as_str(), task.status), ("a", TaskStatus::Working));
        assert_eq!(task.pause().as_millis(), 50, "no faster than that");
        assert_eq!(members(&task, task.status, &WORDS).bytes(), Bytes::from_static(json.as_bytes()));
        for none in [r#"{"status":"working"}"#, r#"{"taskId":"a"}"#, r#"{"taskId":"a","status":"odd"}"#] {
            assert!(take(&mut object(none), &WORDS).is_none(), "{none}");
        }
    }

    #[test]
    fn tools_are_offered_unless_they_say_otherwise() {
        let plain = Raw::literal(r#"{"name":"a"}"#);
        let want = br#"{"name":"a","execution":{"taskSupport":"optional"}}"#;
        assert_eq!(&offered(&plain).unwrap().bytes()[..], want);
        assert_eq!(offered(&Raw::literal(r#"{"execution":{"taskSupport":"forbidden"}}"#)), None);
        assert_eq!(support(None), Support::Forbidden);
        let of = |word: &str| support(Some(&object(&format!(r#"{{"execution":{{"taskSupport":"{word}"}}}}"#))));
        assert_eq!(
            [of("optional"), of("required"), of("x")],
            [Support::Optional, Support::Required, Support::Forbidden]
        );
    }
}
