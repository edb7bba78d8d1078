//! Messages that wait for a session's GET stream.
//!
//! Owns the queue and its bounds. Does not send them. Invariant: bounded in number and bytes, for
//! one session and for all. The oldest makes room, and a message without room counts as dropped.

use parking_lot::Mutex;
use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::fair_budget::PrincipalShare;
use moongate_jsonrpc::json::ByteString;
use moongate_telemetry::CounterHandle;

/// Maximum number of messages queued while no stream is open. The oldest goes first.
const MESSAGES_MAX: usize = 256;

/// Bounded queue with one reader at a time.
pub struct Outbox {
    queued: Mutex<OutboxMessages>,
    added: Notify,
    bytes_max: usize,
    share: PrincipalShare,
    dropped: CounterHandle,
}

#[derive(Default)]
struct OutboxMessages {
    messages: VecDeque<OutboxMessage>,
    bytes: usize,
}

struct OutboxMessage {
    message: Bytes,
    /// Resource that the message is about, if it is only for its subscribers.
    about: Option<ByteString>,
}

impl Outbox {
    pub(super) fn new(bytes_max: usize, share: PrincipalShare, dropped: CounterHandle) -> Self {
        Outbox {
            queued: Mutex::default(),
            added: Notify::new(),
            bytes_max,
            share,
            dropped,
        }
    }

    /// Queues a message. Returns true if one was dropped: an old one, or this one if nothing fits.
    pub fn push(&self, message: Bytes, about: Option<ByteString>) -> bool {
        let mut queued = self.queued.lock();
        let size = message.len();
        let mut dropped = 0;
        let fits = size <= self.bytes_max
            && loop {
                let full =
                    queued.messages.len() >= MESSAGES_MAX || queued.bytes + size > self.bytes_max;
                if !full && self.share.try_reserve(size) {
                    break true;
                }
                // The newest message is worth more. After a change of a list, an older notice of it
                // says nothing new.
                if self.pop(&mut queued).is_none() {
                    break false;
                }
                dropped += 1;
            };
        if fits {
            queued.bytes += size;
            queued.messages.push_back(OutboxMessage { message, about });
        } else {
            dropped += 1;
        }
        // Released first: the woken reader takes the same lock.
        drop(queued);
        self.dropped.inc_by(dropped);
        self.added.notify_one();
        dropped > 0
    }

    /// Returns true if no message is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queued.lock().messages.is_empty()
    }

    /// Removes the queued messages about a resource.
    pub(super) fn remove_about(&self, about: &ByteString) {
        let mut queued = self.queued.lock();
        let before = queued.bytes;
        queued
            .messages
            .retain(|queued| queued.about.as_ref() != Some(about));
        queued.bytes = queued
            .messages
            .iter()
            .map(|queued| queued.message.len())
            .sum();
        // Recounted instead of summed up: the share must get back exactly what the queue gave up.
        self.share.release(before - queued.bytes);
    }

    /// Waits for the next message.
    pub async fn next(&self) -> Bytes {
        loop {
            if let Some(next) = self.pop(&mut self.queued.lock()) {
                return next.message;
            }
            // `notify_one` leaves a permit, so a message pushed before this wait is not missed.
            self.added.notified().await;
        }
    }

    fn pop(&self, queued: &mut OutboxMessages) -> Option<OutboxMessage> {
        let first = queued.messages.pop_front()?;
        queued.bytes -= first.message.len();
        self.share.release(first.message.len());
        Some(first)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // The shared budget outlives the session.
        let bytes = self.queued.lock().bytes;
        self.share.release(bytes);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::fair_budget::FairByteBudget;
    use moongate_telemetry::DroppedItem;
    use moongate_telemetry::Metrics;
    use moongate_testing::principal;

    fn message(byte: u8, size: usize) -> Bytes {
        Bytes::from(vec![byte; size])
    }

    #[tokio::test]
    async fn the_outbox_is_bounded_in_bytes_and_evicts_the_oldest() {
        let metrics = Metrics::new();
        let budget = FairByteBudget::new(10_000, metrics.clients.outbox_bytes.clone());
        let share = budget.share(&principal(1));
        let dropped = metrics.calls.dropped.series(DroppedItem::Outbox);
        let outbox = Outbox::new(100, share, dropped.clone());
        assert!(
            !outbox.push(message(1, 40), Some(ByteString::literal("a")))
                && !outbox.push(message(2, 60), None)
        );
        assert_eq!(metrics.clients.outbox_bytes.get(), 100);
        assert!(
            outbox.push(message(3, 10), None),
            "the oldest one makes room"
        );
        assert_eq!(metrics.clients.outbox_bytes.get(), 70);
        assert_eq!(dropped.get(), 1);
        assert!(
            outbox.push(message(4, 101), None),
            "what is larger than all has no room"
        );
        assert_eq!(metrics.clients.outbox_bytes.get(), 70);
        assert_eq!(dropped.get(), 2);
        assert_eq!(outbox.next().now_or_never().unwrap()[0], 2);
        outbox.push(message(5, 20), Some(ByteString::literal("b")));
        outbox.remove_about(&ByteString::literal("b"));
        assert_eq!(outbox.next().now_or_never().unwrap()[0], 3);
        assert!(outbox.next().now_or_never().is_none());
        assert_eq!(metrics.clients.outbox_bytes.get(), 0);
        outbox.push(message(6, 30), None);
        drop(outbox);
        assert_eq!(metrics.clients.outbox_bytes.get(), 0);
    }
}
