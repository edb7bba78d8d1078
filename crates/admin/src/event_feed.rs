//! Bounded queue between the change poller and event streams.
//!
//! Owns the feed, its slots for watchers and its bounds. Does not find changes
//! (`change_poller.rs`). Invariant: the events that wait for slow watchers are bounded in number
//! and in bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

/// Events that wait for a watcher at most. One that falls behind gets a new snapshot.
const QUEUE_MAX: usize = 256;
/// Bytes of the events that wait for watchers at most, for all watchers together. The last event is
/// always kept.
const QUEUE_BYTES_MAX: usize = 256 * 1024;

/// Event for watchers: its kind, and a whole object as JSON.
#[derive(Clone, Debug)]
pub(super) struct AdminEvent {
    pub(super) kind: &'static str,
    pub(super) data: String,
}

impl AdminEvent {
    /// Writes an event.
    pub(super) fn new(kind: &'static str, data: &impl Serialize) -> Self {
        // Fails only for maps whose keys are not strings, and there are none.
        AdminEvent {
            kind,
            data: serde_json::to_string(data).unwrap_or_default(),
        }
    }
}

/// Feed of changes.
pub struct EventFeed {
    slots: Arc<Semaphore>,
    /// Weak, so that a watcher that reads nothing keeps nothing.
    sender: broadcast::Sender<Weak<AdminEvent>>,
    is_polling: Mutex<bool>,
}

/// Watcher of the feed. Its slot is free again when it is dropped.
pub(super) struct FeedWatcher {
    pub(super) events: broadcast::Receiver<Weak<AdminEvent>>,
    _slot: OwnedSemaphorePermit,
}

/// Events that watchers can still read, the last ones.
#[derive(Default)]
pub(super) struct KeptEvents {
    events: VecDeque<Arc<AdminEvent>>,
    bytes: usize,
}

impl KeptEvents {
    /// Keeps an event. The oldest ones make room.
    pub(super) fn push(&mut self, event: AdminEvent) -> Weak<AdminEvent> {
        let event = Arc::new(event);
        self.bytes += event.data.len();
        self.events.push_back(event.clone());
        while self.events.len() > 1
            && (self.bytes > QUEUE_BYTES_MAX || self.events.len() > QUEUE_MAX)
        {
            self.bytes -= self
                .events
                .pop_front()
                .map_or(0, |oldest| oldest.data.len());
        }
        Arc::downgrade(&event)
    }
}

impl EventFeed {
    /// Creates a feed for at most this many watchers.
    pub fn new(watchers_max: usize) -> Self {
        let sender = broadcast::Sender::new(QUEUE_MAX);
        EventFeed {
            slots: Arc::new(Semaphore::new(watchers_max)),
            sender,
            is_polling: Mutex::new(false),
        }
    }

    /// Adds a watcher, or returns `None` if there are too many. `start` runs if no task looks for
    /// changes yet.
    pub(super) fn watch(&self, start: impl FnOnce()) -> Option<FeedWatcher> {
        let slot = self.slots.clone().try_acquire_owned().ok()?;
        // Subscribed before the lock, so that a task about to stop counts this watcher.
        let events = self.sender.subscribe();
        let mut is_polling = self.is_polling.lock();
        if !*is_polling {
            *is_polling = true;
            start();
        }
        Some(FeedWatcher {
            events,
            _slot: slot,
        })
    }

    /// Sends an event to all watchers.
    pub(super) fn send(&self, event: Weak<AdminEvent>) {
        // Fails if nobody watches any more, which the task notices on its own.
        let _ = self.sender.send(event);
    }

    /// Returns true if nobody watches. The next watcher then starts a new task.
    pub(super) fn stop_if_unwatched(&self) -> bool {
        let mut is_polling = self.is_polling.lock();
        // Counted under the lock: a watcher that comes now starts its own task.
        let unwatched = self.sender.receiver_count() == 0;
        if unwatched {
            *is_polling = false;
        }
        unwatched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(bytes: usize) -> AdminEvent {
        AdminEvent {
            kind: "server",
            data: "x".repeat(bytes),
        }
    }

    #[test]
    fn what_waits_for_watchers_is_bounded_in_bytes() {
        let mut kept = KeptEvents::default();
        let sent: Vec<Weak<AdminEvent>> = (0..100).map(|_| kept.push(event(10_000))).collect();
        assert_eq!(
            sent.iter()
                .filter(|event| event.upgrade().is_some())
                .count(),
            26
        );
        assert!(sent[99].upgrade().is_some() && kept.bytes <= QUEUE_BYTES_MAX);
        let large = kept.push(event(1_000_000));
        assert!(
            large.upgrade().is_some() && kept.events.len() == 1,
            "the last one is kept"
        );
    }
}
