//! Task augmentation of a legacy client's request, and the conversion of results to its revision.
//!
//! Owns the rules for task parameters (2025-11-25/basic/utilities/tasks.mdx). Does not poll servers
//! or keep results (`gateway_tasks.rs`). Invariant: a client whose revision has no tasks never gets
//! one.

use crate::legacy::downstream::gateway_tasks;
use crate::legacy::profile::profile;
use crate::legacy::tasks;
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::{
    Error, InputRequest, McpErrorKind, McpMethod, Outcome, TaskMethod, TaskMode, TaskState,
    TaskStatus,
};
use moongate_session::TaskResult;

/// Task augmentation of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskAugmentation {
    /// Mode of the call: required if the client wants a task.
    pub(crate) mode: TaskMode,
    /// Task whose result is awaited, by the client's name for it.
    pub(crate) awaited_task: Option<ByteString>,
}

/// Takes the task augmentation out of a request. `offered` returns true if the endpoint has tasks.
///
/// Fails if the session's revision has no tasks.
///
/// 2025-11-25/basic/utilities/tasks.mdx: "Receivers that do not declare the task capability for a
/// request type MUST process requests of that type normally, ignoring any task-augmentation
/// metadata if present."
pub(crate) fn take_augmentation(
    revision: &str,
    method: &McpMethod,
    params: &mut JsonObject,
    offered: impl Fn() -> bool,
) -> Result<TaskAugmentation, Error> {
    match method {
        // `tasks/update` belongs to the extension of 2026-07-28. No legacy revision has it.
        McpMethod::Task(TaskMethod::Update) => Err(unknown_method(method)),
        McpMethod::Task(_) if !has_tasks(revision) => Err(unknown_method(method)),
        McpMethod::Task(TaskMethod::Result) => Ok(TaskAugmentation {
            awaited_task: params.get_string("taskId"),
            ..TaskAugmentation::default()
        }),
        McpMethod::CallTool => {
            let task_params = params
                .remove("task")
                .and_then(|raw| raw.as_object())
                .filter(|_| has_tasks(revision) && offered());
            Ok(TaskAugmentation {
                mode: task_params.map_or(TaskMode::Never, TaskMode::Required),
                ..TaskAugmentation::default()
            })
        }
        // The marks of tools that may run as tasks go to clients that can use them.
        McpMethod::List(moongate_model::ItemKind::Tools) if has_tasks(revision) => {
            Ok(TaskAugmentation {
                mode: TaskMode::Allowed,
                ..TaskAugmentation::default()
            })
        }
        _ => Ok(TaskAugmentation::default()),
    }
}

fn has_tasks(revision: &str) -> bool {
    profile(revision).is_some_and(|profile| profile.tasks)
}

fn unknown_method(method: &McpMethod) -> Error {
    Error::new(
        McpErrorKind::UnknownMethod,
        format!("Method not found: {}", method.name()),
    )
}

impl TaskAugmentation {
    fn is_required(&self) -> bool {
        matches!(self.mode, TaskMode::Required(_))
    }

    /// Returns the method that decides the wire form of a failure. A call that must become a task
    /// has no tool result.
    pub(crate) fn error_method(&self, method: &McpMethod) -> McpMethod {
        if self.is_required() {
            McpMethod::Task(TaskMethod::Get)
        } else {
            method.clone()
        }
    }

    /// Converts the end of the request to this revision.
    pub(crate) fn finish(
        &self,
        method: &McpMethod,
        end: Result<Outcome, Error>,
        store: impl Fn(JsonObject) -> TaskResult,
    ) -> Result<Outcome, Error> {
        let mut outcome = end?;
        if let Some(id) = &self.awaited_task {
            // "The `tasks/result` operation MUST include this metadata in its response".
            tasks::tag_task(&mut outcome.result, id);
        }
        let result = match (&outcome.task, method) {
            (Some(task), McpMethod::CallTool) => tasks::write_created(&outcome, task),
            (Some(task), _) => tasks::write_state(&outcome, task),
            (None, _) if self.is_required() => {
                let task = TaskState {
                    status: TaskStatus::Working,
                    ..gateway_tasks::task_state(&store(outcome.result))
                };
                // "Tasks MUST begin in the `working` status when created."
                tasks::write_created(&Outcome::default(), &task)
            }
            (None, _) => outcome.result,
        };
        Ok(Outcome {
            cache_hint: outcome.cache_hint,
            ..Outcome::from_result(result)
        })
    }

    /// Relates a task's input request to the task, as the client must get it.
    pub(crate) fn tag_request(&self, mut input_request: InputRequest) -> InputRequest {
        if let Some(id) = &self.awaited_task {
            tasks::tag_task(&mut input_request.params, id);
        }
        input_request
    }
}
