//! Reading and writing tasks of a pipe.
//!
//! Owns how lines are delimited and what happens to invalid ones. Does not match answers to calls
//! (`rpc_pipe`). Invariant: an over-long line is never buffered whole, and fails the call that it
//! answers.

use std::fmt::Display;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::coop;

use super::pipe_shared::PipeShared;
use super::reply_queue::QueuedLine;
use crate::LinkError;
use crate::foreign_text::describe_foreign;
use crate::partial_id::PartialIdScanner;
use crate::server_text::UnreadText;
use moongate_jsonrpc::message::answered_id;
use moongate_telemetry::SMALL_MESSAGE;

/// Capacity of an empty read buffer, in bytes.
const READ_BUFFER: usize = 16 * 1024;
/// Limit of the bytes that one read takes.
const READ_MAX: usize = 64 * 1024;
/// Limit of messages in one write.
const WRITE_AT_ONCE: usize = 64;
/// Longest time for one write.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// Limit of the write buffer's capacity between two writes, in bytes.
const WRITE_BUFFER_MAX: usize = 256 * 1024;
/// Longest wait for the end of the output once the input is closed.
// The reading task sees the end within milliseconds. Calls wait for the reason meanwhile.
const END_WAIT: Duration = Duration::from_millis(250);

/// Queue of messages and replies, for the task that writes them.
pub(crate) struct WriteQueue {
    pub(super) messages: mpsc::Receiver<QueuedLine>,
    pub(super) replies: mpsc::Receiver<QueuedLine>,
    pub(super) shared: Arc<PipeShared>,
}

impl WriteQueue {
    /// Waits for messages and takes a bounded number of them. False once no more will come.
    pub(crate) async fn next(&mut self, lines: &mut Vec<QueuedLine>) -> bool {
        poll_fn(|cx| {
            // Replies first: the answer to a ping must not wait behind queued calls.
            match self.replies.poll_recv_many(cx, lines, WRITE_AT_ONCE) {
                Poll::Ready(1..) => Poll::Ready(true),
                _ => self
                    .messages
                    .poll_recv_many(cx, lines, WRITE_AT_ONCE)
                    .map(|taken| taken > 0),
            }
        })
        .await
    }

    /// Returns only the replies, for transports that send calls themselves. The stream ends with
    /// the pipe.
    pub(crate) fn into_replies(self) -> impl Stream<Item = Bytes> + Send {
        // Taken before the replies are moved out of `self`.
        let failed = self.failed();
        let mut answers = self.replies;
        let answers = stream::poll_fn(move |cx| answers.poll_recv(cx)).map(|(answer, _)| answer);
        answers.take_until(failed)
    }

    /// Runs a write. False if it failed, and with it the pipe.
    pub(crate) async fn run_write<E: Display>(
        &self,
        writing: impl Future<Output = Result<(), E>>,
    ) -> bool {
        // A server that does not read its input is as useless as one whose input is closed.
        let failure = match tokio::time::timeout(WRITE_TIME, writing).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it does not read: it accepted nothing for {WRITE_TIME:?}"),
        };
        // Mostly the server has exited and its output is about to end. The reading task then knows
        // the reason.
        let _ = tokio::time::timeout(
            END_WAIT,
            self.shared.closed.subscribe().wait_for(Option::is_some),
        )
        .await;
        self.fail(LinkError::Closed(format!(
            "the server accepts no input: {failure}"
        )));
        false
    }

    /// Waits for the end of the pipe.
    pub(crate) fn failed(&self) -> impl Future<Output = ()> + use<> {
        let mut closed = self.shared.closed.subscribe();
        async move {
            let _ = closed.wait_for(Option::is_some).await;
        }
    }

    /// Ends the pipe.
    pub(crate) fn fail(&self, error: LinkError) {
        self.shared.fail(error);
        self.shared.stop.cancel();
    }
}

pub(super) async fn write_lines<W: AsyncWrite + Unpin>(mut writer: W, mut outbox: WriteQueue) {
    let mut lines = Vec::new();
    let mut buffer = BytesMut::new();
    while outbox.next(&mut lines).await {
        for (line, _permit) in lines.drain(..) {
            // A line break inside would end the message early. JSON allows it only as white space
            // between tokens, where a space means the same. 2026-07-28/basic/transports/stdio.mdx:
            // messages "MUST NOT contain embedded newlines".
            let mut rest = &line[..];
            while let Some(newline) = memchr::memchr2(b'\n', b'\r', rest) {
                buffer.extend_from_slice(&rest[..newline]);
                buffer.extend_from_slice(b" ");
                rest = &rest[newline + 1..];
            }
            buffer.extend_from_slice(rest);
            buffer.extend_from_slice(b"\n");
        }
        let writing = async {
            writer.write_all(&buffer).await?;
            writer.flush().await
        };
        if !outbox.run_write(writing).await {
            return;
        }
        buffer.clear();
        // One large message must not hold its memory for ever.
        if buffer.capacity() > WRITE_BUFFER_MAX {
            buffer = BytesMut::new();
        }
    }
}

