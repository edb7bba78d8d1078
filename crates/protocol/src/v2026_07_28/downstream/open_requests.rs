//! Requests of this revision on a pipe (basic/transports/stdio.mdx).
//!
//! Owns the open requests, so that clients can cancel them. Does not read or answer requests
//! (`dialect.rs`). Invariant: a cancelled request sends nothing more.

use moongate_telemetry::Limit;
use parking_lot::Mutex;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dialect::DownstreamState;
use crate::respond;
use crate::v2026_07_28::downstream::dialect::{self, ModernStarted};
use crate::v2026_07_28::downstream::encode;
use crate::v2026_07_28::downstream::validated_request::{self, RequestSender};
use moongate_jsonrpc::json::RawJson;
use moongate_jsonrpc::message::{RequestId, RpcRequest, encode_line};
use moongate_model::{CancelReason, CancelReasons, Error, McpErrorKind, McpServer};

/// Limit of open requests on one pipe.
const OPEN_MAX: usize = 1000;

/// Open request of one pipe.
struct OpenRequest {
    id: RequestId,
    cancelled: CancellationToken,
    reason: CancelReason,
}

/// Open requests of one pipe.
#[derive(Clone, Default)]
pub(crate) struct OpenRequests {
    open: Arc<Mutex<Vec<OpenRequest>>>,
    /// Cancelled to close the subscription streams.
    subscriptions: CancellationToken,
}

impl OpenRequests {
    /// True if a request belongs to this revision.
    pub(crate) fn is_modern(request: &RpcRequest) -> bool {
        validated_request::carries_version(request)
    }

    /// Starts a request. Returns an immediate response; later ones go to `out` from a task of
    /// `tasks`.
    pub(crate) fn start(
        &self,
        request: RpcRequest,
        sender: RequestSender,
        endpoint: &Arc<dyn McpServer>,
        state: &Arc<DownstreamState>,
        (out, tasks): (&mpsc::Sender<Bytes>, &TaskTracker),
    ) -> Option<Vec<Bytes>> {
        let id = request.id.clone();
        // No headers on a pipe, so the body alone is validated.
        let checked = validated_request::validate(request, None, sender, Instant::now(), state);
        let mut checked = match checked {
            Ok(checked) => checked,
            Err(error) => return Some(vec![encode::encode_error(Some(&id), &error)]),
        };
        // Registered before the start, so that a cancellation always finds the request.
        let Some(entry) = self.register(&id) else {
            state.metrics.calls.refused.inc(Limit::SessionCalls);
            let error = Error::new(
                McpErrorKind::Overloaded,
                "Too many requests are open on this pipe; wait for some to end",
            );
            return Some(vec![encode::encode_error(Some(&id), &error)]);
        };
        checked.cancel_reason = Some(entry.reason.clone());
        let out = out.clone();
        match dialect::start_request(checked, endpoint, state, encode_line) {
            ModernStarted::Ready(_, parts) => return Some(parts),
            ModernStarted::Running(exchange, encoder) => {
                // A cancelled future drops its exchange, and that cancels the call at the server.
                // 2026-07-28/basic/transports/stdio.mdx, Cancellation: servers "MUST NOT send any
                // further messages for it".
                let run = async move {
                    entry
                        .token
                        .clone()
                        .run_until_cancelled(respond::forward(exchange, encoder, out))
                        .await
                };
                tasks.spawn(run);
            }
            ModernStarted::Subscribed(mut open) => {
                let subscriptions = self.subscriptions.clone();
                tasks.spawn(async move {
                    let forward = async {
                        while let Some(message) = open.next_message().await {
                            if out.send(encode_line(&message)).await.is_err() {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = entry.token.cancelled() => {}
                        () = subscriptions.cancelled() => {}
                        () = forward => {}
                    }
                });
            }
        }
        None
    }

    /// Cancels a request. Returns false if none is open under this id, or several are.
    ///
    /// "To cancel an in-flight request, the client MUST send a `notifications/cancelled`
    /// notification referencing the request's ID."
    pub(crate) fn cancel(&self, id: &RequestId, reason: Option<&RawJson>) -> bool {
        let open = self.open.lock();
        let mut named = open.iter().filter(|request| request.id == *id);
        match (named.next(), named.next()) {
            (Some(request), None) => {
                // First the reason: the request ends at once.
                request.reason.set(reason);
                request.cancelled.cancel();
                true
            }
            _ => false,
        }
    }

    /// Closes the subscription streams, which nobody reads any more.
    pub(crate) fn close_subscriptions(&self) {
        self.subscriptions.cancel();
    }

    /// Cancels all requests and subscriptions.
    pub(crate) fn cancel_all(&self) {
        self.close_subscriptions();
        for request in self.open.lock().iter() {
            request.cancelled.cancel();
        }
    }

    fn register(&self, id: &RequestId) -> Option<OpenRequestGuard> {
        let mut open = self.open.lock();
        let token = CancellationToken::new();
        let reason = CancelReasons::default().of_call(0);
        (open.len() < OPEN_MAX).then(|| {
            // A copy: the id is a span of the message, whose buffer must not live as long as the
            // request.
            let id = RequestId::from_raw(id.raw().detached()).unwrap_or_else(|| id.clone());
            open.push(OpenRequest {
                id,
                cancelled: token.clone(),
                reason: reason.clone(),
            });
            OpenRequestGuard {
                requests: self.clone(),
                token,
                reason,
            }
        })
    }
}

/// Guard of one open request.
struct OpenRequestGuard {
    requests: OpenRequests,
    token: CancellationToken,
    reason: CancelReason,
}

impl Drop for OpenRequestGuard {
    fn drop(&mut self) {
        let mut open = self.requests.open.lock();
        // Two requests may have the same id, so the token identifies the entry. Cancelling it makes
        // it findable.
        self.token.cancel();
        if let Some(index) = open
            .iter()
            .position(|request| request.cancelled.is_cancelled())
        {
            open.swap_remove(index);
        }
    }
}
