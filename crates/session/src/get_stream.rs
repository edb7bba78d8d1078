//! GET stream of a session, as the session sees it between two connections of its client.
//!
//! Owns the messages that wait for the stream, and its subscription while no connection is open.
//! Does not write the stream. Invariant: a session has one open stream, and one that starts ends
//! the one before.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::outbox::Outbox;
use moongate_model::NotificationStream;

/// State of a session's GET stream that outlives a connection.
pub struct GetStreamState {
    /// Messages for the stream.
    pub outbox: Outbox,
    /// Cancelled when another connection takes over, or the stream ends.
    open: Mutex<CancellationToken>,
    /// Notifications of a stream that broke off. They stay subscribed until the client comes back.
    retained: Mutex<Option<NotificationStream>>,
    /// True if `retained` has already received one.
    has_unread: AtomicBool,
}

impl GetStreamState {
    pub(super) fn new(outbox: Outbox) -> Self {
        GetStreamState {
            outbox,
            open: Mutex::default(),
            retained: Mutex::default(),
            has_unread: AtomicBool::new(false),
        }
    }

    /// Starts a stream under `token` and ends the one before. A client that opens a second stream
    /// has lost the first.
    pub(super) fn open(&self, token: CancellationToken) {
        // 2025-11-25/basic/transports.mdx, Multiple Connections: the server "MUST NOT broadcast the
        // same message across multiple streams". Two open streams would need a choice for each
        // message.
        std::mem::replace(&mut *self.open.lock(), token).cancel();
    }

    /// Ends the stream. The session stays.
    pub(super) fn close(&self) {
        self.open.lock().cancel();
    }

    pub(super) fn retain(&self, notifications: NotificationStream) {
        let mut retained = self.retained.lock();
        self.has_unread.store(false, Ordering::Relaxed);
        *retained = Some(notifications);
    }

    /// Takes the retained notifications, if there are any.
    pub fn take_retained(&self) -> Option<NotificationStream> {
        self.retained.lock().take()
    }

    pub(super) fn has_retained(&self) -> bool {
        self.retained.lock().is_some()
    }

    /// Returns true if the retained notifications hold one that the client has not seen.
    pub(super) fn has_unread(&self) -> bool {
        let mut retained = self.retained.lock();
        let Some(notifications) = retained.as_mut() else {
            return false;
        };
        // Found once, it stays found. Looking again would only wrap the stream again.
        if !self.has_unread.load(Ordering::Relaxed) {
            // Unconstrained, because a spent cooperative budget would make a ready stream look
            // empty.
            let received = unconstrained(notifications.stream.next())
                .now_or_never()
                .flatten();
            if let Some(first) = received {
                self.has_unread.store(true, Ordering::Relaxed);
                let rest = std::mem::replace(&mut notifications.stream, stream::pending().boxed());
                // The look must not consume: the next connection of the client gets this
                // notification first.
                notifications.stream = stream::once(std::future::ready(first)).chain(rest).boxed();
            }
        }
        self.has_unread.load(Ordering::Relaxed)
    }
}
