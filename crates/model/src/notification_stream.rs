//! Stream of one subscription's notifications.
//!
//! Owns the replacement of one subscription by another. Does not subscribe (`server.rs`).
//! Invariant: a replacement loses no notification, or yields one that says that anything may have
//! changed.

use std::pin::Pin;

use futures_util::stream::select;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::{Notification, SubscriptionFilter};

/// Limit of pending notifications that a new stream takes over. Connections queue fewer.
const DRAIN_MAX: usize = 1024;

/// Notifications of one subscription, with the acknowledged part of its filter.
pub struct NotificationStream {
    /// Part of the filter that the server acknowledged.
    pub acknowledged: SubscriptionFilter,
    /// Notifications of the subscription.
    pub stream: Pin<Box<dyn Stream<Item = Notification> + Send>>,
    /// Cancelled once the subscription is established or has failed; the stream must be read
    /// meanwhile. `None`: at once.
    pub established: Option<CancellationToken>,
}

impl NotificationStream {
    /// Creates a stream that ends at once.
    pub fn closed() -> Self {
        NotificationStream {
            acknowledged: SubscriptionFilter::default(),
            stream: stream::empty().boxed(),
            established: None,
        }
    }

    /// True if the subscription is not established yet.
    pub fn is_pending(&self) -> bool {
        self.established
            .as_ref()
            .is_some_and(|established| !established.is_cancelled())
    }

    /// Treats the subscription as established, so that the one that it replaces ends.
    pub fn assume_established(&mut self) {
        if let Some(established) = self.established.take() {
            established.cancel();
        }
    }

    /// Replaces another subscription, which is read until this one is established. No notification
    /// is lost; some may come twice.
    pub fn take_over_from(self, before: NotificationStream) -> Self {
        let Some(established) = self.established.clone() else {
            // Notifications queued so far went to the old subscription.
            return NotificationStream {
                stream: stream::iter(drain_ready(before)).chain(self.stream).boxed(),
                ..self
            };
        };
        let old = stream::unfold(
            (before.stream, established),
            |(mut before, established)| async move {
                tokio::select! {
                    // The old stream first: what it has queued came earlier.
                    biased;
                    notification = before.next() => notification.map(|notification| (notification,
                        (before, established))),
                    () = established.cancelled() => None,
                }
            },
        );
        NotificationStream {
            stream: select(Box::pin(old), self.stream).boxed(),
            ..self
        }
    }
}

/// Takes the queued notifications without waiting.
fn drain_ready(mut before: NotificationStream) -> Vec<Notification> {
    let mut notifications = Vec::new();
    while notifications.len() < DRAIN_MAX {
        // Unconstrained: an exhausted task budget would make a full queue look empty.
        match unconstrained(before.stream.next()).now_or_never() {
            Some(Some(notification)) => notifications.push(notification),
            _ => return notifications,
        }
    }
    // The limit is reached: the rest is replaced by notifications that anything may have changed.
    notifications.extend(before.acknowledged.maybe_changed());
    notifications
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;
    use crate::ItemKind;
    use moongate_jsonrpc::json::{ByteString, JsonObject};

    fn uri(n: usize) -> ByteString {
        ByteString::from(format!("x:{n}"))
    }

    fn drain(stream: &mut NotificationStream) -> Vec<Notification> {
        std::iter::from_fn(|| unconstrained(stream.stream.next()).now_or_never().flatten())
            .collect()
    }

    fn subscription(receiver: broadcast::Receiver<Notification>) -> NotificationStream {
        let stream = stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await.ok()?, receiver))
        });
        NotificationStream {
            acknowledged: SubscriptionFilter::all(),
            stream: stream.boxed(),
            established: None,
        }
    }

    #[tokio::test]
    async fn queued_notifications_move_to_the_replacement_subscription() {
        let (sender, receiver) = broadcast::channel(256);
        let before = subscription(receiver);
        // More items than a task may take in one poll.
        for n in 0..200 {
            sender
                .send(Notification::ResourceUpdated(uri(n), JsonObject::new()))
                .unwrap();
        }
        let mut after = subscription(sender.subscribe()).take_over_from(before);
        sender
            .send(Notification::ListChanged(ItemKind::Tools))
            .unwrap();
        let received: Vec<ByteString> = drain(&mut after)
            .into_iter()
            .map(|notification| match notification {
                Notification::ResourceUpdated(uri, _) => uri,
                other => ByteString::from(format!("{other:?}")),
            })
            .collect();
        let expected: Vec<ByteString> = (0..200)
            .map(uri)
            .chain([ByteString::literal("ListChanged(Tools)")])
            .collect();
        assert_eq!(received, expected);
    }

    #[tokio::test]
    async fn notifications_over_the_drain_limit_count_as_missed() {
        let acknowledged = SubscriptionFilter {
            tools: true,
            uris: vec![uri(1)],
            ..SubscriptionFilter::default()
        };
        let endless = stream::repeat_with(|| Notification::RootsChanged).boxed();
        let before = NotificationStream {
            acknowledged: acknowledged.clone(),
            stream: endless,
            established: None,
        };
        let silent = NotificationStream {
            acknowledged,
            stream: stream::pending().boxed(),
            established: None,
        };
        let received = drain(&mut silent.take_over_from(before));
        assert_eq!(received.len(), DRAIN_MAX + 2);
        assert!(matches!(
            &received[DRAIN_MAX],
            Notification::MaybeChanged(ItemKind::Tools)
        ));
        assert!(matches!(&received[DRAIN_MAX + 1],
                Notification::ResourceUpdated(changed, _) if *changed == uri(1)));
    }
}
