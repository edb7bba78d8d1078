//! Responses to the input requests of one call, on their way to a legacy server.
//!
//! Owns the wait for the client. Does not read messages (`call.rs`) or count the requests
//! (`call_deadline.rs`). Invariant: each input request gets one response, even if the client gives
//! none, unless its server withdrew it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::legacy::tasks;
use crate::legacy::upstream::call_deadline::CountedInputGuard;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::settle_roots::OpenRootsRequest;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RequestId, RpcError, RpcRequest, code};
use moongate_model::{Caller, InputResponses};

/// Time for which a client may not have seen a request of a call that it gives up.
const UNSEEN_TIME: Duration = Duration::from_secs(1);

/// Ways in which the wait for a client ends without its response.
pub(crate) struct InputEndings {
    /// Cancelled if the server takes its request back.
    pub(crate) withdrawn: CancellationToken,
    /// Cancelled if the call is given up.
    pub(crate) abandoned: CancellationToken,
    /// Request for roots, which ends with the response.
    pub(crate) roots: Option<OpenRootsRequest>,
}

/// Waits for the client's input response and sends it to the server.
pub(crate) async fn forward_responses(
    server: Arc<LegacyConnection>,
    (id, task): (RequestId, Option<ByteString>),
    redeliverable: Option<(u64, Arc<Caller>, RpcRequest)>,
    responses: oneshot::Receiver<InputResponses>,
    (endings, mut guard): (InputEndings, CountedInputGuard),
) {
    let asked_at = Instant::now();
    let responses = tokio::select! {
        responses = tokio::time::timeout(server.options.timeouts.input_timeout(),
            responses) => Some(responses),
        () = endings.withdrawn.cancelled() => None,
        () = endings.abandoned.cancelled() => None,
    };
    server.calls.open_inputs().remove(&id);
    // 2025-11-25/basic/utilities/cancellation.mdx, Behavior Requirements: "Receivers of
    // cancellation notifications SHOULD: […] Not send a response for the cancelled request".
    if endings.withdrawn.is_cancelled() {
        return;
    }
    // Without a response after the call's own, the request was for another call on the pipe. So it
    // may be if the client gave the call up a moment ago.
    let is_left = matches!(&responses, None | Some(Ok(Err(_))));
    let is_misdirected = is_left && (guard.is_call_answered() || asked_at.elapsed() < UNSEEN_TIME);
    if let Some((from, caller, request)) = redeliverable.filter(|_| is_misdirected)
        && server
            .calls
            .redeliver_request((from, &caller), request)
            .is_ok()
    {
        return;
    }
    let mut outcome = match responses {
        Some(Ok(Ok(mut responses))) if !responses.is_empty() => responses.swap_remove(0).1,
        // An error, since a server may hold its call open until it hears something.
        _ => Err(RpcError {
            code: code::INTERNAL,
            message: "The client did not answer".into(),
            data: None,
        }),
    };
    if let Ok(result) = &mut outcome {
        // Errors are refusals, mostly the gateway's own: nobody was asked.
        guard.mark_responded();
        // The client's task id is unknown to the server.
        tasks::untag_task(result);
        if let Some(task) = &task {
            tasks::tag_task(result, task);
        }
    }
    server.send_response(&id, outcome).await;
    drop((guard, endings.roots));
}
