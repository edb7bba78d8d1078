//! Requests of servers to a session's client that belong to no call.
//!
//! Owns their way over the GET stream. Does not choose the client (`protocol`). Invariant: a
//! request that nobody waits for any more is taken back at the client.

use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::session::Session;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{
    RequestId, RpcError, code, encode_with, write_notification, write_request,
};
use moongate_model::{AskClient, ClientChannel, InputKind, InputProgress, InputRequest};

/// Channel to the client of one session.
pub(super) struct SessionChannel(Weak<Session>);

impl SessionChannel {
    /// Creates the channel. It keeps no session alive.
    pub(super) fn of(session: &Weak<Session>) -> ClientChannel {
        ClientChannel(Arc::new(SessionChannel(session.clone())))
    }
}

impl AskClient for SessionChannel {
    fn ask(&self, request: InputRequest) -> BoxFuture<'static, Result<JsonObject, RpcError>> {
        let session = self.0.clone();
        async move {
            match session.upgrade() {
                Some(session) => session.ask_outside_calls(request).await,
                None => Err(session_ended()),
            }
        }
        .boxed()
    }
}

fn session_ended() -> RpcError {
    RpcError {
        code: code::INTERNAL,
        message: "The client's session ended".into(),
        data: None,
    }
}

/// Replaces the server's progress token by the id of this hop's request. Tokens of several servers
/// may be equal.
pub fn name_progress(params: &mut JsonObject, id: &RequestId, progress: Option<&InputProgress>) {
    if progress.is_some()
        && let Some(mut meta) = params.get_object("_meta")
    {
        meta.set(ByteString::literal("progressToken"), id.raw().clone());
        params.set(ByteString::literal("_meta"), meta.to_raw());
    }
}

fn refusal(message: String) -> RpcError {
    RpcError {
        code: code::METHOD_NOT_FOUND,
        message: message.into(),
        data: None,
    }
}

/// Request that the client has. Dropping it takes the request back.
struct OutsideRequest<'a> {
    session: &'a Session,
    id: RequestId,
}

impl Drop for OutsideRequest<'_> {
    fn drop(&mut self) {
        self.session.take_back(&self.id, None);
    }
}

impl Session {
    /// Sends a request on the GET stream and waits for the response. A client without such a stream
    /// gets it later.
    async fn ask_outside_calls(
        self: Arc<Self>,
        request: InputRequest,
    ) -> Result<JsonObject, RpcError> {
        self.check_kind(&request)?;
        let InputRequest {
            kind,
            method,
            mut params,
            progress,
        } = request;
        let Some((id, response)) = self.client_requests.expect_response(progress.clone()) else {
            return Err(refusal(
                "Too many requests are waiting for this client's answers".to_owned(),
            ));
        };
        let _activity = self.begin_activity();
        if kind == InputKind::ElicitUrl
            && let Some(page) = params.get_string("elicitationId")
        {
            self.client_requests.elicitation_opened(&page);
        }
        name_progress(&mut params, &id, progress.as_ref());
        let message = encode_with(params.size_hint(), |out| {
            write_request(out, &id, &method, &params)
        });
        self.get_stream.outbox.push(message, None);
        let _open = OutsideRequest {
            session: &self,
            id: id.clone(),
        };
        response.await.unwrap_or_else(|_| Err(session_ended()))
    }

    /// Checks that the client may get a request: it declared the kind, or the endpoint permits it
    /// extensions.
    fn check_kind(&self, request: &InputRequest) -> Result<(), RpcError> {
        match request.kind {
            InputKind::Extension if self.extension_check.get().is_some_and(|permits| permits()) => {
                Ok(())
            }
            InputKind::Extension => Err(refusal(format!("Method not found: {}", request.method))),
            kind if self.identity.caller().capabilities.supports(kind) => Ok(()),
            kind => Err(refusal(format!(
                "The client did not declare {}",
                kind.capability()
            ))),
        }
    }

    /// Takes a request back that the client has open, on the GET stream.
    pub fn take_back(&self, id: &RequestId, reason: Option<RawJson>) {
        if let Some(message) = self.withdraw_request(id, reason) {
            self.get_stream.outbox.push(message, None);
        }
    }

    /// Withdraws a request. Returns the message for the client, if the client has the request open.
    ///
    /// 2025-11-25/basic/utilities/cancellation.mdx, Behavior Requirements: "Cancellation
    /// notifications MUST only reference requests that: Were previously issued in the same
    /// direction; Are believed to still be in-progress".
    pub fn withdraw_request(
        &self,
        id: &RequestId,
        reason: Option<RawJson>,
    ) -> Option<bytes::Bytes> {
        if !self.client_requests.withdraw(id) {
            return None;
        }
        let mut params = JsonObject::new().with("requestId", id.raw().clone());
        if let Some(reason) = reason {
            params.set(ByteString::literal("reason"), reason);
        }
        Some(encode_with(params.size_hint(), |out| {
            write_notification(out, "notifications/cancelled", &params)
        }))
    }
}
