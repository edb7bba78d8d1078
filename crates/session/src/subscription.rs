//! Resource subscription of a session.
//!
//! Owns the handover from one notification stream to the next. Does not subscribe at a server. Invariant: if several
//! streams arrive before the first is taken, the last one stays.

use parking_lot::Mutex;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use moongate_model::NotificationStream;

/// Subscription, held by the session and by the task that forwards its notifications.
#[derive(Clone)]
pub struct SessionSubscription {
    /// Cancelled when the subscription ends.
    pub ended: CancellationToken,
    fresh: Arc<RenewalSlot>,
}

#[derive(Default)]
struct RenewalSlot {
    notices: Mutex<Option<NotificationStream>>,
    arrived: Notify,
}

impl SessionSubscription {
    pub(super) fn new(ended: CancellationToken) -> Self {
        SessionSubscription { ended, fresh: Arc::default() }
    }

    /// Replaces the notification stream: the client subscribed once more.
    pub fn renew(&self, notices: NotificationStream) {
        *self.fresh.notices.lock() = Some(notices);
        self.fresh.arrived.notify_one();
    }

    /// Waits for the next renewal.
    pub async fn until_renewed(&self) -> NotificationStream {
        loop {
            if let Some(notices) = self.fresh.notices.lock().take() {
                return notices;
            }
            self.fresh.arrived.notified().await;
        }
    }
}
