//! Finished tasks whose results the gateway itself keeps, for clients that asked for a task of a
//! plain call.
//!
//! Owns the answers to requests about them. Does not store the results (`session`). Invariant: such
//! a task is finished before its client can ask for it.

use crate::legacy::tasks;
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{Error, McpMethod, Outcome, Principal, TaskMethod, TaskState, TaskStatus};
use moongate_session::{TaskResult, TaskResults};

/// Serves a request about a task whose result the gateway itself keeps. `None` for all other tasks.
pub(crate) fn serve_task_method(
    results: &TaskResults,
    principal: &Principal,
    method: &McpMethod,
    params: &JsonObject,
) -> Option<Result<JsonObject, Error>> {
    let McpMethod::Task(method) = method else {
        return None;
    };
    let ended = results.find(principal, &params.get_string("taskId")?)?;
    let task = task_state(&ended);
    Some(match method {
        TaskMethod::Get => Ok(tasks::write_state(&Outcome::default(), &task)),
        TaskMethod::Result => {
            let mut result = ended.result;
            tasks::tag_task(&mut result, &ended.id);
            Ok(result)
        }
        _ => Err(tasks::terminal_error(task.status)),
    })
}

/// Returns the state of a task that is finished and whose result the gateway keeps.
pub(crate) fn task_state(ended: &TaskResult) -> TaskState {
    let failed = ended.result.is_true("isError");
    let keep = u64::try_from(TaskResults::KEEP.as_millis()).unwrap_or(u64::MAX);
    TaskState {
        id: ended.id.clone(),
        status: if failed {
            TaskStatus::Failed
        } else {
            TaskStatus::Completed
        },
        ttl: Some(RawJson::number(keep)),
        // Milliseconds. The task is finished already, so its first poll shows the end.
        poll_interval: Some(RawJson::number(100)),
        other_members: JsonObject::new()
            .with("createdAt", RawJson::string(&ended.finished_at))
            .with("lastUpdatedAt", RawJson::string(&ended.finished_at)),
        input_requests: Vec::new(),
        outcome: None,
    }
}
