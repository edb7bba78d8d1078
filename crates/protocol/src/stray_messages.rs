//! Stray messages of one call: those that arrived on another stream than its own.
//!
//! Owns the messages until the call takes them. Does not choose the call (`correlation.rs`). Small
//! while it is empty, since every call that accepts input requests has one. Invariant: it is
//! bounded, and gives out each message once.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use moongate_jsonrpc::message::RpcMessage;

/// Limit of messages that wait for one call.
const WAITING_MAX: usize = 16;

/// Queue of one call. Clones share the messages.
#[derive(Clone, Default)]
pub(super) struct StrayMessages(Arc<QueueState>);

#[derive(Default)]
struct QueueState {
    messages: Mutex<VecDeque<RpcMessage>>,
    is_closed: AtomicBool,
    added: Notify,
}

impl StrayMessages {
    /// Adds a message. Returns false if the queue is full, or its call has ended.
    pub(super) fn push(&self, message: RpcMessage) -> bool {
        let mut messages = self.0.messages.lock();
        if messages.len() >= WAITING_MAX || self.0.is_closed.load(Ordering::Relaxed) {
            return false;
        }
        messages.push_back(message);
        // Released first: the woken task takes the same lock.
        drop(messages);
        self.0.added.notify_one();
        true
    }

    /// Closes the queue. Returns the messages that nobody read.
    pub(super) fn close(&self) -> VecDeque<RpcMessage> {
        let mut messages = self.0.messages.lock();
        // Under the lock, which orders it with each push.
        self.0.is_closed.store(true, Ordering::Relaxed);
        std::mem::take(&mut *messages)
    }

    /// True if both are the queue of one call.
    pub(super) fn is_same(&self, other: &StrayMessages) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits for the next message.
    pub(super) async fn next(&self) -> RpcMessage {
        loop {
            let first = self.0.messages.lock().pop_front();
            if let Some(message) = first {
                return message;
            }
            self.0.added.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt;

    use super::*;

    fn message(n: usize) -> RpcMessage {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"roots/list"}}"#);
        RpcMessage::parse(&Bytes::from(text)).unwrap()
    }

    #[tokio::test]
    async fn stray_messages_keep_their_order_and_are_bounded() {
        let queue = StrayMessages::default();
        assert!(queue.next().now_or_never().is_none());
        for n in 0..WAITING_MAX {
            assert!(queue.push(message(n)));
        }
        assert!(!queue.push(message(99)));
        for n in 0..WAITING_MAX as u64 {
            assert_eq!(
                queue.next().await.id().and_then(|id| id.as_number()),
                Some(n)
            );
        }
        let late = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await }
        });
        tokio::task::yield_now().await;
        assert!(queue.push(message(7)));
        assert_eq!(
            late.await.unwrap().id().and_then(|id| id.as_number()),
            Some(7)
        );
        assert!(queue.push(message(8)));
        assert_eq!(queue.close().len(), 1);
        assert!(!queue.push(message(9)), "nobody reads it any more");
    }
}
