//! Requests that a legacy server sends during a call.
//!
//! Owns which of them reach the client, and which the gateway refuses or answers itself. Does not
//! wait for the client's response (`forward_responses.rs`). Invariant: each request gets one
//! response, and a client is asked only during its own calls.

use tokio::sync::oneshot;

use super::LegacyCall;
use crate::legacy::tasks;
use crate::legacy::upstream::call_deadline::{CountedInputGuard, INPUT_REQUESTS_MAX};
use crate::legacy::upstream::forward_responses::{InputEndings, forward_responses};
use crate::{open_inputs, pipe_routes};
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_jsonrpc::message::{RpcError, RpcRequest, code};
use moongate_model::{ExchangeEvent, InputKind, InputRequest, InputRequired, StateHolder};

impl LegacyCall {
    /// Asks the client, or responds on its behalf.
    pub(super) async fn on_request(&mut self, mut request: RpcRequest) -> Option<ExchangeEvent> {
        let about = tasks::task_of(&request.params);
        if self.task.is_other(about.as_ref()) {
            // The request belongs to another task, which may be another client's.
            self.server
                .on_task_request(about.unwrap_or(ByteString::literal("")), request)
                .await;
            return None;
        }
        let kind = InputKind::classify(&request.method, &request.params);
        if let Some(reply) = self.reply_without_client(&request, kind) {
            self.server.send_reply(&request.id, reply).await;
            return None;
        }
        tasks::untag_task(&mut request.params);
        let Some(guard) = self
            .deadline
            .begin_input(|| self.server.calls.begin_input(self.entry.id))
        else {
            self.server
                .send_reply(&request.id, Err(too_many_inputs()))
                .await;
            return None;
        };
        let input = self.ask_client(request, kind, about, guard);
        Some(ExchangeEvent::InputRequired(input))
    }

    /// Returns the response to a request that is not for this client.
    fn reply_without_client(
        &self,
        request: &RpcRequest,
        kind: InputKind,
    ) -> Option<Result<JsonObject, RpcError>> {
        if &*request.method == "ping" {
            return Some(Ok(JsonObject::new()));
        }
        if kind == InputKind::Other || (kind == InputKind::Extension && !self.extensions) {
            return Some(Err(pipe_routes::unsupported_request(request)));
        }
        self.server.calls.record_roots(kind);
        if self.server.calls.claim_roots(&self.caller, kind) {
            return None;
        }
        let message =
            "Not available: other clients use this connection, and roots belong to one client"
                .into();
        Some(Err(RpcError {
            code: code::METHOD_NOT_FOUND,
            message,
            data: None,
        }))
    }

    /// Creates the input request, whose response goes to the server.
    fn ask_client(
        &mut self,
        request: RpcRequest,
        kind: InputKind,
        about: Option<ByteString>,
        guard: CountedInputGuard,
    ) -> InputRequired {
        let (responder, responses) = oneshot::channel();
        // On a shared pipe, the request may belong to another call of the same client.
        let redeliverable = (about.is_none() && self.server.link.is_multiplexed())
            .then(|| (self.entry.id, self.caller.clone(), request.clone()));
        let RpcRequest { id, method, params } = request;
        let progress = self.server.input_progress(&params);
        let key = open_inputs::key_of(&id);
        let endings = InputEndings {
            withdrawn: self.server.calls.open_inputs().add_asked(
                &id,
                (Some(self.entry.id), self.entry.stray_messages.as_ref()),
            ),
            abandoned: self.abandoned.get_or_insert_default().clone(),
            roots: self.server.begin_roots_request(kind),
        };
        tokio::spawn(forward_responses(
            self.server.clone(),
            (id, about),
            redeliverable,
            responses,
            (endings, guard),
        ));
        let requests = vec![(
            key,
            InputRequest {
                kind,
                method,
                params,
                progress,
            },
        )];
        InputRequired {
            requests,
            state_holder: StateHolder::Server,
            server: None,
            responder,
        }
    }
}

/// Creates the error for a call that asked too often.
fn too_many_inputs() -> RpcError {
    let message =
        format!("This call has reached its limit of {INPUT_REQUESTS_MAX} input requests").into();
    RpcError {
        code: code::INVALID_REQUEST,
        message,
        data: None,
    }
}
