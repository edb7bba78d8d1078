//! One subscription of a session.
//!
//! Owns the way in which another listener takes the place of the one that is heard for it. Does not listen. Invariant: of
//! several that come before the first is taken, the last one stays.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::model::NotificationStream;

/// A subscription, as the session keeps it, and as whoever hears for it holds it.
#[derive(Clone)]
pub struct SessionSubscription {
    /// Cancelled when it ends.
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

    /// The client subscribed once more: this is heard in place of what was.
    pub fn renew(&self, notices: NotificationStream) {
        *self.fresh.notices.lock().unwrap_or_else(PoisonError::into_inner) = Some(notices);
        self.fresh.arrived.notify_one();
    }

    /// Waits until it is renewed.
    pub async fn until_renewed(&self) -> NotificationStream {
        loop {
            if let Some(notices) = self.fresh.notices.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return notices;
            }
            self.fresh.arrived.notified().await;
        }
    }
}
