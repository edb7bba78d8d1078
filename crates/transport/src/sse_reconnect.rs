//! Reconnects of event streams that end too early.
//!
//! Owns the waiting and the attempts. Does not read events (`event_stream`). Invariant: a reconnect
//! waits at least as long as the server asked, never longer than [`RETRY_MAX`], and only streams
//! with an event id are resumed.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::{HeaderName, HeaderValue};

use crate::event_stream::{EventStream, EventStreamOptions};
use crate::http_client::{HttpEndpoint, HttpRequest};
use crate::http_settings::OnResume;
use crate::media_type::is_event_stream;
use crate::{LinkError, MessageStream};
use moongate_jsonrpc::message::RpcMessage;

/// Header of the standard for server-sent events.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Delay if the server named none.
const RETRY_DEFAULT: Duration = Duration::from_secs(1);
/// Limit of the delay that a server may ask for. A longer one counts as the end of the stream.
const RETRY_MAX: Duration = Duration::from_secs(600);
/// Shortest delay after a stream without messages, whatever the server said. Doubles with each such
/// stream in a row.
// A server that ends each stream at once and asks for `retry: 0` would be polled in a loop.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Limit of that doubling.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Limit of consecutive failed requests.
const FAILURES_MAX: u32 = 3;
/// Longest wait for the head of the response.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Limit of an event id that is sent back, in bytes.
// Many servers refuse a head of more than 8 KiB.
const ID_MAX: usize = 4096;

/// Request and options that resume a stream.
pub(super) struct SseReconnect {
    pub(super) target: HttpEndpoint,
    /// GET without its `Last-Event-ID`.
    pub(super) request: HttpRequest,
    pub(super) options: EventStreamOptions,
    pub(super) on_resume: OnResume,
}

/// Returns the messages of `events` and of the streams that continue it.
pub(super) fn with_reconnects(events: EventStream, plan: SseReconnect) -> MessageStream {
    let state = ReconnectingStream {
        events,
        plan,
        last_event_id: None,
        retry: RETRY_DEFAULT,
        empty_streams: 0,
        finished: false,
    };
    stream::unfold(state, |mut state| async move {
        state.next().await.map(|message| (message, state))
    })
    .boxed()
}

struct ReconnectingStream {
    events: EventStream,
    plan: SseReconnect,
    /// Id of the last event that had one.
    last_event_id: Option<HeaderValue>,
    retry: Duration,
    /// Number of consecutive streams without a message.
    empty_streams: u32,
    finished: bool,
}

impl ReconnectingStream {
    async fn next(&mut self) -> Option<Result<RpcMessage, LinkError>> {
        while !self.finished {
            let end = match self.events.next().await {
                Some(Ok(message)) => {
                    self.empty_streams = 0;
                    self.finished = self.plan.options.id.is_some()
                        && matches!(message, RpcMessage::Response(_));
                    return Some(Ok(message));
                }
                // A broken connection is one of the ways in which a stream ends early.
                Some(Err(error @ LinkError::Closed(_))) => Some(Err(error)),
                Some(Err(error)) => {
                    self.finished = true;
                    return Some(Err(error));
                }
                None => None,
            };
            self.record_position();
            match self.reconnect().await {
                Some(events) => self.events = events,
                None => {
                    self.finished = true;
                    return end;
                }
            }
        }
        None
    }

    /// Records the event id and the reconnection time of the stream.
    fn record_position(&mut self) {
        let reader = self.events.reader();
        if let Some(id) = reader.last_id() {
            self.last_event_id = HeaderValue::from_str(id)
                .ok()
                .filter(|id| id.len() <= ID_MAX);
        }
        if let Some(ms) = reader.retry_ms() {
            self.retry = Duration::from_millis(ms);
        }
    }

    /// Resumes the stream. 2025-11-25/basic/transports.mdx, Resumability and Redelivery: "If the
    /// client wishes to resume after a disconnection (whether due to network failure or
    /// server-initiated closure), it SHOULD issue an HTTP GET to the MCP endpoint, and include the
    /// `Last-Event-ID` header".
    async fn reconnect(&mut self) -> Option<EventStream> {
        let last = self.last_event_id.clone()?;
        for _ in 0..FAILURES_MAX {
            // Sending Messages to the Server: "The client MUST respect the `retry` field, waiting
            // the given number of milliseconds before attempting to reconnect."
            let delay = self.retry.max(
                PAUSE_MIN
                    .saturating_mul(1 << self.empty_streams.min(16))
                    .min(PAUSE_MAX),
            );
            if delay > RETRY_MAX {
                return None;
            }
            tokio::time::sleep(delay).await;
            self.empty_streams += 1;
            (self.plan.on_resume)();
            let mut request = self.plan.request.clone();
            request.headers.push((LAST_EVENT_ID, last.clone()));
            let Ok(Ok(response)) =
                tokio::time::timeout(HEAD_TIME, self.plan.target.request(request)).await
            else {
                continue;
            };
            if response.status().is_success() && is_event_stream(response.headers()) {
                return Some(EventStream::new(
                    response.into_body(),
                    self.plan.options.clone(),
                ));
            }
            // Only failures that may pass are retried; any other status is the server's final word.
            if !(response.status().is_server_error() || response.status().as_u16() == 429) {
                return None;
            }
        }
        None
    }
}
