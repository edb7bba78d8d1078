//! List changes that a server reports outside of a subscription.
//!
//! 2026-07-28/basic/patterns/subscriptions.mdx requires them on the stream of
//! `subscriptions/listen`. Some servers send them on the stream of the call that changed a list,
//! and say `listChanged: false`.
//!
//! Owns their delivery to subscribers. Does not fetch lists. Invariant: a change that is not
//! delivered in time becomes a change of every list.

use futures_util::{Stream, stream};
use tokio::sync::broadcast;

use moongate_model::{ItemKind, Notification, SubscriptionFilter};

/// Limit of changes that wait for the slowest subscriber.
const WAITING_MAX: usize = 32;

/// Kinds of lists that have a notification.
const KINDS: [ItemKind; 3] = [ItemKind::Tools, ItemKind::Prompts, ItemKind::Resources];

/// Channel of changes reported outside of subscriptions.
#[derive(Clone)]
pub(crate) struct StrayListChanges(broadcast::Sender<ItemKind>);

impl Default for StrayListChanges {
    fn default() -> Self {
        StrayListChanges(broadcast::Sender::new(WAITING_MAX))
    }
}

impl StrayListChanges {
    /// Reports a changed list to all subscribers.
    pub(crate) fn report(&self, kind: ItemKind) {
        // An error means that nobody subscribes.
        let _ = self.0.send(kind);
    }

    /// Subscribes to the changes. The stream never ends.
    pub(crate) fn subscribe(
        &self,
        filter: &SubscriptionFilter,
    ) -> impl Stream<Item = Notification> + Send + use<> {
        let wanted = SubscriptionFilter {
            uris: Vec::new(),
            ..filter.clone()
        };
        let open = (self.0.subscribe(), Vec::new());
        stream::unfold(open, move |(mut changes, mut pending)| {
            let wanted = wanted.clone();
            async move {
                loop {
                    if let Some(notification) = pending.pop() {
                        return Some((notification, (changes, pending)));
                    }
                    match changes.recv().await {
                        Ok(kind) => pending.push(Notification::ListChanged(kind)),
                        Err(broadcast::error::RecvError::Lagged(_)) => {
                            pending.extend(KINDS.map(Notification::ListChanged))
                        }
                        // A stream that ends would look like a lost server, so this one stays open.
                        Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                    }
                    pending.retain(|notification| wanted.matches(notification));
                }
            }
        })
    }
}
