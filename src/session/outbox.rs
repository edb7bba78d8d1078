//! Messages that wait for a session's own stream.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::json::Text;

/// Messages kept while no stream is open; the oldest goes first when there are more.
const KEPT_MAX: usize = 256;

/// A bounded queue with one reader at a time.
#[derive(Default)]
pub struct Outbox {
    waiting: Mutex<VecDeque<Waiting>>,
    added: Notify,
}

struct Waiting {
    message: Bytes,
    /// The resource that it is about, if it is only for those who subscribed to that.
    about: Option<Text>,
}

impl Outbox {
    /// Adds a message; true if an old one had to go.
    pub fn push(&self, message: Bytes, about: Option<Text>) -> bool {
        let mut waiting = self.lock();
        let full = waiting.len() >= KEPT_MAX;
        if full {
            waiting.pop_front();
        }
        waiting.push_back(Waiting { message, about });
        drop(waiting);
        self.added.notify_one();
        full
    }

    /// Takes out what waits about a resource.
    pub(super) fn forget(&self, about: &Text) {
        self.lock().retain(|waiting| waiting.about.as_ref() != Some(about));
    }

    /// Waits for the next message.
    pub async fn next(&self) -> Bytes {
        loop {
            if let Some(next) = self.lock().pop_front() {
                return next.message;
            }
            self.added.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
