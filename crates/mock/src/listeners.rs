//! Listeners: streams that get messages outside of calls.
//!
//! Owns their table, and the choice of those that get a message. Does not own streams. Invariant: a
//! listener that does not read loses messages, and delays nobody.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{change_notice::ChangeNotice, frame::OutgoingFrame, session::MockSession};

/// Limit of listeners. Above it, new ones are refused.
// Refused and not evicted: a listener that vanished unseen would look like a lost notification.
const LISTENERS_MAX: usize = 16_384;

/// Receiver of change notifications.
pub(super) enum ListenTarget {
    /// Legacy session, on its pipe or GET stream.
    Session(Arc<MockSession>),
    /// Modern `subscriptions/listen`, with its request id and the filter it asked for.
    Subscription { id: String, filter: Value },
}

struct ListenEntry {
    number: u64,
    target: ListenTarget,
    out: mpsc::Sender<OutgoingFrame>,
}

/// Listeners of a server, the oldest first.
#[derive(Default)]
pub(super) struct ListenerTable {
    entries: Mutex<Vec<ListenEntry>>,
}

impl ListenerTable {
    /// Registers a listener until the returned guard drops. `None` above the limit. `first` is sent
    /// before any notification.
    pub(super) fn add(
        self: &Arc<Self>,
        number: u64,
        target: ListenTarget,
        out: mpsc::Sender<OutgoingFrame>,
        first: Option<String>,
    ) -> Option<ListenGuard> {
        let mut all = self.entries.lock();
        if all.len() >= LISTENERS_MAX {
            return None;
        }
        // Still under the lock: the acknowledgement must leave before any notification.
        if let Some(first) = first {
            out.try_send(OutgoingFrame::Message(first)).ok()?;
        }
        all.push(ListenEntry {
            number,
            target,
            out,
        });
        Some(ListenGuard {
            listeners: self.clone(),
            number,
        })
    }

    /// Returns the number of listeners.
    pub(super) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Sends a notification to every listener that asked for it. A legacy session gets it once, on
    /// its newest stream.
    pub(super) fn publish(&self, notice: &ChangeNotice) -> usize {
        let all = self.entries.lock();
        let mut notified = HashMap::new();
        let mut delivered = 0;
        // Newest first. Streamable HTTP: "The server MUST send each of its JSON-RPC messages on
        // only one of the connected streams" (2025-11-25, basic/transports).
        for listener in all.iter().rev() {
            let message = match &listener.target {
                ListenTarget::Session(session) if session.is_subscribed_to(notice) => {
                    if notified.insert(session.id.clone(), ()).is_some() {
                        continue;
                    }
                    notice.encode(None)
                }
                ListenTarget::Subscription { id, filter } if notice.is_within(filter) => {
                    notice.encode(Some(id))
                }
                _ => continue,
            };
            // A listener that does not read loses notifications. The server does not wait for it.
            delivered += usize::from(
                listener
                    .out
                    .try_send(OutgoingFrame::Message(message))
                    .is_ok(),
            );
        }
        delivered
    }

    /// Sends a message to a session on its newest stream, outside of any call.
    pub(super) fn send_to_session(&self, session: &str, message: String) -> bool {
        let all = self.entries.lock();
        let newest = all
            .iter()
            .rev()
            .find(|l| matches!(&l.target, ListenTarget::Session(s) if s.id == session));
        newest.is_some_and(|l| l.out.try_send(OutgoingFrame::Message(message)).is_ok())
    }

    /// Forgets listeners of sessions. Dropping a listener's sender ends the stream that reads from
    /// it.
    pub(super) fn remove_sessions(&self, is_dropped: impl Fn(&MockSession) -> bool) {
        self.entries
            .lock()
            .retain(|l| !matches!(&l.target, ListenTarget::Session(s) if is_dropped(s)));
    }
}

/// Registration of a listener, which ends when it drops.
pub(super) struct ListenGuard {
    listeners: Arc<ListenerTable>,
    number: u64,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        self.listeners
            .entries
            .lock()
            .retain(|l| l.number != self.number);
    }
}
