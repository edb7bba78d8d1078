//! Messages of one event stream from a server.
//!
//! Owns the reading of events as messages, and the draining of finished streams. Does not reconnect
//! (`sse_reconnect`). Invariant: one poll reads a bounded number of bytes, and a stream for one
//! request ends with its answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use tokio::sync::Semaphore;

use crate::http_error::connection_error;
use crate::http_settings::OnMended;
use crate::read_body::DrainedBody;
use crate::response_body::ResponseBody;
use crate::rpc_pipe::OnGarbage;
use crate::server_text::{MessageLimits, UnreadText};
use crate::{ActivityFlag, LinkError};
use moongate_jsonrpc::message::{
    RpcMessage, RpcPayload, RpcResponse, answered_id, batch_items, echoed_number,
};
use moongate_jsonrpc::sse;
use moongate_telemetry::MemoryReservation;

/// Limit of the bytes that one poll reads from an event stream without yielding a message.
const SILENT_BYTES_MAX: usize = 256 * 1024;

/// Options of an event stream.
#[derive(Clone)]
pub(super) struct EventStreamOptions {
    /// Request whose answer ends the stream, if there is one.
    pub(super) id: Option<u64>,
    /// Limits of one event.
    pub(super) limits: MessageLimits,
    pub(super) on_garbage: OnGarbage,
    pub(super) on_mended: OnMended,
    pub(super) activity: Arc<ActivityFlag>,
    /// Room for streams that are drained in the background.
    pub(super) drains: Arc<Semaphore>,
}

/// Messages of an event stream. With an id, the stream ends after the answer to that id.
pub(super) struct EventStream {
    body: Option<ResponseBody>,
    reader: sse::SseDecoder,
    /// Memory of the event that arrives.
    reservation: MemoryReservation,
    /// Rest of a batch.
    batch: VecDeque<RpcMessage>,
    options: EventStreamOptions,
}

impl EventStream {
    pub(super) fn new(body: ResponseBody, options: EventStreamOptions) -> Self {
        EventStream {
            body: Some(body),
            reader: sse::SseDecoder::new(options.limits.max_message),
            reservation: options.limits.memory.begin(),
            batch: VecDeque::new(),
            options,
        }
    }

    /// Returns the decoder, which knows the last event id and the reconnection time.
    pub(super) fn reader(&self) -> &sse::SseDecoder {
        &self.reader
    }

    /// Returns the message of the next complete event, if there is one.
    fn next_message(&mut self) -> Option<Result<RpcMessage, LinkError>> {
        loop {
            while let Some(message) = self.batch.pop_front() {
                if let Some(message) = self.accept(message) {
                    return Some(Ok(message));
                }
            }
            let event = match self.reader.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => return None,
                Err(e) => {
                    self.body = None;
                    // The stream ends here: the next bytes are from the middle of an event.
                    return Some(Err(LinkError::TooLarge { limit: e.limit }));
                }
            };
            // Only events of the kind `message` carry messages; servers may send others, such as
            // pings.
            if event.kind.as_deref().is_some_and(|kind| kind != "message") {
                continue;
            }
            // 2025-03-26/basic/transports.mdx, Sending Messages to the Server: "These responses MAY
            // be batched", and so may requests and notifications, also on the stream of a GET.
            let data = self.reservation.take().attach(event.data);
            let read = match self.options.limits.read(&data) {
                Ok(read) => read,
                Err(unread) => match self.reject(&data, &data, unread) {
                    Some(failed) => return Some(Err(failed)),
                    None => continue,
                },
            };
            self.options.activity.mark();
            if read.is_mended {
                (self.options.on_mended)();
            }
            let messages = match read.payload {
                RpcPayload::One(message) => match self.accept(message) {
                    Some(message) => return Some(Ok(message)),
                    None => continue,
                },
                RpcPayload::Batch(messages) => messages,
            };
            let mut items = None;
            for (at, message) in messages.into_iter().enumerate() {
                match message {
                    Ok(message) => self.batch.push_back(message),
                    Err(wrong) => {
                        // The texts are found once for all malformed items.
                        let items = items.get_or_insert_with(|| batch_items(&read.text));
                        let item = items.get(at).cloned().unwrap_or_default();
                        if let Some(failed) = self.reject(&read.text, &item, wrong.into()) {
                            return Some(Err(failed));
                        }
                    }
                }
            }
        }
    }

    /// Reports an event that could not be read. Returns the failure of the call if the event means
    /// to answer it: no other answer will come.
    fn reject(&mut self, event: &[u8], item: &[u8], unread: UnreadText) -> Option<LinkError> {
        (self.options.on_garbage)(event);
        let id = self.options.id?;
        (answered_id(item) == Some(id)).then(|| {
            self.body = None;
            unread.into_link_error()
        })
    }

    /// Returns the message unless it answers another request. The answer ends the stream.
    fn accept(&mut self, message: RpcMessage) -> Option<RpcMessage> {
        if let (Some(id), RpcMessage::Response(response)) = (self.options.id, &message) {
            if !is_for(response, id) {
                // Each request has its own stream, so an answer to another one is a server's
                // mistake.
                (self.options.on_garbage)(b"an answer to a request that is not on this stream");
                return None;
            }
            // The answer ends the call, but the connection is free only at the end of the body.
            self.drain_rest();
        }
        Some(message)
    }

    /// Drains the rest of the body in the background, so that the connection returns to the pool.
    fn drain_rest(&mut self) {
        let Some(body) = self.body.take() else { return };
        let mut body = DrainedBody::new(body);
        // Most servers end the stream with the answer, so the rest is usually here and needs no
        // task.
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let is_over = body.poll_end(&mut cx).is_ready();
        // Without a permit the body is dropped, and its connection closes. A new one costs less
        // than unbounded tasks.
        if !is_over && let Ok(permit) = self.options.drains.clone().try_acquire_owned() {
            tokio::spawn(async move {
                body.drain().await;
                drop(permit);
            });
        }
    }
}

impl Stream for EventStream {
    type Item = Result<RpcMessage, LinkError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut read = 0;
        loop {
            if self.body.is_none() {
                return Poll::Ready(None);
            }
            if let Some(message) = self.next_message() {
                return Poll::Ready(Some(message));
            }
            if read > SILENT_BYTES_MAX {
                // Many bytes without a message: yields, so that the caller can check its deadline
                // and the thread its other tasks.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(body) = &mut self.body else {
                return Poll::Ready(None);
            };
            match ready!(body.poll_data(cx)) {
                Ok(Some(data)) => {
                    read += data.len();
                    let size = self.reader.held_bytes() + data.len();
                    if let Err(exhausted) = self.reservation.cover(size) {
                        self.body = None;
                        return Poll::Ready(Some(Err(exhausted.into())));
                    }
                    self.reader.push(&data);
                }
                Err(broken) => {
                    self.body = None;
                    return Poll::Ready(Some(Err(connection_error(
                        &broken,
                        "the event stream broke off",
                    ))));
                }
                Ok(None) => {
                    self.body = None;
                    return Poll::Ready(None);
                }
            }
        }
    }
}

/// True if a response answers the request with this id. Only an error may lack an id: its sender
/// could not read it.
pub(super) fn is_for(response: &RpcResponse, id: u64) -> bool {
    match &response.id {
        Some(answered) => echoed_number(answered.raw().bytes()) == Some(id),
        None => response.outcome.is_err(),
    }
}
