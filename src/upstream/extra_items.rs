//! Items that a server adds on connections beside the main one.
//!
//! Owns what such a connection lists and the main one does not. Does not list the main connection (`follow`). Invariant:
//! what one connection adds is listed for everybody until that connection ends, and never hides an item of the main one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::json::{ByteString, JsonObject};
use crate::model::ItemKind;
use crate::upstream::dial::UpstreamConnection;
use crate::upstream::fetch::{ItemList, list_all, offers_list};
use crate::upstream::{ServerSettings, gateway_caller};

/// Items that all connections of one server may add together,
const EXTRA_ITEMS_MAX: usize = 256;
/// and their bytes.
const EXTRA_BYTES_MAX: usize = 1024 * 1024;
/// The lists of one connection are not taken more often.
const COLLECT_INTERVAL: Duration = Duration::from_secs(2);

type ItemsByKind = [Vec<Arc<JsonObject>>; ItemKind::ALL.len()];

/// What connections beside the main one add to the lists of a server.
#[derive(Default)]
pub(super) struct ExtraItems(Mutex<ExtraItemsTable>);

#[derive(Default)]
struct ExtraItemsTable {
    /// What the main connection listed.
    shared: ItemsByKind,
    by_connection: HashMap<ByteString, ItemsByKind>,
}

impl ExtraItems {
    /// Adds to a list of the main connection what the others have beyond it.
    pub(super) fn merge_into(&self, kind: ItemKind, list: &mut ItemList) {
        let mut table = self.lock();
        table.shared[kind as usize] = list.items.clone();
        let mut known = keys(&list.items, kind);
        let mut added: Vec<_> = table.by_connection.iter().collect();
        // In an order that does not change from list to list.
        added.sort_by_key(|(one, _)| *one);
        for item in added.into_iter().flat_map(|(_, lists)| &lists[kind as usize]) {
            if item.get_string(kind.item_key()).is_some_and(|key| known.insert(key)) {
                list.items.push(item.clone());
            }
        }
    }

    /// Keeps what a connection has beyond the main one.
    fn replace(&self, by: &ByteString, kind: ItemKind, items: Vec<Arc<JsonObject>>) {
        let mut table = self.lock();
        let known = keys(&table.shared[kind as usize], kind);
        table.by_connection.entry(by.clone()).or_default()[kind as usize].clear();
        let all = || table.by_connection.values().flatten().flatten();
        let (mut count, mut bytes) = (all().count(), all().map(|item| item.size_hint()).sum::<usize>());
        let mut kept = Vec::new();
        for item in items {
            if item.get_string(kind.item_key()).is_none_or(|key| known.contains(&key)) {
                continue;
            }
            (count, bytes) = (count + 1, bytes + item.size_hint());
            if count > EXTRA_ITEMS_MAX || bytes > EXTRA_BYTES_MAX {
                tracing::warn!(
                    "server: what its connections add to its lists is more than {EXTRA_ITEMS_MAX} items or {EXTRA_BYTES_MAX} bytes; the rest is left out"
                );
                break;
            }
            kept.push(item);
        }
        if let Some(lists) = table.by_connection.get_mut(by) {
            lists[kind as usize] = kept;
        }
    }

    /// Forgets what a connection added; true if there was anything.
    fn forget(&self, by: &ByteString) -> bool {
        self.lock().by_connection.remove(by).is_some_and(|lists| lists.iter().any(|list| !list.is_empty()))
    }

    fn lock(&self) -> MutexGuard<'_, ExtraItemsTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keys(items: &[Arc<JsonObject>], kind: ItemKind) -> HashSet<ByteString> {
    items.iter().filter_map(|item| item.get_string(kind.item_key())).collect()
}

/// Lists of one connection that changed, to be taken there.
pub(super) struct ExtraItemsCollector {
    extra_items: Arc<ExtraItems>,
    connection: ByteString,
    changed: Mutex<Vec<ItemKind>>,
    has_changes: Notify,
}

