//! Subscriptions of clients by the owner of their dedicated connections. Owns the demand of each
//! owner. Does not subscribe at servers (`pool/dedicated/notification_stream.rs`). Invariant: an
//! entry exists only for an owner that subscribes or has a dedicated connection.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::all_servers::demand_counter::DemandCounter;
use crate::connection_owner::ConnectionOwner;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, SubscriptionFilter};

/// Subscriptions of all clients, by owner. They are bounded where they start (`limits.streams`,
/// `max_subscriptions`, `max_connections`).
#[derive(Default)]
pub struct OwnerSubscriptions(Mutex<HashMap<ConnectionOwner, OwnerDemand>>);

/// Subject that a client subscribes to on its dedicated connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriptionTopic {
    /// List changes and log messages of all servers.
    ListsAndLogs,
    /// Resource: the server and its own URI.
    Resource(ByteString, ByteString),
}

/// Demand of all clients of one owner.
#[derive(Default)]
struct OwnerDemand {
    topics: DemandCounter<SubscriptionTopic>,
    /// Signalled when a first subscription appears or a last one disappears.
    changed: watch::Sender<()>,
}

impl OwnerDemand {
    fn is_unused(&self) -> bool {
        self.topics.is_empty() && self.changed.receiver_count() == 0
    }

    /// Returns the resources of one server.
    fn uris_of(&self, server: &ByteString) -> impl Iterator<Item = &ByteString> {
        self.topics.keys().filter_map(move |topic| match topic {
            SubscriptionTopic::Resource(of, uri) if of == server => Some(uri),
            _ => None,
        })
    }
}

/// Guard of one subscription. Ends it on drop.
pub struct OwnerSubscriptionGuard {
    subscriptions: Arc<OwnerSubscriptions>,
    owners: Vec<ConnectionOwner>,
    topics: Vec<SubscriptionTopic>,
}

impl OwnerSubscriptions {
    /// Subscribes a client until the guard is dropped.
    pub fn subscribe(
        self: &Arc<Self>,
        caller: &Caller,
        topics: Vec<SubscriptionTopic>,
    ) -> OwnerSubscriptionGuard {
        // All of them, because the sharing mode of each server decides which owner its dedicated
        // connection has.
        let owners = ConnectionOwner::candidates_of(caller);
        let guard = OwnerSubscriptionGuard {
            subscriptions: self.clone(),
            owners,
            topics,
        };
        guard.update_counts(DemandCounter::add);
        guard
    }

    /// Returns a watch of what this owner needs from a server.
    pub(crate) fn watch(
        self: &Arc<Self>,
        owner: ConnectionOwner,
        server: ByteString,
    ) -> OwnerDemandWatch {
        // An entry without any topic: the receiver keeps it until the watch ends.
        let changed = self
            .0
            .lock()
            .entry(owner.clone())
            .or_default()
            .changed
            .subscribe();
        OwnerDemandWatch {
            subscriptions: self.clone(),
            owner,
            server,
            always_lists: false,
            changed: Some(changed),
        }
    }
}

impl OwnerSubscriptionGuard {
    /// Updates the count of each topic. `update` returns true if that changes the demand.
    fn update_counts(
        &self,
        update: impl Fn(&mut DemandCounter<SubscriptionTopic>, &SubscriptionTopic) -> bool,
    ) {
        let mut table = self.subscriptions.0.lock();
        for owner in &self.owners {
            let demand = table.entry(owner.clone()).or_default();
            let mut differs = false;
            for topic in &self.topics {
                differs |= update(&mut demand.topics, topic);
            }
            // Most subscribers are not the first, and then no server needs to hear of them.
            if differs {
                demand.changed.send_replace(());
            }
            // Removed under the lock, so that an unused entry never stays.
            if demand.is_unused() {
                table.remove(owner);
            }
        }
    }
}

impl Drop for OwnerSubscriptionGuard {
    fn drop(&mut self) {
        self.update_counts(DemandCounter::remove);
    }
}

/// Watch of what one dedicated connection should subscribe to.
pub(crate) struct OwnerDemandWatch {
    subscriptions: Arc<OwnerSubscriptions>,
    owner: ConnectionOwner,
    server: ByteString,
    /// True if list changes are subscribed to without any client's demand.
    pub(crate) always_lists: bool,
    /// Receiver of changes. `None` only during the drop.
    changed: Option<watch::Receiver<()>>,
}

impl OwnerDemandWatch {
    /// Returns the current demand.
    pub(crate) fn filter(&self) -> SubscriptionFilter {
        let table = self.subscriptions.0.lock();
        let demand = table.get(&self.owner);
        let logs =
            demand.is_some_and(|demand| demand.topics.contains(&SubscriptionTopic::ListsAndLogs));
        let lists = logs || self.always_lists;
        SubscriptionFilter {
            // The completion of an elicitation is always wanted: a session waits for it without a
            // subscription.
            elicitations: true,
            tools: lists,
            prompts: lists,
            resources: lists,
            logs,
            all_task_statuses: logs,
            extensions: logs,
            uris: demand
                .map(|demand| demand.uris_of(&self.server).cloned().collect())
                .unwrap_or_default(),
            ..SubscriptionFilter::default()
        }
    }

