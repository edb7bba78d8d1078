//! Input requests of a task, in both wire forms.
//!
//! Owns the way of each to the client and back. Does not decide what is asked (`input_requests`).
//! Invariant: a task that waits for an answer says so in its status.

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    call::{CallStop, MockCall},
    mock_task::{MockTask, RELATED},
    wire,
};

impl MockTask {
    /// Sends an input request from inside the task.
    pub(super) async fn request_input(
        &self,
        call: &MockCall,
        key: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, CallStop> {
        if self.legacy {
            return self.request_session(call, method, params).await;
        }
        let (answer, answered) = oneshot::channel();
        // "Each request key in `inputRequests` MUST be unique over the lifetime of a single task"
        // (SEP-2663).
        let key = format!("{key}-{}", call.server.next_number());
        let request = json!({"method": method, "params": params});
        self.set_status(&call.server.listeners, "input_required", |state| {
            state.pending_requests.insert(key, (request, answer));
        });
        let answer = answered
            .await
            .map_err(|_| CallStop::Failed("nobody answered".into()))?;
        self.resume_if_answered(call);
        Ok(answer)
    }

    fn resume_if_answered(&self, call: &MockCall) {
        if self.state.lock().pending_requests.is_empty() {
            self.set_status(&call.server.listeners, "working", |_| {});
        }
    }

    /// Sends an input request on the stream of `tasks/result`, or at once on the session's own
    /// stream if the rule is eager.
    async fn request_session(
        &self,
        call: &MockCall,
        method: &str,
        mut params: Value,
    ) -> Result<Value, CallStop> {
        let Some(session) = &call.session else {
            return Err(CallStop::Failed("there is no session to ask".into()));
        };
        let number = call.server.next_number();
        let id = format!("\"task-ask-{number}\"");
        let Some(reply) = session.expect_response(&id) else {
            return Err(CallStop::Failed("too many asks are open".into()));
        };
        // "All requests, notifications, and responses related to a task MUST include the
        // `io.modelcontextprotocol/related-task` key in their `_meta` field" (2025-11-25,
        // basic/utilities/tasks).
        params["_meta"][RELATED] = json!({"taskId": self.id});
        let request = wire::request(&id, method, &params);
        let key = format!("{number:08}");
        self.set_status(&call.server.listeners, "input_required", |state| {
            // The entry marks the task as waiting. The response comes through the session, so its
            // channel is never used.
            state
                .pending_requests
                .insert(key.clone(), (Value::Null, oneshot::channel().0));
        });
        if self.rule.eager {
            call.server.listeners.send_to_session(&session.id, request);
        } else {
            self.wait_for_result_reader().await;
            call.send_message(request).await;
        }
        let reply = reply.await;
        self.state.lock().pending_requests.remove(&key);
        self.resume_if_answered(call);
        match reply {
            // The same MUST binds the client's response, and a gateway in between must not lose it.
            Ok(Ok(result)) if result["_meta"][RELATED]["taskId"] != self.id.as_str() => Err(
                CallStop::Failed(format!("the answer does not name the task: {result}")),
            ),
            Ok(Ok(mut result)) => {
                if let Some(all) = result.as_object_mut() {
                    all.remove("_meta");
                }
                Ok(result)
            }
            Ok(Err(error)) => Err(CallStop::Failed(format!(
                "the client answered with an error: {error}"
            ))),
            Err(_) => Err(CallStop::Failed("the client did not answer".into())),
        }
    }
}
