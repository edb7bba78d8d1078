//! One subscription of a session.
//!
//! Owns the way in which another listener takes the place of the one that is heard for it. Does not listen. Invariant: of
//! several that come before the first is taken, the last one stays.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::model::Notices;

/// A subscription, as the session keeps it, and as whoever hears for it holds it.
#[derive(Clone)]
pub struct Subscription {
    /// Cancelled when it ends.
    pub ended: CancellationToken,
    fresh: Arc<Fresh>,
}

#[derive(Default)]
struct Fresh {
    notices: Mutex<Option<Notices>>,
    there: Notify,
}

impl Subscription {
    pub(super) fn new(ended: CancellationToken) -> Self {
        Subscription { ended, fresh: Arc::default() }
    }

    /// The client subscribed once more: this is heard in place of what was.
    pub fn renew(&self, notices: Notices) {
        *self.fresh.notices.lock().unwrap_or_else(PoisonError::into_inner) = Some(notices);
        self.fresh.there.notify_one();
    }

    /// Waits until it is renewed.
    pub async fn renewed(&self) -> Notices {
        loop {
            if let Some(notices) = self.fresh.notices.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return notices;
            }
            self.fresh.there.notified().await;
        }
    }
}
