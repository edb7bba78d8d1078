//! Newline-delimited JSON-RPC over one pipe that all calls share.
//!
//! Owns the table of open requests and the two tasks that read and write. Does not start processes
//! (`stdio`). Invariant: the reading task waits for no call. A full call queue loses notifications,
//! never the answer, and delays no other call. A server request without room gets an error. A
//! server that reads no replies is itself not read for a while (`reply_queue`). The end of the pipe
//! fails every open call at once, with the reason.

mod line_codec;
mod open_requests;
mod pipe_shared;
mod reply_queue;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use crate::byte_budget::{ByteBudget, ByteReservation};
use crate::server_text::MessageLimits;
use crate::{ActivityFlag, CorrelateFn, LinkError, LinkReply, MessageStream, OutgoingMessage};
pub(super) use line_codec::WriteQueue;
use line_codec::{read_lines, take_line, write_cost, write_lines};
use moongate_jsonrpc::message::{RpcMessage, answered_id};
use open_requests::{CallMessage, OpenRequestTable};
pub use pipe_shared::OnGarbage;
use pipe_shared::PipeShared;
use reply_queue::{QueuedLine, ReplyQueue};

/// Limit of messages queued for one call. Further notifications are dropped; one slot is reserved
/// for the answer.
const CALL_QUEUE: usize = 256;
/// Limit of queued messages that belong to no call.
const EVENT_QUEUE: usize = 256;
/// Limit of queued lines that wait to be written.
const WRITE_QUEUE: usize = 1024;
/// Longest wait for room in a full write queue. A longer wait means that the server does not read
/// its input.
const WRITE_WAIT: Duration = Duration::from_secs(5);

/// A pipe to a server.
pub struct RpcPipe {
    shared: Arc<PipeShared>,
    writer: Mutex<Option<mpsc::Sender<QueuedLine>>>,
    /// Bytes that may still be queued for writing.
    write_room: Arc<Semaphore>,
    events: Mutex<Option<mpsc::Receiver<(RpcMessage, ByteReservation)>>>,
}

/// Settings of one pipe.
pub struct RpcPipeSettings {
    /// Longest line accepted, in bytes.
    pub max_message: usize,
    /// Byte budget of unread messages. Unwritten messages may take as many bytes again.
    pub backlog: Arc<ByteBudget>,
    /// Finds the open call that a message belongs to when it carries no request id of ours. Runs
    /// under the pipe's lock.
    pub correlate: CorrelateFn,
    /// Called for each line that isn't a message.
    pub on_garbage: OnGarbage,
    /// Text of the error for a regular end of the input.
    pub closed: &'static str,
    /// Finds a better reason for the end of the pipe, such as the exit status of the process.
    pub explain: Option<ExplainEnd>,
}

/// Turns the end of a pipe into a reason for people. Must be quick: open calls wait for it.
pub type ExplainEnd = Box<dyn FnOnce(LinkError) -> BoxFuture<'static, LinkError> + Send>;

