//! Input requests of one call on a legacy server, and the way of their responses to it.
//!
//! Owns their number and the wait for the client. Does not read messages (`call.rs`). Invariant: each input request
//! gets one response, even if the client gives none.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::correlation::InputGuard;
use crate::legacy::tasks;
use crate::legacy::upstream::connection::LegacyConnection;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RequestId, RpcError, RpcRequest, code};
use moongate_model::{Caller, InputResponses};

/// Limit of input requests in one call. A server beyond it is taken to loop.
pub(crate) const INPUT_REQUESTS_MAX: usize = 64;

/// Input requests of one call.
#[derive(Default)]
pub(crate) struct InputCounter {
    /// Number of input requests since the call began.
    pub(crate) total: AtomicUsize,
    /// Number of input requests without a response.
    pub(crate) open: AtomicUsize,
    /// True once the call has its response. Later input requests belong to another call.
    pub(crate) is_answered: AtomicBool,
    /// Time of the last input response.
    pub(crate) last_answered: Mutex<Option<Instant>>,
}

/// Guard of one input request that waits for its user.
pub(crate) struct CountedInputGuard {
    pub(crate) inputs: Arc<InputCounter>,
    pub(crate) _pending: InputGuard,
}

impl CountedInputGuard {
    pub(crate) fn new(asks: &Arc<InputCounter>, asking: InputGuard) -> Self {
        asks.open.fetch_add(1, Ordering::AcqRel);
        CountedInputGuard { inputs: asks.clone(), _pending: asking }
    }
}

impl Drop for CountedInputGuard {
    fn drop(&mut self) {
        // The time first: once `open` is zero, `extended_deadline` reads it.
        *self.inputs.last_answered.lock() = Some(Instant::now());
        self.inputs.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for the client's input response and sends it to the server.
pub(crate) async fn forward_responses(
    server: Arc<LegacyConnection>,
    id: RequestId,
    task: Option<ByteString>,
    another: Option<(Arc<Caller>, RpcRequest)>,
    answers: oneshot::Receiver<InputResponses>,
    guard: CountedInputGuard,
) {
    let answers = tokio::time::timeout(server.options.timeouts.input_timeout(), answers).await;
    // A dropped responder after the call's response means that the request was for another call on the pipe.
    if let (Ok(Err(_)), Some((caller, request))) = (&answers, another)
        && guard.inputs.is_answered.load(Ordering::Acquire)
        && server.calls.redeliver_request(&caller, request).is_ok()
    {
        return;
    }
    let mut outcome = match answers {
        Ok(Ok(mut answers)) if !answers.is_empty() => answers.swap_remove(0).1,
        _ => Err(RpcError { code: code::INTERNAL, message: "The client did not answer".into(), data: None }),
    };
    if let Ok(result) = &mut outcome {
        // The client's task id is unknown to the server.
        tasks::untag_task(result);
        if let Some(task) = &task {
            tasks::tag_task(result, task);
        }
    }
    server.send_response(&id, outcome).await;
    drop(guard);
}
