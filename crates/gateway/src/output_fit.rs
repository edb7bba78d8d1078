//! Fit of tools' structured output to the schema that its client was listed.
//!
//! Owns what the tools of recent tasks were listed with. Does not know the forms
//! (`moongate_protocol::fit_output`). Invariant: a result is fitted by the route that its call
//! took, and by nothing that the catalogue learned since.

use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::call_route::CallRoute;
use crate::endpoint_context::EndpointContext;
use crate::running_server::RunningServer;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, McpMethod, Outcome, TaskMethod};
use moongate_protocol::{ListedOutput, OutputShape, fit_output};

/// Maximum number of tasks whose shape is kept. The oldest goes first, and its result is fitted by
/// its value alone.
const TASKS_MAX: usize = 1024;

/// Fit of one call's result.
pub(super) struct OutputFit {
    context: Arc<EndpointContext>,
    output: ListedOutput,
    client: &'static str,
}

impl OutputFit {
    /// Returns the fit of a call's result. `None`: it has no structured output.
    pub(super) fn of(
        context: &Arc<EndpointContext>,
        route: &CallRoute,
        caller: &Caller,
        method: &McpMethod,
    ) -> Option<Self> {
        let has_output = matches!(
            method,
            McpMethod::CallTool | McpMethod::Task(TaskMethod::Result)
        );
        // The common case has nothing to fit: a modern client of a tool that gives objects.
        let is_plain = route.output.shape == OutputShape::Object
            && !moongate_protocol::holds_objects_only(caller.revision);
        (has_output && !is_plain).then(|| OutputFit {
            context: context.clone(),
            output: route.output,
            client: caller.revision,
        })
    }

    /// Fits the end of the call. `answered` is the revision of its connection.
    pub(super) fn fit(
        &self,
        outcome: &mut Outcome,
        server: &RunningServer,
        answered: &'static str,
    ) {
        if let Some(task) = &outcome.task {
            self.context
                .task_outputs
                .record(&server.name, &task.id, self.output);
        }
        fit_output(self.client, self.output, answered, &mut outcome.result);
    }
}

/// Outputs that the tools of recent tasks were listed with.
#[derive(Default)]
pub(super) struct TaskOutputs(Mutex<VecDeque<(u64, ListedOutput)>>);

impl TaskOutputs {
    fn record(&self, server: &str, task: &ByteString, output: ListedOutput) {
        // Nearly all tools give objects, and need no entry.
        if output.shape == OutputShape::Object {
            return;
        }
        let mut recent = self.0.lock();
        if recent.len() >= TASKS_MAX {
            recent.pop_front();
        }
        recent.push_back((key(server, task), output));
    }

    /// Returns what the tool of a task was listed with, by the server's own id of the task.
    pub(super) fn output_of(&self, server: &str, task: &ByteString) -> ListedOutput {
        let key = key(server, task);
        let recent = self.0.lock();
        recent
            .iter()
            .find(|(known, _)| *known == key)
            .map_or_else(ListedOutput::default, |(_, output)| *output)
    }
}

/// Returns a digest, so that long ids of a server take no memory.
fn key(server: &str, task: &ByteString) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((server, task.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_tasks_are_bounded() {
        let outputs = TaskOutputs::default();
        let listed = ListedOutput {
            shape: OutputShape::Value,
            era: None,
        };
        for n in 0..TASKS_MAX + 10 {
            outputs.record("a", &ByteString::from(format!("t{n}")), listed);
        }
        assert_eq!(outputs.0.lock().len(), TASKS_MAX);
        assert_eq!(
            outputs.output_of("a", &ByteString::from("t0")),
            ListedOutput::default()
        );
        assert_eq!(outputs.output_of("a", &ByteString::from("t100")), listed);
        assert_eq!(
            outputs.output_of("b", &ByteString::from("t100")),
            ListedOutput::default()
        );
    }
}
