//! Lists of one server. Owns the current lists, and the reasons to fetch one of them again. Does not fetch
//! (`supervisor/refresh.rs`). Invariant: readers get whole lists. While the server is disconnected, these are the last
//! good ones.

pub(crate) mod cache;
pub(crate) mod dedicated;
pub(crate) mod fetch;
pub(crate) mod freshness;
pub(crate) mod relist_on_demand;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;

use crate::lists::cache::{ListCache, ListedServer};
use crate::lists::dedicated::DedicatedChanges;
use crate::lists::fetch::{ItemList, ServerLists};
use crate::lists::freshness::ListAges;
use crate::lists::relist_on_demand::RelistRequests;
use crate::server_context::ServerContext;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, ServerCapabilities};

/// Lists of one server, with all that causes another fetch of them.
pub(crate) struct ListStore {
    server: Arc<ServerContext>,
    lists: ArcSwap<ServerLists>,
    pub(crate) cache: ListCache,
    ages: ListAges,
    /// Signalled when a reader found a list that has expired.
    expired: Notify,
    /// True if the lists are copies of those of a predecessor.
    is_copied: AtomicBool,
    pub(crate) relist_requests: RelistRequests,
    /// Changes that dedicated connections make to the lists.
    pub(crate) dedicated: DedicatedChanges,
    pub(crate) resources: SubscribedResources,
}

/// Resources whose changes clients subscribed to, by the server's own URIs.
#[derive(Default)]
pub(crate) struct SubscribedResources {
    uris: ArcSwap<Vec<ByteString>>,
    changed: Notify,
}

impl SubscribedResources {
    /// Sets the resources. Returns true if they differ from before.
    pub(crate) fn set(&self, uris: Vec<ByteString>) -> bool {
        // A stateless server gets a new stream for each change, so equal lists must not cause one.
        if **self.uris.load() == uris {
            return false;
        }
        self.uris.store(Arc::new(uris));
        self.changed.notify_one();
        true
    }

    /// Returns the resources.
    pub(crate) fn uris(&self) -> Vec<ByteString> {
        (**self.uris.load()).clone()
    }

    /// Returns true if there is no subscription.
    pub(crate) fn is_empty(&self) -> bool {
        self.uris.load().is_empty()
    }

    /// Waits until the resources change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl ListStore {
    pub(crate) fn new(server: Arc<ServerContext>) -> Self {
        ListStore {
            server,
            lists: ArcSwap::default(),
            cache: ListCache::default(),
            ages: ListAges::default(),
            expired: Notify::new(),
            is_copied: AtomicBool::new(false),
            relist_requests: RelistRequests::default(),
            dedicated: DedicatedChanges::default(),
            resources: SubscribedResources::default(),
        }
    }

    /// Returns the lists. While the server is disconnected, these are the last good ones.
    pub(crate) fn load(&self) -> Arc<ServerLists> {
        self.lists.load_full()
    }

    /// Borrows the lists, for a moment.
    fn peek(&self) -> Guard<Arc<ServerLists>> {
        self.lists.load()
    }

    /// Replaces all lists.
    pub(crate) fn replace(&self, lists: Arc<ServerLists>) {
        self.lists.store(lists);
    }

    /// Records a list that was just fetched on the shared connection, and adds the extra items to it.
    pub(crate) fn record_listed(&self, kind: ItemKind, features: &ServerCapabilities, mut list: ItemList) {
        self.ages.record_listed(kind, features);
        self.dedicated.extra_items.merge_into(kind, &mut list);
        // Copy on write: readers keep the lists that they hold.
        let mut items = (*self.load()).clone();
        // Most fetches bring the list that is there already, and readers then keep theirs.
        if items.set(kind, list) {
            self.replace(Arc::new(items));
        }
    }

    /// Returns true if there is any item.
    pub(crate) fn has_items(&self) -> bool {
        let items = self.peek();
        ItemKind::ALL.into_iter().any(|kind| !items.get(kind).items.is_empty())
    }

    // === age ===

    /// Returns for how many milliseconds a list counts as fresh. `None`: its age says nothing. A list that has
    /// expired is fetched again for the next reader.
    pub(crate) fn ttl(&self, kind: ItemKind) -> Option<u64> {
        // Lists of a previous process may be outdated: clients shall fetch them again soon.
        if self.cache.is_unconfirmed() {
            return Some(0);
        }
        let items = self.peek();
        let list = items.get(kind);
        if self.ages.is_stale(kind, list) {
            self.expired.notify_one();
        }
        self.ages.remaining(kind, list)
    }

    /// Returns true if any list has expired.
    pub(crate) fn is_stale(&self) -> bool {
        let items = self.peek();
        ItemKind::ALL.into_iter().any(|kind| self.ages.is_stale(kind, items.get(kind)))
    }

    /// Waits until a reader found a list that has expired.
    pub(crate) async fn expired(&self) {
        self.expired.notified().await;
    }

    // === lists of another process or server ===

    /// Restores the lists of a previous process.
    pub(crate) fn restore(&self, lists: ServerLists) {
        self.cache.mark_restored();
        self.replace(Arc::new(lists));
        self.publish_staleness();
    }

    /// Copies the lists of another server, to serve them until this one is connected.
    pub(crate) fn copy_from(&self, other: &ListStore) {
        self.replace(other.load());
        self.is_copied.store(true, Ordering::Relaxed);
        self.cache.copy_confirmation_from(&other.cache);
        self.publish_staleness();
    }

    /// Returns true if the lists are copies. They must be fetched before a lazy server may stay stopped.
    pub(crate) fn is_copied(&self) -> bool {
        self.is_copied.load(Ordering::Relaxed)
    }

    /// Confirms the lists as the server's own, and persists them for the next process.
    pub(crate) fn confirm_and_persist(&self, listed: &ListedServer<'_>) {
        self.cache.confirm();
        self.publish_staleness();
        self.cache.persist(&self.server.common.store, &self.server.settings, self.load(), listed);
    }

    fn publish_staleness(&self) {
        let stale = &self.server.metrics().catalog.stale;
        stale.set(&self.server.settings.name, i64::from(self.cache.is_unconfirmed()));
    }
}
