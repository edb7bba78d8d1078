//! State that a pipe shares with the tasks that read and write.
//!
//! Owns the way of each message to its receiver, and the end of the pipe. Does not delimit messages
//! (`line_codec`). Invariant: delivering waits for no call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::open_requests::{CallMessage, OpenRequestTable};
use super::reply_queue::ReplyQueue;
use crate::byte_budget::{ByteBudget, ByteReservation};
use crate::partial_id::PartialIdScanner;
use crate::server_text::MessageLimits;
use crate::{ActivityFlag, CorrelateFn, LinkError, MessageRoute};
use moongate_jsonrpc::message::{
    MalformedMessage, RpcError, RpcMessage, RpcPayload, RpcRequest, answered_id, batch_items, code,
    echoed_number, encode_with, write_error,
};
use moongate_telemetry::MemoryReservation;

/// Callback for lines that aren't JSON-RPC messages.
pub type OnGarbage = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// State that a pipe shares with its tasks.
pub(super) struct PipeShared {
    pub(super) open: Mutex<OpenRequestTable>,
    pub(super) correlate: CorrelateFn,
    pub(super) on_garbage: OnGarbage,
    pub(super) events: mpsc::Sender<(RpcMessage, ByteReservation)>,
    pub(super) backlog: Arc<ByteBudget>,
    pub(super) limits: MessageLimits,
    pub(super) replies: ReplyQueue,
    pub(super) activity: ActivityFlag,
    /// Count of messages received so far.
    pub(super) received: AtomicU64,
    pub(super) closed: watch::Sender<Option<LinkError>>,
    /// Known mistake in the output.
    pub(super) mistake: OnceLock<&'static str>,
    pub(super) stop: CancellationToken,
}

impl PipeShared {
    /// Sends the replies that the server is owed, before any more input is read.
    pub(super) async fn send_owed_replies(&self, replies: &mut Vec<Bytes>) {
        for answer in replies.drain(..) {
            self.replies.send(answer).await;
        }
    }

