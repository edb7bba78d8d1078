//! Notification stream of a dedicated connection. Owns its replacement when the owner's demand
//! changes. Does not know who gets the notifications (`notification_router.rs`). Invariant: the
//! connection subscribes to what its owner needs, and a gap in the stream is reported.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::all_servers::owner_subscriptions::OwnerDemandWatch;
use crate::connection::reconnect_backoff;
use crate::connection::subscription_acknowledgement::{
    ACKNOWLEDGE_TIMEOUT, EarlyUpdates, no_notifications, wait_acknowledged,
};
use crate::supervision_options::BackoffSettings;
use moongate_model::{Caller, McpServer, Notification};

/// Subscribes on a dedicated connection to what its owner needs, and publishes the notifications.
/// Never returns.
pub(crate) async fn forward_notifications(
    server: &dyn McpServer,
    caller: &Arc<Caller>,
    mut watch: OwnerDemandWatch,
    backoff: BackoffSettings,
    publish: impl Fn(Notification),
) {
    let mut filter = watch.filter();
    let mut notifications = server.subscribe(caller, filter.clone());
    let mut early_updates = EarlyUpdates::of_stream(&notifications, server, caller);
    let mut deadline = Instant::now() + ACKNOWLEDGE_TIMEOUT;
    let mut silent_ends = 0;
    // True after the end of a stream, until another one is open.
    let mut gap = false;
    loop {
        if gap && !notifications.is_pending() {
            gap = false;
            // Changes during the gap were announced to nobody. Every client learns that it may have
            // missed one.
            notifications
                .acknowledged
                .maybe_changed()
                .for_each(&publish);
        }
        tokio::select! {
            // One replacement at a time: the pending stream is acknowledged first.
            () = watch.changed(), if !notifications.is_pending() => {
                let before = std::mem::replace(&mut filter, watch.filter());
                // Several changes may cancel out.
                if before == filter {
                    continue;
                }
                deadline = Instant::now() + ACKNOWLEDGE_TIMEOUT;
                let next = server.subscribe(caller, filter.clone());
                // The old stream runs until the server acknowledges the new one, so that nothing is
                // missed in between.
                let before = std::mem::replace(&mut notifications, no_notifications());
                notifications = next.take_over_from(before);
            }
            () = wait_acknowledged(notifications.established.clone(), deadline),
                if notifications.is_pending() => notifications.assume_established(),
            update = early_updates.next() => publish(update),
            notification = notifications.stream.next() => match notification {
                Some(notification) => {
                    silent_ends = 0;
                    publish(notification);
                }
                None => {
                    // A stream that ends without a notification was likely refused. Each such end
                    // in a row doubles the delay.
                    (gap, silent_ends) = (true, silent_ends + 1);
                    tokio::time::sleep(reconnect_backoff::backoff_delay(backoff,
                        silent_ends)).await;
                    deadline = Instant::now() + ACKNOWLEDGE_TIMEOUT;
                    // Read after the delay: the demand may have changed meanwhile.
                    filter = watch.filter();
                    notifications = server.subscribe(caller, filter.clone());
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::{Mutex, MutexGuard};
    use std::time::Duration;

    use futures_util::future::BoxFuture;
    use futures_util::stream;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::all_servers::owner_subscriptions::{OwnerSubscriptions, SubscriptionTopic};
    use crate::connection_owner::ConnectionOwner;
    use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
    use moongate_model::{
        Call, Error, Exchange, ItemKind, NotificationStream, ServerCapabilities, ServerDescription,
        SubscriptionFilter,
    };
    use moongate_testing as testing;

    /// Server whose streams are scripted by the test.
    #[derive(Default)]
    struct FakeServer(Mutex<Vec<OpenedStream>>);

    /// Stream that was opened.
    struct OpenedStream {
        sender: mpsc::Sender<Notification>,
        established: CancellationToken,
    }

    impl FakeServer {
        fn streams(&self) -> MutexGuard<'_, Vec<OpenedStream>> {
            self.0.lock()
        }
    }

    impl McpServer for FakeServer {
        fn describe(&self, _: &Caller) -> ServerDescription {
            ServerDescription {
                info: RawJson::literal("{}"),
                instructions: None,
                capabilities: ServerCapabilities::default(),
                notes: Vec::new(),
            }
        }

        fn call(&self, _: &Arc<Caller>, _: Call) -> Exchange {
            unreachable!("nobody calls it")
        }

        fn subscribe(&self, _: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
            let (sender, receiver) = mpsc::channel(8);
            let established = CancellationToken::new();
            self.streams().push(OpenedStream {
                sender,
                established: established.clone(),
            });
            NotificationStream {
                acknowledged: filter,
                stream: stream::unfold(receiver, receive).boxed(),
                established: Some(established),
            }
        }

        fn confirm_subscription(
            &self,
            _: &Arc<Caller>,
            _: &ByteString,
        ) -> Option<BoxFuture<'static, Result<(), Error>>> {
            let established = self.streams().last()?.established.clone();
            Some(Box::pin(async move {
                established.cancelled().await;
                Ok(())
            }))
        }

        fn notify(&self, _: &Arc<Caller>, _: Notification) {}
    }

    async fn receive(
        mut receiver: mpsc::Receiver<Notification>,
    ) -> Option<(Notification, mpsc::Receiver<Notification>)> {
        Some((receiver.recv().await?, receiver))
    }

    fn topics(uri: &str) -> Vec<SubscriptionTopic> {
        let resource = SubscriptionTopic::Resource(ByteString::from("a"), ByteString::from(uri));
        vec![SubscriptionTopic::ListsAndLogs, resource]
    }

    /// Subscribes to the server for the session "s". Returns the notifications as text.
    fn forwarding(
        subscriptions: &Arc<OwnerSubscriptions>,
        server: &Arc<FakeServer>,
    ) -> mpsc::Receiver<String> {
        let (sender, received) = mpsc::channel(64);
        let watch = subscriptions.watch(
            ConnectionOwner::Session(ByteString::from("s")),
            ByteString::from("a"),
        );
        let server = server.clone();
        let backoff = BackoffSettings::default();
        tokio::spawn(async move {
            let publish = |notification| {
                let text = match notification {
                    Notification::ResourceUpdated(uri, _) => uri.to_string(),
                    other => format!("{other:?}"),
                };
                sender.try_send(text).unwrap();
            };
            forward_notifications(
                &*server,
                &testing::caller(1, Some("s")),
                watch,
                backoff,
                publish,
            )
            .await;
        });
        received
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_acknowledges_has_one_stream() {
        let subscriptions = Arc::new(OwnerSubscriptions::default());
        let server = Arc::new(FakeServer::default());
        let client = testing::caller(1, Some("s"));
        let mut received = forwarding(&subscriptions, &server);
        let mut guards = Vec::new();
        for n in 1..5 {
            tokio::time::sleep(ACKNOWLEDGE_TIMEOUT * 2).await;
            guards.push(subscriptions.subscribe(&client, topics(&format!("x:{n}"))));
        }
        tokio::time::sleep(ACKNOWLEDGE_TIMEOUT * 2).await;
        let open = server
            .streams()
            .iter()
            .filter(|stream| !stream.sender.is_closed())
            .count();
        assert_eq!(server.streams().len(), 5);
        assert_eq!(open, 1);
        for stream in &*server.streams() {
            let _ = stream
                .sender
                .try_send(Notification::ListChanged(ItemKind::Tools));
        }
        tokio::time::sleep(ACKNOWLEDGE_TIMEOUT).await;
        assert_eq!(received.try_recv().as_deref(), Ok("ListChanged(Tools)"));
        assert_eq!(received.try_recv().ok(), None);
    }

    async fn settle() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn changes_without_a_subscriber_are_reported_to_the_next_one() {
        let subscriptions = Arc::new(OwnerSubscriptions::default());
        let server = Arc::new(FakeServer::default());
        let client = testing::caller(1, Some("s"));
        let _guard = subscriptions.subscribe(&client, topics("x:1"));
        let mut received = forwarding(&subscriptions, &server);
        settle().await;
        assert!(
            received.try_recv().is_err(),
            "the server has not taken the subscription"
        );
        server.streams()[0].established.cancel();
        settle().await;
        assert_eq!(
            received.try_recv().as_deref(),
            Ok("x:1"),
            "a call may have changed it before"
        );
        assert!(received.try_recv().is_err(), "nothing else was missed");
        // The next attempt fails, too.
        for n in 0..2 {
            // Dropping the sender ends the stream.
            server.streams()[n].sender = mpsc::channel(1).0;
            while server.streams().len() < n + 2 {
                settle().await;
            }
            assert!(received.try_recv().is_err(), "there is no subscriber yet");
        }
        server.streams()[2].established.cancel();
        server.streams()[2]
            .sender
            .try_send(Notification::ResourceUpdated(
                ByteString::from("x:1"),
                JsonObject::new(),
            ))
            .unwrap();
        settle().await;
        let mut all: Vec<String> = std::iter::from_fn(|| received.try_recv().ok()).collect();
        all.sort();
        assert_eq!(
            all,
            [
                "MaybeChanged(Prompts)",
                "MaybeChanged(Resources)",
                "MaybeChanged(Tools)",
                "x:1",
                "x:1"
            ]
        );
    }
}
