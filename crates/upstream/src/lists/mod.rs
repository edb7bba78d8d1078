//! Lists of one server. Owns the current lists, and the reasons to fetch one of them again. Does
//! not fetch (`supervisor/refresh.rs`). Invariant: readers get whole lists. While the server is
//! disconnected, these are the last good ones.

pub(crate) mod cache;
pub(crate) mod dedicated;
pub(crate) mod definition_checks;
pub(crate) mod eras;
pub(crate) mod fetch;
pub(crate) mod freshness;
pub(crate) mod other_rows;
pub(crate) mod polls;
pub(crate) mod relist_on_demand;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::lists::cache::{ListCache, ListedServer};
use crate::lists::dedicated::DedicatedChanges;
use crate::lists::definition_checks::DefinitionChecks;
use crate::lists::eras::{EraLists, KeptLists};
use crate::lists::fetch::{ItemList, ServerLists};
use crate::lists::freshness::ListAges;
use crate::lists::polls::ListUse;
use crate::lists::relist_on_demand::RelistRequests;
use crate::server_context::ServerContext;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, ServerCapabilities};
use moongate_protocol::Era;

/// Lists of one server, with all that causes another fetch of them.
pub(crate) struct ListStore {
    server: Arc<ServerContext>,
    lists: ArcSwap<EraLists>,
    /// Lock of a change of the lists, which both faces of a server cause.
    change: Mutex<()>,
    /// Signalled when the face in the other era was listed, and its lists shall be persisted.
    pub(crate) other_listed: Notify,
    pub(crate) cache: ListCache,
    ages: ListAges,
    pub(crate) uses: ListUse,
    /// Signalled when a reader found a list that has expired.
    expired: Notify,
    /// True if the lists are copies of those of a predecessor.
    is_copied: AtomicBool,
    pub(crate) relist_requests: RelistRequests,
    /// Requests for lists of the face in the other era.
    pub(crate) other_relist_requests: RelistRequests,
    /// Changes that dedicated connections make to the lists.
    pub(crate) dedicated: DedicatedChanges,
    pub(crate) resources: SubscribedResources,
    pub(crate) checks: DefinitionChecks,
}

