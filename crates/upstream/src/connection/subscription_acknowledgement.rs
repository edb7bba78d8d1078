//! Acknowledgement of a notification stream. Owns how long a new stream is waited for. Does not open streams.
//! Invariant: a server that never acknowledges delays nobody beyond the time.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use moongate_model::{NotificationStream, SubscriptionFilter};

/// Longest time for a server to acknowledge a subscription.
pub(crate) const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a stream that never yields.
pub(crate) fn no_notifications() -> NotificationStream {
    NotificationStream {
        acknowledged: SubscriptionFilter::default(),
        stream: stream::pending().boxed(),
        established: None,
    }
}

/// Waits until the server acknowledges a subscription, at most until the deadline. Some servers never acknowledge.
pub(crate) async fn wait_acknowledged(opened: Option<CancellationToken>, until: Instant) {
    let Some(opened) = opened else { return };
    // After the time the stream counts as open, since its notifications are read all the same.
    let _ = tokio::time::timeout_at(until, opened.cancelled()).await;
}
