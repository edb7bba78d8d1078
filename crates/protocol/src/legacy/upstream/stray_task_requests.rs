//! Requests of a legacy server about a task that arrive on another stream than the task's.
//!
//! Owns their way to the call that awaits the task. Does not hold requests (`task_inputs.rs`).
//! Invariant: a request that must be dropped gets an error response.

use std::sync::Arc;

use crate::legacy::upstream::connection::LegacyConnection;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RpcError, RpcRequest, code};
use moongate_telemetry::{InputKindName, InputOutcome};

impl LegacyConnection {
    /// Delivers a task's request to the call that awaits the task, or holds it until there is one.
    ///
    /// "clients SHOULD expect messages to be delivered on any SSE stream"
    /// (2025-11-25/basic/utilities/tasks.mdx, Input Required Status).
    pub(crate) async fn on_task_request(self: &Arc<Self>, task: ByteString, request: RpcRequest) {
        let Err(request) = self.calls.deliver_task_request(&task, request) else {
            return;
        };
        for request in self
            .task_inputs
            .hold(ByteString::from(task.as_str()), request)
        {
            self.options
                .metrics
                .inputs
                .asks
                .inc((InputKindName("any"), InputOutcome::Unattributed));
            let message = "No client is waiting for the task that asks";
            let error = RpcError {
                code: code::METHOD_NOT_FOUND,
                message: message.into(),
                data: None,
            };
            self.send_reply(&request.id, Err(error)).await;
        }
    }
}
