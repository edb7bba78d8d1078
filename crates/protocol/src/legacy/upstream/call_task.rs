//! Task that a call on a legacy server creates, reads or awaits.
//!
//! Owns the translation of the task in results and messages. Does not await it (`call.rs`).
//! Invariant: a message about another task is never taken for the call's own.

use crate::legacy::tasks;
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::{Call, McpMethod, TaskMethod, TaskMode, TaskState};

/// Role of a task in one call.
pub(crate) struct CallTask {
    /// Task whose result the call awaits.
    pub(crate) awaited: Option<ByteString>,
    /// True if the call was sent as a task.
    is_created: bool,
}

impl CallTask {
    pub(crate) fn new(call: &Call) -> Self {
        let awaits = call.method == McpMethod::Task(TaskMethod::Result);
        CallTask {
            awaited: if awaits { call.target() } else { None },
            is_created: call.task_mode != TaskMode::Never,
        }
    }

    /// Returns true if a message about this task belongs to another call.
    pub(crate) fn is_other(&self, about: Option<&ByteString>) -> bool {
        about.is_some() && about != self.awaited.as_ref()
    }

    /// Removes the task from a message that arrives while the call awaits it.
    pub(crate) fn untag(&self, params: &mut JsonObject) {
        if self.awaited.is_some() {
            tasks::untag_task(params);
        }
    }

    /// Takes the task that a result is or contains. Fails if it has to be one and cannot be read.
    pub(crate) fn read_result(
        &self,
        method: &McpMethod,
        result: &mut JsonObject,
    ) -> Result<Option<TaskState>, &'static str> {
        match method {
            // A server that ignores the task parameter answers with the plain result.
            McpMethod::CallTool if self.is_created => Ok(tasks::read_created(result)),
            McpMethod::Task(TaskMethod::Get | TaskMethod::Cancel) => tasks::read_state(result)
                .map(Some)
                .ok_or("its task has no taskId or no known status"),
            McpMethod::Task(TaskMethod::Result) => {
                tasks::untag_task(result);
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}
