//! Acknowledgement of a notification stream. Owns how long a new stream is waited for, and what
//! replaces the updates before it. Does not open streams. Invariant: a server that never
//! acknowledges delays nobody beyond the time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, McpServer, Notification, NotificationStream, SubscriptionFilter};

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

/// Waits until the server acknowledges a subscription, at most until the deadline. Some servers
/// never acknowledge.
pub(crate) async fn wait_acknowledged(opened: Option<CancellationToken>, until: Instant) {
    let Some(opened) = opened else { return };
    // After the time the stream counts as open, since its notifications are read anyway.
    let _ = tokio::time::timeout_at(until, opened.cancelled()).await;
}

/// Updates that replace those for changes of resources before their server had the subscription.
///
/// Calls start before that, and what they change is announced to nobody. An update too many costs a
/// client one read.
#[derive(Default)]
pub(crate) struct EarlyUpdates(FuturesUnordered<BoxFuture<'static, Option<ByteString>>>);

impl EarlyUpdates {
    /// Creates the updates of a stream that was just opened, and that has no other one before it.
    pub(crate) fn of_stream(
        opened: &NotificationStream,
        server: &dyn McpServer,
        caller: &Arc<Caller>,
    ) -> Self {
        let uris = opened.acknowledged.uris.iter();
        EarlyUpdates(
            uris.map(|uri| confirm_update(server, caller, uri))
                .collect(),
        )
    }

    /// Waits until the server has taken the next subscription. Can be cancelled without loss.
    pub(crate) async fn next(&mut self) -> Notification {
        loop {
            match self.0.next().await {
                Some(Some(uri)) => return Notification::updated(&uri),
                Some(None) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Returns the URI once the server has taken its subscription. `None`: it was refused.
fn confirm_update(
    server: &dyn McpServer,
    caller: &Arc<Caller>,
    uri: &ByteString,
) -> BoxFuture<'static, Option<ByteString>> {
    let answer = server.confirm_subscription(caller, uri);
    let uri = uri.clone();
    async move {
        // A resource whose subscription is refused has no updates at all.
        let is_taken = match answer {
            Some(answer) => answer.await.is_ok(),
            None => true,
        };
        is_taken.then_some(uri)
    }
    .boxed()
}