impl RpcPipe {
    /// Starts the tasks that read and write lines.
    pub fn start<R, W>(reader: R, writer: W, mut settings: RpcPipeSettings) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let limit = settings.max_message;
        let closed = settings.closed;
        let explain = settings.explain.take();
        let (pipe, outbox) = RpcPipe::new(settings);
        let shared = pipe.shared.clone();
        pipe.read(explain, async move {
            read_lines(reader, &shared, limit, closed).await
        });
        tokio::spawn(write_lines(writer, outbox));
        pipe
    }

    /// Starts a pipe over messages that another protocol delimits. The owner writes what the
    /// returned queue yields. An owner that sends calls itself finds only replies to server
    /// requests there.
    pub(super) fn framed<S>(messages: S, mut settings: RpcPipeSettings) -> (Self, WriteQueue)
    where
        S: Stream<Item = Result<Bytes, LinkError>> + Send + 'static,
    {
        let closed = settings.closed;
        let explain = settings.explain.take();
        let (pipe, outbox) = RpcPipe::new(settings);
        let shared = pipe.shared.clone();
        pipe.read(explain, async move {
            let mut messages = std::pin::pin!(messages);
            let mut replies = Vec::new();
            loop {
                match messages.next().await {
                    Some(Ok(message)) => {
                        match shared.reserve(&message) {
                            Ok(reservation) => {
                                take_line(reservation.attach(message), &shared, &mut replies)
                            }
                            Err(reason) => shared.fail_dropped(answered_id(&message), &reason),
                        }
                        shared.send_owed_replies(&mut replies).await;
                        // A server that floods the pipe must let other tasks run.
                        coop::consume_budget().await;
                    }
                    Some(Err(error)) => return error,
                    None => return LinkError::Closed(closed.to_owned()),
                }
            }
        });
        (pipe, outbox)
    }

    fn new(settings: RpcPipeSettings) -> (Self, WriteQueue) {
        let (events, event_reader) = mpsc::channel(EVENT_QUEUE);
        let (to_write, messages) = mpsc::channel(WRITE_QUEUE);
        // `Semaphore::new` panics above its maximum.
        let room = Arc::new(Semaphore::new(
            settings.backlog.limit().min(Semaphore::MAX_PERMITS),
        ));
        let (replies, answers) = ReplyQueue::new(settings.backlog.replies.clone());
        let memory = settings.backlog.memory.clone();
        let limits = MessageLimits {
            max_message: settings.max_message,
            memory,
        };
        let shared = Arc::new(PipeShared {
            open: Mutex::new(OpenRequestTable::Calls(HashMap::new())),
            correlate: settings.correlate,
            on_garbage: settings.on_garbage,
            events,
            backlog: settings.backlog,
            limits,
            replies,
            activity: ActivityFlag::default(),
            received: AtomicU64::new(0),
            closed: watch::Sender::new(None),
            mistake: OnceLock::new(),
            stop: CancellationToken::new(),
        });
        let outbox = WriteQueue {
            messages,
            replies: answers,
            shared: shared.clone(),
        };
        (
            RpcPipe {
                shared,
                writer: Mutex::new(Some(to_write)),
                write_room: room,
                events: Mutex::new(Some(event_reader)),
            },
            outbox,
        )
    }

    /// Spawns the reading task. Its end is the end of the pipe.
    fn read(
        &self,
        explain: Option<ExplainEnd>,
        reading: impl Future<Output = LinkError> + Send + 'static,
    ) {
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let end = tokio::select! {
                end = reading => end,
                () = shared.stop.cancelled() => LinkError::Closed("the link was closed".to_owned()),
            };
            shared.fail(match explain {
                Some(explain) => explain(end).await,
                None => end,
            });
        });
    }

    /// Stops reading at once.
    pub(super) fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Closes politely: stops writing, then waits for the server to end the pipe.
    pub(super) async fn close_within(&self, within: Duration) {
        self.close_writer();
        // `stop` cuts off a server that keeps the pipe open.
        let _ = tokio::time::timeout(within, self.closed()).await;
        self.stop();
    }

    /// Registers a request that is sent outside of this pipe. Dropping the returned stream removes
    /// the entry.
    pub(super) fn expect_reply(&self, id: u64) -> Result<MessageStream, LinkError> {
        let receiver = self.register(id)?;
        Ok(PendingRequest {
            id,
            shared: self.shared.clone(),
            receiver,
        }
        .into_messages())
    }

    /// Fails one open request.
    pub(super) fn fail_call(&self, id: u64, error: LinkError) {
        if let OpenRequestTable::Calls(calls) = &mut *self.shared.open.lock()
            && let Some(call) = calls.remove(&id)
        {
            // One slot is reserved for the end of a call. A closed channel means that the call is
            // gone.
            let _ = call.try_send(CallMessage::end(Err(error)));
        }
    }

    /// Ends the pipe for a reason that the reading task cannot see.
    pub(super) fn fail(&self, error: LinkError) {
        self.shared.fail(error);
    }

    /// Stops writing. A child sees the end of its input and exits.
    pub fn close_writer(&self) {
        self.writer.lock().take();
    }

    fn register(&self, id: u64) -> Result<mpsc::Receiver<CallMessage>, LinkError> {
        match &mut *self.shared.open.lock() {
            // The pipe ended before this request was written, so a retry is safe.
            OpenRequestTable::Broken(LinkError::Closed(reason)) => {
                Err(LinkError::NotSent(reason.clone()))
            }
            OpenRequestTable::Broken(error) => Err(error.clone()),
            OpenRequestTable::Calls(calls) => {
                // Registered before the request is written: the answer may come before the write
                // returns.
                let (sender, receiver) = mpsc::channel(CALL_QUEUE);
                calls.insert(id, sender);
                Ok(receiver)
            }
        }
    }

    async fn write(&self, body: Bytes) -> Result<(), LinkError> {
        // Reported as not sent: the writer is gone, so no byte of the message left and a retry is
        // safe.
        let writer = self.writer.lock().clone().ok_or_else(writer_closed)?;
        // A message may be larger than the whole budget. It then takes all of it and is written
        // alone.
        let size =
            write_cost(&body).min(u32::try_from(self.shared.backlog.limit()).unwrap_or(u32::MAX));
        let line = match self.write_room.clone().try_acquire_many_owned(size) {
            Ok(permit) => writer.try_send((body, permit)),
            Err(_) => return self.write_when_room(&writer, body, size).await,
        };
        match line {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(writer_closed()),
            Err(mpsc::error::TrySendError::Full((body, permit))) => {
                // Returned first: the slow path reserves the bytes again.
                drop(permit);
                self.write_when_room(&writer, body, size).await
            }
        }
    }

    async fn write_when_room(
        &self,
        writer: &mpsc::Sender<QueuedLine>,
        body: Bytes,
        size: u32,
    ) -> Result<(), LinkError> {
        let written = async {
            let permit = self
                .write_room
                .clone()
                .acquire_many_owned(size)
                .await
                .ok()?;
            writer.send((body, permit)).await.ok()
        };
        match tokio::time::timeout(WRITE_WAIT, written).await {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(writer_closed()),
            Err(_) => Err(LinkError::QueueFull(
                "the server does not read its input, and too much is waiting for it".to_owned(),
            )),
        }
    }
}

