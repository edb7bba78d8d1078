//! Messages that wait for a session's own stream.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

/// Messages kept while no stream is open; the oldest goes first when there are more.
const KEPT_MAX: usize = 256;

/// A bounded queue with one reader at a time.
#[derive(Default)]
pub struct Outbox {
    waiting: Mutex<VecDeque<Bytes>>,
    added: Notify,
}

impl Outbox {
    /// Adds a message; true if an old one had to go.
    pub fn push(&self, message: Bytes) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let full = waiting.len() >= KEPT_MAX;
        if full {
            waiting.pop_front();
        }
        waiting.push_back(message);
        drop(waiting);
        self.added.notify_one();
        full
    }

    /// Waits for the next message.
    pub async fn next(&self) -> Bytes {
        loop {
            if let Some(message) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
                return message;
            }
            self.added.notified().await;
        }
    }
}
