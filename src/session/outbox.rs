//! Messages that wait for a session's own stream.
//!
//! Invariant: they are bounded in number and in bytes, for the session and for all; the oldest makes room, and what
//! has none is counted as dropped.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::json::Text;
use crate::session::budget::Share;
use crate::telemetry::Counter;

/// Messages kept while no stream is open; the oldest goes first when there are more.
const KEPT_MAX: usize = 256;

/// A bounded queue with one reader at a time.
pub struct Outbox {
    waiting: Mutex<Kept>,
    added: Notify,
    most: usize,
    share: Share,
    dropped: Counter,
}

#[derive(Default)]
struct Kept {
    messages: VecDeque<Waiting>,
    bytes: usize,
}

struct Waiting {
    message: Bytes,
    /// The resource that it is about, if it is only for those who subscribed to that.
    about: Option<Text>,
}

impl Outbox {
    pub(super) fn new(most: usize, share: Share, dropped: Counter) -> Self {
        Outbox { waiting: Mutex::default(), added: Notify::new(), most, share, dropped }
    }

    /// Adds a message; true if one had to go: an old one, or this one where it has no room at all.
    pub fn push(&self, message: Bytes, about: Option<Text>) -> bool {
        let mut waiting = self.lock();
        let size = message.len();
        let mut gone = 0;
        let fits = size <= self.most
            && loop {
                let full = waiting.messages.len() >= KEPT_MAX || waiting.bytes + size > self.most;
                if !full && self.share.take(size) {
                    break true;
                }
                if self.pop(&mut waiting).is_none() {
                    break false;
                }
                gone += 1;
            };
        if fits {
            waiting.bytes += size;
            waiting.messages.push_back(Waiting { message, about });
        } else {
            gone += 1;
        }
        drop(waiting);
        self.dropped.inc_by(gone);
        self.added.notify_one();
        gone > 0
    }

    /// Finds out whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().messages.is_empty()
    }

    /// Takes out what waits about a resource.
    pub(super) fn forget(&self, about: &Text) {
        let mut waiting = self.lock();
        let before = waiting.bytes;
        waiting.messages.retain(|waiting| waiting.about.as_ref() != Some(about));
        waiting.bytes = waiting.messages.iter().map(|waiting| waiting.message.len()).sum();
        self.share.give_back(before - waiting.bytes);
    }

    /// Waits for the next message.
    pub async fn next(&self) -> Bytes {
        loop {
            if let Some(next) = self.pop(&mut self.lock()) {
                return next.message;
            }
            self.added.notified().await;
        }
    }

    fn pop(&self, waiting: &mut Kept) -> Option<Waiting> {
        let first = waiting.messages.pop_front()?;
        waiting.bytes -= first.message.len();
        self.share.give_back(first.message.len());
        Some(first)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let bytes = self.lock().bytes;
        self.share.give_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::model::Principal;
    use crate::session::budget::Budget;
    use crate::telemetry::Metrics;

    #[tokio::test]
    async fn it_is_bounded_in_bytes_and_the_oldest_makes_room() {
        let metrics = Metrics::new();
        let budget = Budget::new(10_000, metrics.outbox_bytes.clone());
        let share = budget.share(&Principal { name: "p".to_owned(), id: 1 });
        let dropped = metrics.dropped.with_label_values(&["outbox"]);
        let outbox = Outbox::new(100, share, dropped.clone());
        let of = |byte: u8, size: usize| Bytes::from(vec![byte; size]);
        assert!(!outbox.push(of(1, 40), Some(Text::literal("a"))) && !outbox.push(of(2, 60), None));
        assert_eq!(metrics.outbox_bytes.get(), 100);
        assert!(outbox.push(of(3, 10), None), "the oldest one makes room");
        assert_eq!((metrics.outbox_bytes.get(), dropped.get()), (70, 1));
        assert!(outbox.push(of(4, 101), None), "what is larger than all has no room");
        assert_eq!((metrics.outbox_bytes.get(), dropped.get()), (70, 2));
        assert_eq!(outbox.next().now_or_never().unwrap()[0], 2);
        outbox.push(of(5, 20), Some(Text::literal("b")));
        outbox.forget(&Text::literal("b"));
        assert_eq!(outbox.next().now_or_never().unwrap()[0], 3);
        assert!(outbox.next().now_or_never().is_none());
        assert_eq!(metrics.outbox_bytes.get(), 0);
        outbox.push(of(6, 30), None);
        drop(outbox);
        assert_eq!(metrics.outbox_bytes.get(), 0);
    }
}
