//! Updates of one subscribed resource, on their way to the session's stream.
//!
//! Owns the task that forwards them. Does not write the stream (`get_stream.rs`). Invariant: a
//! client that unsubscribed gets no further updates.

use std::sync::Weak;

use futures_util::StreamExt;

use crate::legacy::downstream::get_stream::encode_notification;
use moongate_jsonrpc::json::ByteString;
use moongate_model::NotificationStream;
use moongate_session::{Session, SessionSubscription};

/// Forwards the updates of one subscription to the session's stream, until the subscription or the
/// session ends.
pub(crate) async fn forward_subscription(
    uri: ByteString,
    mut notifications: NotificationStream,
    session: Weak<Session>,
    subscription: SessionSubscription,
) {
    let mut ended = false;
    loop {
        let notification = tokio::select! {
            biased;
            () = subscription.ended.cancelled() => return,
            notification = notifications.stream.next(), if !ended => notification,
            // Updates that arrived before the renewal go out first.
            renewed = subscription.until_renewed() => {
                (notifications, ended) = (renewed, false);
                continue;
            }
        };
        let Some(notification) = notification else {
            ended = true;
            continue;
        };
        let Some(session) = session.upgrade() else {
            return;
        };
        // A client that unsubscribed gets no further updates, even those that happened before.
        if let Some(message) = encode_notification(&notification)
            && !session.update(&uri, &subscription, message)
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{FutureExt, stream};
    use moongate_model::{Notification, SubscriptionFilter};
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use moongate_jsonrpc::json::JsonObject;
    use moongate_model::{Caller, LogFilter};
    use moongate_session::{ReplaySettings, SessionSettings, Sessions, SubscribeOutcome};
    use moongate_telemetry::Metrics;

    fn session() -> Arc<Session> {
        let replay = ReplaySettings {
            bytes: 1000,
            total: 1000,
            events: 10,
            time: Duration::from_secs(60),
        };
        let settings = SessionSettings {
            max: 1,
            idle: Duration::from_secs(60),
            replay,
            outbox: 10_000,
            outbox_total: 100_000,
            subscriptions: 10,
        };
        let caller = Caller {
            log_filter: LogFilter::ServerDecides,
            ..Caller::without_capabilities(moongate_testing::principal(1))
        };
        Sessions::new(settings, Arc::new(Metrics::new()))
            .open(caller, ByteString::literal(""), None)
            .unwrap()
    }

    /// Returns the notifications of a resource that was updated some times.
    fn updates(count: usize) -> NotificationStream {
        let updated =
            Notification::ResourceUpdated(ByteString::literal("a://1"), JsonObject::new());
        NotificationStream {
            acknowledged: SubscriptionFilter::default(),
            stream: stream::iter(vec![updated; count]).boxed(),
            established: None,
        }
    }

    fn new_subscription(outcome: SubscribeOutcome) -> SessionSubscription {
        match outcome {
            SubscribeOutcome::New(subscription) => subscription,
            _ => panic!("the session was not subscribed"),
        }
    }

    #[tokio::test]
    async fn an_ended_subscription_gets_no_more_updates() {
        let session = session();
        let uri = ByteString::literal("a://1");
        // Updates queued for the stream leave with their subscription when the client unsubscribes.
        // Nothing else does.
        let other = new_subscription(session.subscribe(&ByteString::literal("a://2")));
        assert!(session.update(
            &ByteString::literal("a://2"),
            &other,
            Bytes::from_static(b"two")
        ));
        let first = new_subscription(session.subscribe(&uri));
        assert!(
            forward_subscription(
                uri.clone(),
                updates(3),
                Arc::downgrade(&session),
                first.clone()
            )
            .now_or_never()
            .is_none()
        );
        session.unsubscribe(&uri);
        assert_eq!(
            session.get_stream.outbox.next().now_or_never().as_deref(),
            Some(&b"two"[..])
        );
        assert!(
            session.get_stream.outbox.next().now_or_never().is_none(),
            "one about the resource was still waiting"
        );
        // An update on its way goes no further after the client unsubscribed, even if it subscribed
        // again by then.
        let again = new_subscription(session.subscribe(&uri));
        assert!(!session.update(&uri, &first, Bytes::from_static(b"late")));
        assert!(session.get_stream.outbox.next().now_or_never().is_none());
        assert!(session.update(&uri, &again, Bytes::from_static(b"new")));
        assert!(session.get_stream.outbox.next().now_or_never().is_some());
    }
    #[tokio::test]
    async fn a_subscription_that_is_renewed_goes_on() {
        let session = session();
        let uri = ByteString::literal("a://1");
        let SubscribeOutcome::New(subscription) = session.subscribe(&uri) else {
            panic!("it is new")
        };
        let mut forwarding = Box::pin(forward_subscription(
            uri.clone(),
            updates(1),
            Arc::downgrade(&session),
            subscription,
        ));
        for _ in 0..3 {
            assert!(
                (&mut forwarding).now_or_never().is_none(),
                "although nothing more comes"
            );
            assert!(session.get_stream.outbox.next().now_or_never().is_some());
            let SubscribeOutcome::Already(again) = session.subscribe(&uri) else {
                panic!("it was there")
            };
            again.renew(updates(1));
        }
        session.unsubscribe(&uri);
        assert!(forwarding.now_or_never().is_some(), "it ends as one");
        assert!(session.get_stream.outbox.next().now_or_never().is_none());
    }
}
