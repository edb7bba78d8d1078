//! Requests of a legacy server that belong to no call, on a connection that belongs to one client.
//!
//! Owns their way to that client. Does not know how its session sends them. Invariant: their number
//! is bounded, and each gets one response, unless the server withdrew it.

use std::sync::Arc;
use std::time::Duration;

use crate::background_sender::ReplyPermit;
use crate::legacy::upstream::connection::{LegacyConnection, OWNER_REQUESTS_MAX};
use crate::stray_messages::StrayMessages;
use moongate_jsonrpc::message::{RpcError, RpcRequest, code};
use moongate_model::{ClientChannel, InputKind, InputRequest};
use moongate_telemetry::{InputKindName, InputOutcome};

/// Attempts to find a call that starts just now, whose stream every client reads.
const CALL_LOOKS: u32 = 5;
/// Time between two of them.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl LegacyConnection {
    /// Asks the connection's client, on its GET stream.
    pub(crate) async fn ask_owner(
        self: &Arc<Self>,
        client: ClientChannel,
        permit: Option<ReplyPermit>,
        request: RpcRequest,
    ) {
        let Ok(slot) = self.owner_requests.clone().try_acquire_owned() else {
            self.options
                .metrics
                .inputs
                .asks
                .inc((InputKindName("any"), InputOutcome::TooMany));
            let message = format!(
                "The limit of {OWNER_REQUESTS_MAX} requests that wait for this client is reached"
            );
            let error = RpcError {
                code: code::METHOD_NOT_FOUND,
                message: message.into(),
                data: None,
            };
            return self.send_reply_with(permit, &request.id, Err(error)).await;
        };
        let server = self.clone();
        tokio::spawn(self.closing.clone().run_until_cancelled_owned(async move {
            server.forward_to_owner(client, request).await;
            drop(slot);
        }));
    }

    async fn forward_to_owner(self: Arc<Self>, client: ClientChannel, mut request: RpcRequest) {
        let kind = InputKind::classify(&request.method, &request.params);
        for _ in 0..CALL_LOOKS {
            tokio::time::sleep(LOOK_PAUSE).await;
            request = match self.calls.deliver_request(request) {
                Ok(()) => return,
                Err(request) => request,
            };
        }
        let _roots = self.begin_roots_request(kind);
        self.options
            .metrics
            .inputs
            .asks
            .inc((InputKindName(kind.capability()), InputOutcome::Asked));
        let RpcRequest { id, method, params } = request;
        let withdrawn = self
            .calls
            .open_inputs()
            .add_asked(&id, (None, Some(&StrayMessages::default())));
        let progress = self.input_progress(&params);
        let asked = client.0.ask(InputRequest {
            kind,
            method,
            params,
            progress,
        });
        let answer = tokio::select! {
            answer = tokio::time::timeout(self.options.timeouts.input_timeout(), asked) => answer,
            () = withdrawn.cancelled() => return self.calls.open_inputs().remove(&id),
        };
        self.calls.open_inputs().remove(&id);
        let answer = answer.unwrap_or_else(|_| {
            Err(RpcError {
                code: code::INTERNAL,
                message: "The client did not answer".into(),
                data: None,
            })
        });
        self.send_response(&id, answer).await;
    }
}