/// Returns the bytes that a message takes of the write budget.
pub(super) fn write_cost(body: &Bytes) -> u32 {
    u32::try_from(body.len()).unwrap_or(u32::MAX)
}

pub(super) async fn read_lines<R: AsyncRead + Unpin>(
    mut reader: R,
    shared: &PipeShared,
    limit: usize,
    closed: &'static str,
) -> LinkError {
    let mut buffer = BytesMut::with_capacity(READ_BUFFER);
    let mut reservation = shared.backlog.memory.begin();
    let mut scanned = 0;
    // Scanner of a line that is too long or found no memory. The line is dropped, except for the id
    // of the call that it answers.
    let mut skipping: Option<(PartialIdScanner, LinkError)> = None;
    let mut replies = Vec::new();
    loop {
        while let Some(newline) = memchr::memchr(b'\n', &buffer[scanned..]) {
            let line = split_line(&mut buffer, scanned + newline + 1);
            scanned = 0;
            match skipping.take() {
                Some((mut scan, reason)) => shared.fail_dropped(scan.feed_answer(&line), &reason),
                // The line arrived in one read, but is still over the limit.
                None if line.len() - 1 > limit => {
                    let reason = LinkError::TooLarge { limit };
                    (shared.on_garbage)(too_long(limit).as_bytes());
                    shared.fail_dropped(PartialIdScanner::default().feed_answer(&line), &reason);
                }
                None => {
                    take_line(reservation.take().attach(line), shared, &mut replies);
                    // A server that floods the pipe must let other tasks run.
                    coop::consume_budget().await;
                }
            }
            if !replies.is_empty() {
                shared.send_owed_replies(&mut replies).await;
            }
        }
        // The next search starts here, so that a line in many pieces is scanned once.
        scanned = buffer.len();
        if skipping.is_none() {
            let dropped = if scanned > limit {
                (shared.on_garbage)(too_long(limit).as_bytes());
                Some(LinkError::TooLarge { limit })
            } else {
                reservation.cover(scanned).err().map(LinkError::from)
            };
            skipping = dropped.map(|reason| (PartialIdScanner::default(), reason));
        }
        if let Some((scan, reason)) = &mut skipping {
            shared.fail_dropped(scan.feed_answer(&buffer), reason);
            // Not only cleared: what the line took has to be free for others.
            buffer = BytesMut::with_capacity(READ_BUFFER);
            drop(reservation.take());
            scanned = 0;
        }
        // Without room, `read_buf` would grow the buffer by only 64 bytes at a time.
        buffer.reserve(8 * 1024);
        match reader.read_buf(&mut (&mut buffer).limit(READ_MAX)).await {
            // A last line without a line break is incomplete and dropped.
            Ok(0) => return LinkError::Closed(closed.to_owned()),
            Ok(_) => {}
            Err(e) => return LinkError::Closed(format!("reading from the server failed: {e}")),
        }
    }
}

/// Takes a line from the front of the buffer. A long one takes the buffer's memory along: small
/// lines after it would keep all of it, although nothing is reserved for them.
fn split_line(buffer: &mut BytesMut, length: usize) -> Bytes {
    let line = buffer.split_to(length).freeze();
    if length > SMALL_MESSAGE {
        let mut rest = BytesMut::with_capacity(buffer.len().max(READ_BUFFER));
        rest.extend_from_slice(buffer);
        *buffer = rest;
    }
    line
}

fn too_long(limit: usize) -> String {
    format!("a line longer than max_message = {limit} bytes")
}

/// Handles one message or a batch. Replies that the server must get are added to `owed`.
pub(super) fn take_line(line: Bytes, shared: &PipeShared, replies: &mut Vec<Bytes>) {
    let on_garbage = &shared.on_garbage;
    // Some Windows programs start their output with a byte order mark.
    let mut text = line.trim_ascii();
    text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    if text.is_empty() {
        return;
    }
    let text = line.slice_ref(text);
    // Revision 2025-03-26 has batches, and its servers may send them.
    match shared.limits.read(&text) {
        Ok(read) => {
            if read.is_mended {
                shared.backlog.mended.inc();
            }
            shared.deliver_payload(read.payload, &read.text, replies);
        }
        Err(UnreadText::NoRoom(reason)) => shared.fail_dropped(answered_id(&text), &reason),
        Err(UnreadText::Malformed(wrong)) => {
            on_garbage(&text);
            if let Some(mistake) = describe_foreign(&line) {
                // The first one is kept. A server has one way of writing.
                let _ = shared.mistake.set(mistake);
            }
            shared.fail_malformed(&text, &wrong);
        }
    }
}
