//! Tasks of a legacy client: what it may ask of them, and how their answers become its spelling's.

use crate::json::{Object, Raw, Text};
use crate::model::{Error, Method, Outcome, Principal, Question, Reason, Task, TaskMethod, TaskStatus, TaskWish};
use crate::revision::legacy::{profile, tasks};
use crate::session::{Ended, Finished};

/// What one request has to do with tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasking {
    /// The call must become a task.
    pub(super) wish: TaskWish,
    /// The task whose end is waited for, by the client's name for it.
    pub(super) awaited: Option<Text>,
}

/// What a request asks of tasks. Fails where the session's revision has none. `offered`: whether the endpoint has any.
///
/// 2025-11-25/basic/utilities/tasks.mdx: "Receivers that do not declare the task capability for a request type MUST
/// process requests of that type normally, ignoring any task-augmentation metadata if present."
pub(super) fn read(
    revision: &str,
    method: &Method,
    params: &mut Object,
    offered: impl Fn() -> bool,
) -> Result<Tasking, Error> {
    let has_tasks = || profile(revision).is_some_and(|profile| profile.tasks);
    match method {
        Method::Task(TaskMethod::Answer) => Err(unknown(method)),
        Method::Task(_) if !has_tasks() => Err(unknown(method)),
        Method::Task(TaskMethod::End) => Ok(Tasking { awaited: params.text("taskId"), ..Tasking::default() }),
        Method::CallTool => {
            let wish = params.remove("task").and_then(|raw| raw.as_object()).filter(|_| has_tasks() && offered());
            Ok(Tasking { wish: wish.map_or(TaskWish::Never, TaskWish::Must), ..Tasking::default() })
        }
        // Which tools may run as tasks is told to whom it is of use.
        Method::List(crate::model::Kind::Tools) if has_tasks() => {
            Ok(Tasking { wish: TaskWish::May, ..Tasking::default() })
        }
        _ => Ok(Tasking::default()),
    }
}

fn unknown(method: &Method) -> Error {
    Error::new(Reason::UnknownMethod, format!("Method not found: {}", method.name()))
}

impl Tasking {
    fn must(&self) -> bool {
        matches!(self.wish, TaskWish::Must(_))
    }

    /// How the end of the request is spelled where it fails: a call that must become a task has no tool's result.
    pub(super) fn fails_as(&self, method: &Method) -> Method {
        if self.must() { Method::Task(TaskMethod::State) } else { method.clone() }
    }

    /// The end in the spelling of this revision.
    pub(super) fn end(&self, method: &Method, end: Result<Outcome, Error>, kept: impl Fn(Object) -> Ended) -> End {
        let mut outcome = end?;
        if let Some(id) = &self.awaited {
            // "The `tasks/result` operation MUST include this metadata in its response".
            tasks::relate(&mut outcome.result, id);
        }
        let result = match (&outcome.task, method) {
            (Some(task), Method::CallTool) => tasks::write_created(&outcome, task),
            (Some(task), _) => tasks::write_state(&outcome, task),
            (None, _) if self.must() => {
                let task = Task { status: TaskStatus::Working, ..self::task(&kept(outcome.result)) };
                // "Tasks MUST begin in the `working` status when created."
                tasks::write_created(&Outcome::default(), &task)
            }
            (None, _) => outcome.result,
        };
        Ok(Outcome { cache: outcome.cache, ..Outcome::of(result) })
    }

    /// A question that a task asks, as the client must get it: related to the task.
    pub(super) fn question(&self, mut question: Question) -> Question {
        if let Some(id) = &self.awaited {
            tasks::relate(&mut question.params, id);
        }
        question
    }
}

type End = Result<Outcome, Error>;

/// A request about a task that the gateway itself keeps the end of; `None` if it is none of those.
pub(super) fn kept(
    finished: &Finished,
    principal: &Principal,
    method: &Method,
    params: &Object,
) -> Option<Result<Object, Error>> {
    let Method::Task(method) = method else { return None };
    let ended = finished.find(principal, &params.text("taskId")?)?;
    let task = task(&ended);
    Some(match method {
        TaskMethod::State => Ok(tasks::write_state(&Outcome::default(), &task)),
        TaskMethod::End => {
            let mut result = ended.result;
            tasks::relate(&mut result, &ended.id);
            Ok(result)
        }
        _ => Err(tasks::already(task.status)),
    })
}

fn task(ended: &Ended) -> Task {
    let failed = ended.result.get("isError").is_some_and(|v| &v.bytes()[..] == b"true");
    let keep = u64::try_from(Finished::KEEP.as_millis()).unwrap_or(u64::MAX);
    Task {
        id: ended.id.clone(),
        status: if failed { TaskStatus::Failed } else { TaskStatus::Completed },
        ttl: Some(Raw::number(keep)),
        poll: Some(Raw::number(100)),
        rest: Object::new().with("createdAt", Raw::string(&ended.at)).with("lastUpdatedAt", Raw::string(&ended.at)),
        questions: Vec::new(),
        end: None,
    }
}