    /// Records that a message arrived.
    fn mark_received(&self) {
        self.activity.mark();
        // A load and a store suffice: only the reading task counts.
        self.received
            .store(self.received.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Routes a message to its receiver. Returns the reply that the server must get at once, if
    /// any. `size` is the number of bytes that the message keeps in memory.
    fn deliver(&self, message: RpcMessage, size: usize) -> Option<Bytes> {
        self.mark_received();
        if let RpcMessage::Response(response) = &message {
            match response
                .id
                .as_ref()
                .and_then(|id| echoed_number(id.raw().bytes()))
            {
                Some(id) => self.complete_call(id, message),
                // The answer matches no request of ours: it timed out or was invented.
                None => self.backlog.answers.inc(),
            }
            return None;
        }
        // Chosen and queued under one lock: the call cannot end in between.
        let open = self.open.lock();
        match (self.correlate)(&message, &|id| open.find(id).is_some()) {
            MessageRoute::Answer(answer) => return Some(answer),
            MessageRoute::Call(id) => {
                if let Some(call) = open.find(id) {
                    return self.queue_for_call(call, message, size);
                }
            }
            MessageRoute::Events => {}
        }
        drop(open);
        // No one subscribed, so the message must take no room from calls.
        if self.events.is_closed() {
            return self.drop_unclaimed(&message);
        }
        // Never waits: the reading task must continue with the answers behind this message.
        let Some(weight) = self.backlog.reserve(size) else {
            return self.drop_unroutable(&message);
        };
        let unsent = self.events.try_send((message, weight)).err()?;
        self.drop_unroutable(&unsent.into_inner().0)
    }

    /// Ends a call with its answer. The entry is removed, so a second answer finds no call.
    fn complete_call(&self, id: u64, message: RpcMessage) {
        // The lock ends with this statement. A call that was woken under it would only wait for it.
        let call = match &mut *self.open.lock() {
            OpenRequestTable::Calls(calls) => calls.remove(&id),
            OpenRequestTable::Broken(_) => None,
        };
        match call {
            Some(call) => drop(call.try_send(CallMessage::end(Ok(message)))),
            None => self.backlog.answers.inc(),
        }
    }

    /// Queues a message for an open call that is not its answer.
    fn queue_for_call(
        &self,
        call: &mpsc::Sender<CallMessage>,
        message: RpcMessage,
        size: usize,
    ) -> Option<Bytes> {
        // One slot stays free, so that the answer always fits and the reading task never waits.
        let Some(weight) = self.backlog.reserve(size).filter(|_| call.capacity() > 1) else {
            return self.drop_unroutable(&message);
        };
        let unsent = call
            .try_send(CallMessage {
                message: Ok(message),
                _reservation: Some(weight),
            })
            .err()?;
        self.drop_unroutable(unsent.into_inner().message.as_ref().ok()?)
    }

    /// Counts a message that has no room and returns an error reply to a request. JSON-RPC 2.0,
    /// section 4: a request "MUST" be replied to. A server may wait for the reply for ever.
    fn drop_unroutable(&self, message: &RpcMessage) -> Option<Bytes> {
        self.backlog.dropped.inc();
        let RpcMessage::Request(request) = message else {
            return None;
        };
        self.backlog.refused.inc();
        Some(refusal(
            request,
            code::INTERNAL,
            "Too much is waiting for the client; try again later",
        ))
    }

    /// Drops a message that no subscription reads, so that it takes no room from others. Requests
    /// get an error reply.
    fn drop_unclaimed(&self, message: &RpcMessage) -> Option<Bytes> {
        self.backlog.dropped.inc();
        let RpcMessage::Request(request) = message else {
            return None;
        };
        Some(refusal(
            request,
            code::METHOD_NOT_FOUND,
            "No client is there to answer",
        ))
    }

    /// Ends the pipe. Every open call fails now, every later call at once.
    pub(super) fn fail(&self, error: LinkError) {
        let mut open = self.open.lock();
        let OpenRequestTable::Calls(calls) =
            std::mem::replace(&mut *open, OpenRequestTable::Broken(error.clone()))
        else {
            return;
        };
        // Unlocked first: woken calls lock the table when they are dropped.
        drop(open);
        for call in calls.into_values() {
            let _ = call.try_send(CallMessage::end(Err(error.clone())));
        }
        // `send_replace` stores the reason even if no task waits for it yet.
        self.closed.send_replace(Some(error));
    }

    /// Delivers a message or a batch.
    pub(super) fn deliver_payload(
        &self,
        payload: RpcPayload,
        text: &Bytes,
        replies: &mut Vec<Bytes>,
    ) {
        let messages = match payload {
            RpcPayload::One(message) => return replies.extend(self.deliver(message, text.len())),
            RpcPayload::Batch(messages) => messages,
        };
        // All messages of a batch share its text, and each keeps the whole text alive.
        let each = text.len() / messages.len().max(1);
        let mut items = None;
        for (at, message) in messages.into_iter().enumerate() {
            match message {
                Ok(message) => replies.extend(self.deliver(message, each)),
                Err(wrong) => {
                    (self.on_garbage)(text);
                    // The texts are found once for all malformed items.
                    if let Some(item) = items.get_or_insert_with(|| batch_items(text)).get(at) {
                        self.fail_malformed(item, &wrong);
                    }
                }
            }
        }
    }

    /// Fails the call that a malformed answer names: no other answer will come. Possible requests
    /// and log lines with an `id` do not count as answers.
    pub(super) fn fail_malformed(&self, line: &[u8], wrong: &MalformedMessage) {
        if let Some(id) = answered_id(line).or_else(|| scan_answered_id(line))
            && let OpenRequestTable::Calls(calls) = &mut *self.open.lock()
            && let Some(call) = calls.remove(&id)
        {
            self.mark_received();
            let _ = call.try_send(CallMessage::end(Err(LinkError::Protocol(format!(
                "the answer is {wrong}"
            )))));
        }
    }

    /// Reserves the memory of a whole message.
    pub(super) fn reserve(&self, message: &Bytes) -> Result<MemoryReservation, LinkError> {
        let mut reservation = self.backlog.memory.begin();
        reservation.cover(message.len())?;
        Ok(reservation)
    }

    /// Fails the call that a dropped line answers.
    pub(super) fn fail_dropped(&self, id: Option<u64>, reason: &LinkError) {
        if let Some(id) = id
            && let OpenRequestTable::Calls(calls) = &mut *self.open.lock()
            && let Some(call) = calls.remove(&id)
        {
            self.mark_received();
            let _ = call.try_send(CallMessage::end(Err(reason.clone())));
        }
    }
}

fn refusal(request: &RpcRequest, code: i64, message: &'static str) -> Bytes {
    let error = RpcError {
        code,
        message: message.into(),
        data: None,
    };
    encode_with(160, |out| write_error(out, Some(&request.id), &error))
}

/// Finds the id of the request that a text without a JSON structure means to answer.
fn scan_answered_id(line: &[u8]) -> Option<u64> {
    let answers = contains(line, b"\"jsonrpc\"")
        && (contains(line, b"\"result\"") || contains(line, b"\"error\""))
        && !contains(line, b"\"method\"");
    answers
        .then(|| PartialIdScanner::default().feed_answer(line))
        .flatten()
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(line, word).is_some()
}
