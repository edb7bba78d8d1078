//! Resource subscriptions of a session.
//!
//! Owns their limit, and the handover from one notification stream to the next. Does not subscribe
//! at a server. Invariant: no message about a resource leaves after its subscription has ended.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::outbox::Outbox;
use moongate_jsonrpc::json::ByteString;
use moongate_model::NotificationStream;

/// Outcome of a subscribe request.
pub enum SubscribeOutcome {
    /// New subscription.
    New(SessionSubscription),
    /// Existing subscription.
    Already(SessionSubscription),
    /// Too many subscriptions in this session.
    TooMany,
}

/// Subscriptions of one session, by URI.
pub struct SessionSubscriptions {
    max: usize,
    by_uri: Mutex<HashMap<ByteString, SessionSubscription>>,
}

impl SessionSubscriptions {
    pub(super) fn new(max: usize) -> Self {
        SessionSubscriptions {
            max,
            by_uri: Mutex::default(),
        }
    }

    /// Adds a subscription that ends with its session.
    pub(super) fn add(
        &self,
        uri: &ByteString,
        session_ended: &CancellationToken,
    ) -> SubscribeOutcome {
        let mut by_uri = self.by_uri.lock();
        if let Some(subscription) = by_uri.get(uri) {
            // Asked before the limit: a client that repeats its subscription needs no more room.
            return SubscribeOutcome::Already(subscription.clone());
        }
        if by_uri.len() >= self.max {
            return SubscribeOutcome::TooMany;
        }
        let subscription = SessionSubscription::new(session_ended.child_token());
        by_uri.insert(uri.clone(), subscription.clone());
        SubscribeOutcome::New(subscription)
    }

    /// Ends a subscription and removes its messages from `outbox`. Returns false if there is none.
    pub(super) fn remove(&self, uri: &ByteString, outbox: &Outbox) -> bool {
        let mut by_uri = self.by_uri.lock();
        let Some(subscription) = by_uri.remove(uri) else {
            return false;
        };
        // Cancelled and removed under one lock, so that `queue_update` queues nothing afterwards.
        subscription.ended.cancel();
        outbox.remove_about(uri);
        true
    }

    /// Queues a message about a subscribed resource. Returns false if the subscription has ended.
    pub(super) fn queue_update(
        &self,
        outbox: &Outbox,
        (uri, subscription): (&ByteString, &SessionSubscription),
        message: Bytes,
    ) -> bool {
        // `remove` takes this lock too: a message is either queued before it and removed, or never
        // queued.
        let _held = self.by_uri.lock();
        let live = !subscription.ended.is_cancelled();
        if live {
            outbox.push(message, Some(uri.clone()));
        }
        live
    }

    /// Removes all subscriptions of a session that has ended.
    pub(super) fn clear(&self) {
        self.by_uri.lock().clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_uri.lock().is_empty()
    }

    /// Returns the resources that the session is subscribed to.
    pub fn uris(&self) -> Vec<ByteString> {
        self.by_uri.lock().keys().cloned().collect()
    }
}

/// Subscription, held by the session and by the task that forwards its notifications.
#[derive(Clone)]
pub struct SessionSubscription {
    /// Cancelled when the subscription ends.
    pub ended: CancellationToken,
    renewal: Arc<RenewalSlot>,
}

#[derive(Default)]
struct RenewalSlot {
    notifications: Mutex<Option<NotificationStream>>,
    arrived: Notify,
}

impl SessionSubscription {
    fn new(ended: CancellationToken) -> Self {
        SessionSubscription {
            ended,
            renewal: Arc::default(),
        }
    }

    /// Replaces the notification stream: the client subscribed again. The last of several that were
    /// not taken stays.
    pub fn renew(&self, notifications: NotificationStream) {
        // Stored before the signal: the forwarding task looks first and waits only if nothing is
        // there.
        *self.renewal.notifications.lock() = Some(notifications);
        self.renewal.arrived.notify_one();
    }

    /// Waits for the next renewal.
    pub async fn until_renewed(&self) -> NotificationStream {
        loop {
            if let Some(notifications) = self.renewal.notifications.lock().take() {
                return notifications;
            }
            // `notify_one` keeps a permit: a renewal between the look and this wait is not missed.
            self.renewal.arrived.notified().await;
        }
    }
}
