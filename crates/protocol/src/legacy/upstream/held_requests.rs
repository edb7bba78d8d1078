//! Requests of a legacy server that could be about several clients' calls. Owns the wait until one client is left. Does
//! not choose the call (`correlation.rs`). Invariant: their number and their time are bounded, and no client sees the
//! request while it could be another's.
//!
//! The call that asks stays open until it has its response, so the others' ends show which one it is.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::background_sender::ReplyPermit;
use crate::correlation::HeldDelivery;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::pipe_routes;
use crate::stray_messages::StrayMessages;
use moongate_jsonrpc::message::{RpcError, RpcRequest, code};
use moongate_model::InputKind;
use moongate_telemetry::{InputKindName, InputOutcome};

/// Longest time for which a request is held.
const HOLD_TIME: Duration = Duration::from_secs(10);
/// Time between two looks at the open calls.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl LegacyConnection {
    /// Holds a request until one client is left that it can be for, or refuses it.
    pub(crate) async fn hold_request(self: &Arc<Self>, permit: Option<ReplyPermit>, request: RpcRequest) {
        let newest = self.calls.newest_at_arrival(&request.id);
        let request = match self.calls.deliver_held(request, newest) {
            HeldDelivery::Delivered => return,
            HeldDelivery::Unanswerable(request) => return self.refuse_unattributed(permit, &request).await,
            HeldDelivery::Ambiguous(request) => request,
        };
        let Ok(place) = self.owner_requests.clone().try_acquire_owned() else {
            return self.refuse_unattributed(permit, &request).await;
        };
        // The server may send more while it waits.
        drop(permit);
        let server = self.clone();
        tokio::spawn(self.closing.clone().run_until_cancelled_owned(async move {
            if let Some(request) = server.deliver_in_time(request, newest).await {
                let permit = server.reply_permit().await;
                server.refuse_unattributed(permit, &request).await;
            }
            drop(place);
        }));
    }

    /// Returns the request if no call got it, unless the server withdrew it.
    async fn deliver_in_time(self: &Arc<Self>, mut request: RpcRequest, newest: u64) -> Option<RpcRequest> {
        let id = request.id.clone();
        let until = Instant::now() + HOLD_TIME;
        let withdrawn = self.calls.open_inputs().add_asked(&id, (None, Some(&StrayMessages::default())));
        while !withdrawn.is_cancelled() {
            request = match self.calls.deliver_held(request, newest) {
                // The call is recorded in its place.
                HeldDelivery::Delivered => return None,
                HeldDelivery::Ambiguous(request) if Instant::now() < until => request,
                HeldDelivery::Ambiguous(request) | HeldDelivery::Unanswerable(request) => {
                    self.calls.open_inputs().remove(&id);
                    return Some(request);
                }
            };
            tokio::select! {
                () = tokio::time::sleep(LOOK_PAUSE) => {}
                () = withdrawn.cancelled() => {}
            }
        }
        self.calls.open_inputs().remove(&id);
        None
    }

    /// Refuses a request that belongs to no single client's call. The error names the setting that helps.
    async fn refuse_unattributed(self: &Arc<Self>, permit: Option<ReplyPermit>, request: &RpcRequest) {
        if InputKind::classify(&request.method, &request.params) == InputKind::Extension {
            let error = pipe_routes::unsupported_request(request);
            return self.send_reply_with(permit, &request.id, Err(error)).await;
        }
        let name = &self.options.server;
        self.options.metrics.inputs.asks.inc((InputKindName("any"), InputOutcome::Unattributed));
        tracing::debug!(server = name, method = %request.method, "server request refused: it belongs to no single open call");
        let message = format!(
            "Not available: the request cannot be told to belong to one client's call (servers.{name}.share = \"session\" gives each client a connection of its own)"
        );
        let error = RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None };
        self.send_reply_with(permit, &request.id, Err(error)).await;
    }
}