impl RpcPipe {
    pub(super) fn send(
        &self,
        outgoing: OutgoingMessage,
    ) -> BoxFuture<'_, Result<LinkReply, LinkError>> {
        async move {
            let Some(id) = outgoing.id else {
                self.write(outgoing.body).await?;
                return Ok(LinkReply {
                    headers: HeaderMap::new(),
                    status: 200,
                    messages: stream::empty().boxed(),
                });
            };
            let receiver = self.register(id)?;
            // From here on dropping the stream removes the entry, however the call ends.
            let entry = PendingRequest {
                id,
                shared: self.shared.clone(),
                receiver,
            };
            self.write(outgoing.body).await?;
            Ok(LinkReply {
                headers: HeaderMap::new(),
                status: 200,
                messages: entry.into_messages(),
            })
        }
        .boxed()
    }

    pub(super) fn reply(&self, body: Bytes) -> BoxFuture<'_, ()> {
        self.shared.replies.send(body).boxed()
    }

    pub(super) fn open_server_stream(&self) -> BoxFuture<'_, Result<MessageStream, LinkError>> {
        let events = self.events.lock().take();
        async move {
            let mut events = events.ok_or_else(|| {
                LinkError::Protocol("the pipe's events are already being read".into())
            })?;
            Ok(stream::poll_fn(move |cx| events.poll_recv(cx))
                .map(|(message, _)| Ok(message))
                .boxed())
        }
        .boxed()
    }

    pub(super) fn closed(&self) -> BoxFuture<'_, LinkError> {
        let mut closed = self.shared.closed.subscribe();
        async move {
            let reason = closed
                .wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|reason| reason.clone());
            reason.unwrap_or_else(|| LinkError::Closed("the pipe was closed".to_owned()))
        }
        .boxed()
    }

    pub(super) fn take_activity(&self) -> bool {
        self.shared.activity.take()
    }

    /// Returns what is wrong with the server's output, if it has a known mistake.
    pub(super) fn output_mistake(&self) -> Option<&'static str> {
        self.shared.mistake.get().copied()
    }

    pub(super) fn received_count(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }
}

/// Entry of one open request. Dropping it removes the request from the table.
struct PendingRequest {
    id: u64,
    shared: Arc<PipeShared>,
    receiver: mpsc::Receiver<CallMessage>,
}

impl PendingRequest {
    fn into_messages(self) -> MessageStream {
        let mut entry = self;
        stream::poll_fn(move |cx| entry.receiver.poll_recv(cx))
            .map(|waiting| waiting.message)
            .boxed()
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let OpenRequestTable::Calls(calls) = &mut *self.shared.open.lock() {
            calls.remove(&self.id);
        }
    }
}

fn writer_closed() -> LinkError {
    LinkError::NotSent("the server is being stopped".to_owned())
}

#[cfg(test)]
mod tests;