/// Faces of a server that are connected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ConnectedFaces {
    /// That of the shared connection.
    Shared,
    /// Those of both eras.
    Both,
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

    /// Returns true without subscriptions.
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
            change: Mutex::default(),
            other_listed: Notify::new(),
            cache: ListCache::default(),
            ages: ListAges::default(),
            uses: ListUse::default(),
            expired: Notify::new(),
            is_copied: AtomicBool::new(false),
            relist_requests: RelistRequests::default(),
            other_relist_requests: RelistRequests::default(),
            dedicated: DedicatedChanges::default(),
            resources: SubscribedResources::default(),
            checks: DefinitionChecks::default(),
        }
    }

    /// Returns the lists of the shared connection. While the server is disconnected, these are the
    /// last good ones.
    pub(crate) fn load(&self) -> Arc<ServerLists> {
        self.lists.load().shared().clone()
    }

    /// Returns the lists for clients of each era.
    pub(crate) fn load_eras(&self) -> Arc<EraLists> {
        self.lists.load_full()
    }

    /// Borrows the lists, for a moment.
    fn peek(&self) -> Guard<Arc<EraLists>> {
        self.lists.load()
    }

    /// Replaces all lists, for tests of code that reads them.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn replace(&self, lists: Arc<ServerLists>) {
        let _change = self.change.lock();
        self.lists
            .store(Arc::new(EraLists::of_one_era(self.peek().era(), lists)));
    }

    /// Changes the lists in one step. Returns true if clients of the other era see a difference.
    fn update(&self, change: impl FnOnce(&mut EraLists)) -> bool {
        let _change = self.change.lock();
        let mut lists = (*self.load_eras()).clone();
        change(&mut lists);
        let differs = lists.rebuild(&self.dedicated.extra_items);
        self.lists.store(Arc::new(lists));
        differs
    }

    /// Records a list that was just fetched on the shared connection, and adds the extra items to
    /// it.
    pub(crate) fn record_listed(
        &self,
        kind: ItemKind,
        capabilities: &ServerCapabilities,
        mut list: ItemList,
    ) {
        self.ages.record_listed(kind, capabilities);
        self.dedicated
            .extra_items
            .merge_into(self.peek().era(), kind, &mut list);
        self.update(|lists| {
            lists.set_shared(kind, list);
        });
    }

    // === eras ===

    /// Follows the era of a new shared connection. `speaks_both`: whether the server is known to
    /// speak the other one, too.
    pub(crate) fn turn_to(&self, era: Era, kept: KeptLists, speaks_both: bool) {
        let keeps = self.has_two_lists() && speaks_both && self.cache.is_listed();
        let kept = if self.cache.is_unconfirmed() {
            KeptLists::Remembered
        } else {
            kept
        };
        self.update(|lists| lists.turn_to(era, keeps.then_some(kept)));
    }

    /// Records a list that the face in this era has, whose connection is open. Returns true if
    /// clients see a difference.
    pub(crate) fn record_other(&self, era: Era, kind: ItemKind, list: ItemList) -> bool {
        let mut is_first = false;
        // The shared connection may have turned to this era meanwhile.
        let differs = self.update(|lists| {
            if lists.era() != era {
                is_first = !lists.are_both_listed(kind);
                lists.set_other(kind, list);
            }
        });
        // That both eras list the same says how results come.
        differs || is_first
    }

    /// Records that the connection in this era has ended, and is the shared one of no client.
    pub(crate) fn close_other(&self, era: Era) -> bool {
        self.update(|lists| {
            if lists.era() != era {
                lists.close_other();
            }
        })
    }

    /// Forgets the lists of the other era: its clients meet the server in the era of the shared
    /// connection.
    pub(crate) fn forget_other(&self) -> bool {
        self.update(EraLists::forget_other)
    }

    /// Requests a fetch of one list for an unknown name, and waits for it. Skipped shortly after
    /// the last one, unless a call ended since. `faces`: those that are connected.
    pub(crate) async fn relist(&self, kind: ItemKind, faces: ConnectedFaces) {
        let called = self.uses.take_called();
        let shared = self.relist_requests.request(kind, called);
        match faces {
            // A call may have added the item to either face.
            ConnectedFaces::Both => {
                _ = tokio::join!(shared, self.other_relist_requests.request(kind, called))
            }
            ConnectedFaces::Shared => shared.await,
        }
    }

    /// Returns the faces that are connected and listed.
    pub(crate) fn connected_faces(&self) -> ConnectedFaces {
        if self.peek().is_other_connected() {
            ConnectedFaces::Both
        } else {
            ConnectedFaces::Shared
        }
    }

    /// Returns true if clients of each era meet the server in their own.
    fn has_two_lists(&self) -> bool {
        self.server.settings.as_client && self.server.settings.protocol.is_none()
    }

    /// Returns true if there is any item.
    pub(crate) fn has_items(&self) -> bool {
        let items = self.peek();
        ItemKind::ALL
            .into_iter()
            .any(|kind| !items.all().get(kind).items.is_empty())
    }

    // === age ===

    /// Returns for how many milliseconds a list counts as fresh. `None`: its age says nothing. A
    /// list that has expired is fetched again for the next reader.
    pub(crate) fn ttl(&self, kind: ItemKind) -> Option<u64> {
        self.uses.record_use();
        // Lists of a previous process may be outdated: clients shall fetch them again soon.
        if self.cache.is_unconfirmed() {
            return Some(0);
        }
        let items = self.peek();
        let list = items.shared().get(kind);
        if self.ages.is_stale(kind, list) {
            self.expired.notify_one();
        }
        self.ages.remaining(kind, list)
    }

    /// Returns true if any list has expired.
    pub(crate) fn is_stale(&self) -> bool {
        let items = self.peek();
        ItemKind::ALL
            .into_iter()
            .any(|kind| self.ages.is_stale(kind, items.shared().get(kind)))
    }

    /// Waits until a reader found a list that has expired.
    pub(crate) async fn wait_expired(&self) {
        self.expired.notified().await;
    }

    // === lists of another process or server ===

    /// Restores the lists of a previous process. `other`: those of the face in the other era, if
    /// they differ.
    pub(crate) fn restore(&self, era: Era, lists: ServerLists, other: Option<ServerLists>) {
        self.cache.mark_restored();
        let other = other.filter(|_| self.has_two_lists());
        self.lists
            .store(Arc::new(EraLists::restored(era, lists, other)));
        self.publish_staleness();
    }

    /// Copies the lists of another server, to serve them until this one is connected.
    pub(crate) fn copy_from(&self, other: &ListStore) {
        let mut lists = (*other.load_eras()).clone();
        match self.has_two_lists() {
            true => lists.close_other(),
            false => lists.forget_other(),
        }
        lists.rebuild(&self.dedicated.extra_items);
        self.lists.store(Arc::new(lists));
        self.is_copied.store(true, Ordering::Relaxed);
        self.cache.copy_confirmation_from(&other.cache);
        self.publish_staleness();
    }

    /// Returns true if the lists are copies. They must be fetched before a lazy server may stay
    /// stopped.
    pub(crate) fn is_copied(&self) -> bool {
        self.is_copied.load(Ordering::Relaxed)
    }

    /// Confirms the lists as the server's own, and persists them for the next process.
    pub(crate) fn confirm_and_persist(&self, listed: &ListedServer<'_>) {
        self.cache.confirm();
        self.publish_staleness();
        self.cache.persist(
            &self.server.common.store,
            &self.server.settings,
            self.load_eras(),
            listed,
        );
    }

    fn publish_staleness(&self) {
        let stale = &self.server.metrics().catalog.stale;
        stale.set(
            &self.server.settings.name,
            i64::from(self.cache.is_unconfirmed()),
        );
    }
}