impl ExtraItemsCollector {
    /// What the connection of this name adds.
    pub(super) fn new(added: &Arc<ExtraItems>, connection: ByteString) -> Self {
        ExtraItemsCollector {
            extra_items: added.clone(),
            connection,
            changed: Mutex::default(),
            has_changes: Notify::new(),
        }
    }

    /// Notes that a list of the connection changed.
    pub(super) fn mark_changed(&self, kind: ItemKind) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if !changed.contains(&kind) {
            changed.push(kind);
        }
        drop(changed);
        self.has_changes.notify_one();
    }

    /// Takes the lists that change, and tells of each, for as long as the connection is watched.
    pub(super) async fn run_collector(
        &self,
        active: &UpstreamConnection,
        settings: &ServerSettings,
        tell: impl Fn(ItemKind),
    ) {
        loop {
            self.has_changes.notified().await;
            let kinds = std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
            let features = active.server.describe(&gateway_caller()).features;
            for kind in kinds {
                if offers_list(&features, kind) {
                    let listed = list_all(&*active.server, kind, &settings.lists);
                    match timeout(settings.list_timeout, listed).await {
                        Ok(Ok(list)) => self.extra_items.replace(&self.connection, kind, list.items),
                        Ok(Err(error)) => {
                            tracing::debug!(server = settings.name, "a connection cannot be listed: {error}")
                        }
                        Err(_) => tracing::debug!(server = settings.name, "a connection cannot be listed in time"),
                    }
                }
                tell(kind);
            }
            sleep(COLLECT_INTERVAL).await;
        }
    }

    /// Forgets what the connection added, and tells of the lists that are shorter for it.
    pub(super) fn discard(&self, tell: impl Fn(ItemKind)) {
        if self.extra_items.forget(&self.connection) {
            ItemKind::ALL.into_iter().for_each(tell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::RawJson;

    fn items(names: impl IntoIterator<Item = String>) -> Vec<Arc<JsonObject>> {
        names.into_iter().map(|name| Arc::new(JsonObject::new().with("name", RawJson::string(&name)))).collect()
    }

    fn merged(added: &ExtraItems, main: &[&str]) -> Vec<String> {
        let mut list = ItemList { items: items(main.iter().map(|name| (*name).to_owned())), ..ItemList::default() };
        added.merge_into(ItemKind::Tools, &mut list);
        list.items.iter().map(|item| item.get_string("name").unwrap().to_string()).collect()
    }

    #[test]
    fn what_a_connection_adds_is_listed_until_it_ends() {
        let added = Arc::new(ExtraItems::default());
        let (one, other) = (ByteString::literal("one"), ByteString::literal("other"));
        assert_eq!(merged(&added, &["a"]), ["a"]);
        added.replace(&one, ItemKind::Tools, items(["a", "b"].map(str::to_owned)));
        added.replace(&other, ItemKind::Tools, items(["b", "c"].map(str::to_owned)));
        assert_eq!(merged(&added, &["a"]), ["a", "b", "c"]);
        assert_eq!(merged(&added, &["a", "c"]), ["a", "c", "b"]);
        ExtraItemsCollector::new(&added, one).discard(|_| {});
        assert_eq!(merged(&added, &["a"]), ["a", "b", "c"]);
        added.replace(&other, ItemKind::Tools, Vec::new());
        assert_eq!(merged(&added, &["a"]), ["a"]);
        assert!(!added.forget(&other), "it added nothing any more");
    }

    #[test]
    fn what_connections_add_is_bounded() {
        let added = ExtraItems::default();
        for n in 0..3 {
            added.replace(
                &ByteString::from(format!("{n}")),
                ItemKind::Tools,
                items((0..200).map(|item| format!("{n} {item}"))),
            );
        }
        assert_eq!(merged(&added, &[]).len(), EXTRA_ITEMS_MAX);
        added.replace(&ByteString::literal("0"), ItemKind::Tools, items(["x".repeat(EXTRA_BYTES_MAX)]));
        assert_eq!(merged(&added, &[]).len(), EXTRA_ITEMS_MAX - 200);
    }
}
