//! Input requests of a call: elicitation, sampling, roots.
//!
//! Owns what is asked in which revision, and the wait for an answer. Does not ask for a task
//! (`task_inputs`). Invariant: it never sends an input request that the client did not declare a
//! capability for, unless a script says so.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    call::{CallStop, MockCall},
    revision::Revision,
    session::MockSession,
    wire::{self, RpcFailure},
};

/// Time limit for the client's response to an input request.
const INPUT_TIMEOUT: Duration = Duration::from_secs(300);

impl MockCall {
    /// Asks the user for a name.
    pub(super) async fn elicit(&self, key: &str, message: &str) -> Result<Value, CallStop> {
        let mut params = json!({
            "message": message,
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}},
                "required": ["name"]},
        });
        if self.revision >= Revision::V2025_11_25 {
            params["mode"] = json!("form");
        }
        let caps = &self.capabilities["elicitation"];
        // "An empty capabilities object is equivalent to declaring support for `form` mode only"
        // (2025-11-25, client/elicitation).
        let able = caps.is_object() && (caps["form"].is_object() || !caps["url"].is_object());
        self.check_declared(
            able,
            Revision::V2025_06_18,
            json!({"elicitation": {"form": {}}}),
        )?;
        self.request_input(key, "elicitation/create", params).await
    }

    /// Asks the user to open a page.
    pub(super) async fn elicit_url(&self, key: &str, url: &str) -> Result<Value, CallStop> {
        let mut params = json!({"mode": "url", "message": "Please open this page.", "url": url});
        let id = format!("page-{}", self.server.next_number());
        // 2026-07-28 has neither `elicitationId` nor the notification below: the client retries the
        // call.
        if !self.revision.is_modern() {
            params["elicitationId"] = json!(id);
        }
        let able = self.capabilities["elicitation"]["url"].is_object();
        self.check_declared(
            able,
            Revision::V2025_11_25,
            json!({"elicitation": {"url": {}}}),
        )?;
        let answer = self
            .request_input(key, "elicitation/create", params)
            .await?;
        if !self.revision.is_modern() {
            // No page exists, so the elicitation completes at once.
            self.send_message(wire::notification(
                "notifications/elicitation/complete",
                &json!({"elicitationId": id}),
            ))
            .await;
        }
        Ok(answer)
    }

    /// Asks the client's model.
    pub(super) async fn sample(&self, prompt: &str) -> Result<Value, CallStop> {
        let content = json!({"type": "text", "text": prompt});
        let params = json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100});
        self.check_declared(
            self.capabilities["sampling"].is_object(),
            Revision::V2024_11_05,
            json!({"sampling": {}}),
        )?;
        self.request_input("sample", "sampling/createMessage", params)
            .await
    }

    /// Asks the client's model, which may call a tool.
    pub(super) async fn sample_with_tools(&self, prompt: &str) -> Result<Value, CallStop> {
        let content = json!({"type": "text", "text": prompt});
        let tool =
            json!({"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}});
        let params = json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100,
            "tools": [tool], "toolChoice": {"mode": "auto"}, "includeContext": "thisServer"});
        let able = self.capabilities["sampling"]["tools"].is_object();
        self.check_declared(
            able,
            Revision::V2025_11_25,
            json!({"sampling": {"tools": {}}}),
        )?;
        self.request_input("sample", "sampling/createMessage", params)
            .await
    }

    /// Asks for the client's roots.
    pub(super) async fn roots(&self) -> Result<Value, CallStop> {
        self.check_declared(
            self.capabilities["roots"].is_object(),
            Revision::V2024_11_05,
            json!({"roots": {}}),
        )?;
        self.request_input("roots", "roots/list", json!({})).await
    }

    pub(super) fn check_declared(
        &self,
        declared: bool,
        since: Revision,
        required: Value,
    ) -> Result<(), CallStop> {
        if declared && self.revision >= since {
            return Ok(());
        }
        if self.revision.is_modern() {
            let fail = RpcFailure::new(-32021, "Missing required client capability");
            return Err(fail
                .data(json!({"requiredCapabilities": required}))
                .status(400)
                .into());
        }
        Err(CallStop::Failed(format!(
            "the client did not declare the capability this needs: {required}"
        )))
    }

    async fn request_input(
        &self,
        key: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, CallStop> {
        // An answer that came before the task was made is used as it is. The task asks for all
        // others itself.
        if let (Some(task), true) = (&self.task, self.input_responses[key].is_null()) {
            return task.request_input(self, key, method, params).await;
        }
        if self.revision.is_modern() {
            return match &self.input_responses[key] {
                Value::Null => Err(CallStop::InputRequired(
                    json!({key: {"method": method, "params": params}}),
                    true,
                )),
                answer => Ok(answer.clone()),
            };
        }
        self.request(method, params).await
    }

    /// Sends a request to the client and waits for its result (legacy).
    pub(super) async fn request(&self, method: &str, params: Value) -> Result<Value, CallStop> {
        self.request_within(method, params, None).await
    }

    /// Sends a request to the client. With a patience, it is taken back after that time; none at
    /// all waits for nothing.
    pub(super) async fn request_within(
        &self,
        method: &str,
        params: Value,
        patience: Option<Duration>,
    ) -> Result<Value, CallStop> {
        let Some(session) = &self.session else {
            return Err(CallStop::Failed(
                "cannot ask a client that has no session".into(),
            ));
        };
        let id = format!("\"ask-{}\"", self.server.next_number());
        let Some(reply) = session.expect_response(&id) else {
            return Err(CallStop::Failed("too many asks are open".into()));
        };
        self.send_outside(session, wire::request(&id, method, &params))
            .await;
        if patience == Some(Duration::ZERO) {
            return Err(CallStop::Failed("nobody waits for the answer".into()));
        }
        match tokio::time::timeout(patience.unwrap_or(INPUT_TIMEOUT), reply).await {
            Ok(Ok(Ok(result))) => Ok(result),
            Ok(Ok(Err(error))) => Err(CallStop::Failed(format!(
                "the client answered with an error: {error}"
            ))),
            _ if patience.is_some() => {
                let params =
                    json!({"requestId": id.trim_matches('"'), "reason": "no longer needed"});
                self.send_outside(
                    session,
                    wire::notification("notifications/cancelled", &params),
                )
                .await;
                Err(CallStop::Failed("the request was taken back".into()))
            }
            _ => Err(CallStop::Failed("the client did not answer".into())),
        }
    }

    /// Sends a message on the stream of the call or, if the script says so, on the session's.
    async fn send_outside(&self, session: &MockSession, message: String) {
        if !self.server.script.http.ask_on_get {
            return self.send_message(message).await;
        }
        // The client may open its stream just now.
        for _ in 0..500 {
            if self
                .server
                .listeners
                .send_to_session(&session.id, message.clone())
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