    /// Returns a probe for current subscriptions to the server's resources.
    pub(crate) fn subscription_probe(&self) -> impl Fn() -> bool + Send + use<> {
        let subscriptions = self.subscriptions.clone();
        let owner = self.owner.clone();
        let server = self.server.clone();
        move || {
            subscriptions
                .0
                .lock()
                .get(&owner)
                .is_some_and(|demand| demand.uris_of(&server).next().is_some())
        }
    }

    /// Waits for a change of the demand.
    pub(crate) async fn changed(&mut self) {
        // An error means that the sender is gone: nothing changes any more.
        if let Some(changed) = &mut self.changed
            && changed.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

impl Drop for OwnerDemandWatch {
    fn drop(&mut self) {
        let mut table = self.subscriptions.0.lock();
        // Dropped under the lock: of two watches that end together, the second sees that it is the
        // last.
        self.changed = None;
        if table.get(&self.owner).is_some_and(OwnerDemand::is_unused) {
            table.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use moongate_testing as testing;

    const LISTS: SubscriptionTopic = SubscriptionTopic::ListsAndLogs;

    fn differs(watch: &OwnerDemandWatch) -> bool {
        watch.changed.as_ref().unwrap().has_changed().unwrap()
    }

    fn resource(server: &str, uri: &str) -> SubscriptionTopic {
        SubscriptionTopic::Resource(ByteString::from(server), ByteString::from(uri))
    }

    #[test]
    fn a_connection_subscribes_to_what_its_owner_subscribes_to() {
        let subscriptions = Arc::new(OwnerSubscriptions::default());
        let client = testing::caller(1, Some("s"));
        let other = testing::caller(1, Some("t"));
        let mut watch = subscriptions.watch(
            ConnectionOwner::Session(ByteString::from("s")),
            ByteString::from("a"),
        );
        let always = SubscriptionFilter {
            elicitations: true,
            ..SubscriptionFilter::default()
        };
        assert_eq!(watch.filter(), always);
        let _others = subscriptions.subscribe(&other, vec![LISTS, resource("a", "x:other")]);
        assert!(!differs(&watch), "another client is another owner");
        let guard = subscriptions.subscribe(
            &client,
            vec![LISTS, resource("a", "x:1"), resource("b", "x:2")],
        );
        assert!(differs(&watch));
        watch.changed.as_mut().unwrap().mark_unchanged();
        let filter = watch.filter();
        assert!(
            filter.tools && filter.logs && filter.uris == [ByteString::from("x:1")],
            "{filter:?}"
        );
        let (second, third) = (
            subscriptions.subscribe(&client, vec![LISTS, resource("a", "x:1")]),
            subscriptions.subscribe(&client, vec![LISTS]),
        );
        drop(third);
        assert!(
            !differs(&watch),
            "nothing differs as long as another one is left"
        );
        drop((guard, second));
        assert!(differs(&watch));
        assert_eq!(watch.filter(), always);
    }

    #[test]
    fn a_dropped_subscription_leaves_no_entry() {
        let subscriptions = Arc::new(OwnerSubscriptions::default());
        let client = testing::caller(1, None);
        let watch = subscriptions.watch(ConnectionOwner::Stateless(1), ByteString::from("a"));
        let guard = subscriptions.subscribe(&client, vec![LISTS, resource("a", "x:1")]);
        assert!(
            subscriptions.0.lock().len() >= 2,
            "as a client without a session, and as a principal"
        );
        drop(guard);
        assert_eq!(subscriptions.0.lock().len(), 1);
        drop(watch);
        assert_eq!(subscriptions.0.lock().len(), 0);
    }

    /// Ends watches at the same time as another thread. Counts the entries that are left.
    fn end_together(subscriptions: &Arc<OwnerSubscriptions>, both: &Barrier, left: &AtomicUsize) {
        // Many rounds, because the race is rare.
        for _ in 0..2000 {
            let watch = subscriptions.watch(ConnectionOwner::Stateless(1), ByteString::from("a"));
            both.wait();
            drop(watch);
            both.wait();
            left.fetch_add(subscriptions.0.lock().len(), Ordering::Relaxed);
            both.wait();
        }
    }

    #[test]
    fn two_subscriptions_that_end_together_leave_no_entry() {
        let subscriptions = Arc::new(OwnerSubscriptions::default());
        let both = Barrier::new(2);
        let left = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| end_together(&subscriptions, &both, &left));
            end_together(&subscriptions, &both, &left);
            other.join().unwrap();
        });
        assert_eq!(left.into_inner(), 0);
    }
}
