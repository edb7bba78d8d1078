//! Bodies of requests, and their limits of size and time.
//!
//! Owns the wait for a body. Does not collect it (`collect_body.rs`) or parse it. Invariant: a body
//! is read within its limits, and for a known key only. The exception is a body of at most 64 KiB
//! on the fast path, which is there before the key is checked.

use axum::body::Body as AxumBody;
use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{Method, header};
use tokio::time::Instant;

use crate::collect_body::{BodyError, WireBytes, collect_upload};
use crate::listener_state::ListenerState;
use crate::panic_guard::StartedResponse;
use moongate_model::{Error, McpErrorKind};
use moongate_protocol::lazy_timer::DeadlineElapsed;
use moongate_telemetry::{Limit, MemoryExhausted, MemoryHolder, SMALL_MESSAGE};

/// Maximum size of a body that is read even over the memory limit, in bytes.
const SMALL_BODY_MAX: u64 = 64 * 1024;

/// Body of a request: read already, or still to be read.
pub(super) trait RequestBody: Send + Sized {
    /// True if a request costs next to nothing to read. A response, a cancellation or a DELETE ends
    /// something, so it is accepted even over the memory limit.
    fn is_small(&self, head: &Parts) -> bool;

    /// Reads the body and serves it. A body that is there is served at once.
    fn read_then<'a>(
        self,
        state: &'a ListenerState,
        holder: MemoryHolder,
        serve: impl FnOnce(Result<Bytes, Error>) -> StartedResponse<'a> + Send + 'a,
    ) -> StartedResponse<'a>
    where
        Self: 'a;
}

/// Body on the fast path.
impl RequestBody for Bytes {
    fn is_small(&self, _: &Parts) -> bool {
        u64::try_from(self.len()).is_ok_and(|length| length <= SMALL_BODY_MAX)
    }

    fn read_then<'a>(
        self,
        state: &'a ListenerState,
        holder: MemoryHolder,
        serve: impl FnOnce(Result<Bytes, Error>) -> StartedResponse<'a> + Send + 'a,
    ) -> StartedResponse<'a> {
        if self.len() > state.limits.body {
            return serve(Err(too_large(state)));
        }
        // Nearly all bodies are small, and then nobody has to be found.
        if self.len() <= SMALL_MESSAGE {
            return serve(Ok(self));
        }
        let mut reservation = state.admission.reserve(holder);
        serve(match reservation.cover(self.len()) {
            Ok(()) => Ok(reservation.attach(self)),
            Err(exhausted) => Err(out_of_memory(exhausted)),
        })
    }
}

/// Body that hyper reads.
pub(super) struct HyperBody {
    pub(super) body: AxumBody,
    pub(super) wire: WireBytes,
}

impl RequestBody for HyperBody {
    fn is_small(&self, head: &Parts) -> bool {
        let length = head
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        match head.method {
            Method::DELETE => true,
            // Without a length nobody knows how much will come, so it counts as large.
            Method::POST => length.is_some_and(|length| length <= SMALL_BODY_MAX),
            _ => false,
        }
    }

    fn read_then<'a>(
        self,
        state: &'a ListenerState,
        holder: MemoryHolder,
        serve: impl FnOnce(Result<Bytes, Error>) -> StartedResponse<'a> + Send + 'a,
    ) -> StartedResponse<'a> {
        let serving = async move {
            match serve(read(state, self, holder).await) {
                Ok(serving) => serving.await,
                Err(response) => *response,
            }
        };
        Ok(serving.boxed())
    }
}

/// Reads a body within its limits.
async fn read(
    state: &ListenerState,
    body: HyperBody,
    holder: MemoryHolder,
) -> Result<Bytes, Error> {
    let reading = collect_upload(
        body.body,
        state.limits.body,
        body.wire,
        state.admission.begin_upload(holder),
    );
    // The time starts with the body, so that a slow head costs it nothing.
    let until = Instant::now() + state.limits.read_timeout;
    match state.downstream.timers.timeout_at(until, reading).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BodyError::TooLarge)) => Err(too_large(state)),
        Ok(Err(BodyError::MemoryExhausted(exhausted))) => Err(out_of_memory(exhausted)),
        Ok(Err(BodyError::TooManyChunks)) => Err(too_many_chunks(state)),
        // Not counted: the client went away, and no limit was reached.
        Ok(Err(BodyError::Broken)) => Err(Error::new(
            McpErrorKind::InvalidRequest,
            "The body ended early",
        )),
        Err(DeadlineElapsed) => Err(body_timed_out(state)),
    }
}

/// Counts a body that did not arrive in time, and builds its error.
pub(super) fn body_timed_out(state: &ListenerState) -> Error {
    state
        .downstream
        .metrics
        .calls
        .refused
        .inc(Limit::ReadTimeout);
    let limit = state.limits.read_timeout;
    Error::new(
        McpErrorKind::InvalidRequest,
        format!("The body took longer than {limit:?} (limits.read_timeout)"),
    )
}

/// Builds the error for a body that memory has no room for. The budget has counted it.
fn out_of_memory(exhausted: MemoryExhausted) -> Error {
    Error::new(
        McpErrorKind::Overloaded,
        format!("No memory is left for the body: {exhausted}; try again in a second"),
    )
}

fn too_large(state: &ListenerState) -> Error {
    state.downstream.metrics.calls.refused.inc(Limit::Body);
    Error::new(
        McpErrorKind::TooLarge,
        format!(
            "The body is larger than {} bytes (limits.body)",
            state.limits.body
        ),
    )
}

fn too_many_chunks(state: &ListenerState) -> Error {
    state.downstream.metrics.calls.refused.inc(Limit::Body);
    let message =
        "The body came in too many small chunks: they took more than four times limits.body";
    Error::new(McpErrorKind::TooLarge, message)
}
