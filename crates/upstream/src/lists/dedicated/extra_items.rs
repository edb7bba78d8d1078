//! Extra items: items that a server lists only on dedicated connections. Owns the difference from
//! the shared lists. Does not fetch the shared lists (`supervisor/refresh.rs`). Invariant: extra
//! items are listed for all clients of their era until their connection ends, and never hide a
//! shared item of that era.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until, timeout};

use crate::connection::{NewCalls, UpstreamConnection};
use crate::gateway_caller::gateway_caller;
use crate::lists::fetch::{ItemList, list_all, offers_list};
use crate::lists::polls::PollTimer;
use crate::server_context::ServerContext;
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::ItemKind;
use moongate_protocol::Era;

/// Limit of items that all connections of one server may add together.
// All clients see these items. One client's connection must not flood the lists of the others.
const EXTRA_ITEMS_MAX: usize = 256;
/// Limit of their bytes.
const EXTRA_BYTES_MAX: usize = 1024 * 1024;
/// Shortest interval between fetches of one connection's lists.
const COLLECT_INTERVAL: Duration = Duration::from_secs(2);

type ItemsByKind = [Vec<Arc<JsonObject>>; ItemKind::ALL.len()];

/// Items that dedicated connections add to the lists of a server.
#[derive(Default)]
pub(crate) struct ExtraItems(Mutex<ExtraItemsTable>);

#[derive(Default)]
struct ExtraItemsTable {
    /// Items that the connection of all clients listed, in each era.
    shared: HashMap<Era, ItemsByKind>,
    by_connection: HashMap<ByteString, ConnectionItems>,
}

impl ExtraItemsTable {
    /// Iterates over the items of all connections.
    fn all_items(&self) -> impl Iterator<Item = &Arc<JsonObject>> {
        self.by_connection
            .values()
            .flat_map(|added| &added.lists)
            .flatten()
    }
}

/// Items of one connection.
struct ConnectionItems {
    era: Era,
    lists: ItemsByKind,
}

impl ExtraItems {
    /// Adds the extra items of an era to a list of the connection that all clients of that era
    /// have.
    pub(crate) fn merge_into(&self, era: Era, kind: ItemKind, list: &mut ItemList) {
        let mut table = self.0.lock();
        // Remembered, because `replace` compares with it.
        table.shared.entry(era).or_default()[kind as usize] = list.items.clone();
        let mut known = keys(&list.items, kind);
        let mut added: Vec<_> = table
            .by_connection
            .iter()
            .filter(|(_, added)| added.era == era)
            .collect();
        // Sorted, so that the order is the same in each list.
        added.sort_by_key(|(one, _)| *one);
        for item in added
            .into_iter()
            .flat_map(|(_, added)| &added.lists[kind as usize])
        {
            if item
                .get_string(kind.item_key())
                .is_some_and(|key| known.insert(key))
            {
                list.items.push(item.clone());
            }
        }
    }

    /// Replaces the extra items of one connection and kind. Returns true if they differ from
    /// before.
    fn replace(
        &self,
        by: &ByteString,
        era: Era,
        kind: ItemKind,
        items: Vec<Arc<JsonObject>>,
    ) -> bool {
        let mut table = self.0.lock();
        let known = table
            .shared
            .get(&era)
            .map(|shared| keys(&shared[kind as usize], kind))
            .unwrap_or_default();
        // Cleared first, so that the connection's old items do not count against the limits.
        let added = table.by_connection.entry(by.clone());
        let added = added.or_insert_with(|| ConnectionItems {
            era,
            lists: ItemsByKind::default(),
        });
        let before = std::mem::take(&mut added.lists[kind as usize]);
        let mut count = table.all_items().count();
        let mut bytes = table
            .all_items()
            .map(|item| item.size_hint())
            .sum::<usize>();
        let mut kept = Vec::new();
        for item in items {
            if item
                .get_string(kind.item_key())
                .is_none_or(|key| known.contains(&key))
            {
                continue;
            }
            (count, bytes) = (count + 1, bytes + item.size_hint());
            if count > EXTRA_ITEMS_MAX || bytes > EXTRA_BYTES_MAX {
                tracing::warn!(
                    "dedicated connections list more than {EXTRA_ITEMS_MAX} extra items or \
                     {EXTRA_BYTES_MAX} bytes; the rest is left out"
                );
                break;
            }
            kept.push(item);
        }
        let differs = kept != before;
        if let Some(added) = table.by_connection.get_mut(by) {
            added.lists[kind as usize] = kept;
        }
        differs
    }

    /// Removes the items of a connection. Returns true if there were any.
    fn forget(&self, by: &ByteString) -> bool {
        self.0
            .lock()
            .by_connection
            .remove(by)
            .is_some_and(|added| added.lists.iter().any(|list| !list.is_empty()))
    }
}

fn keys(items: &[Arc<JsonObject>], kind: ItemKind) -> HashSet<ByteString> {
    items
        .iter()
        .filter_map(|item| item.get_string(kind.item_key()))
        .collect()
}

/// Collector of one connection: the lists to fetch there after a change.
pub(crate) struct ExtraItemsCollector {
    extra_items: Arc<ExtraItems>,
    connection: ByteString,
    changed: Mutex<Vec<ItemKind>>,
    has_changes: Notify,
}

impl ExtraItemsCollector {
    /// Creates the collector of the connection with this key.
    pub(crate) fn new(extra_items: &Arc<ExtraItems>, connection: ByteString) -> Self {
        ExtraItemsCollector {
            extra_items: extra_items.clone(),
            connection,
            changed: Mutex::default(),
            has_changes: Notify::new(),
        }
    }

    /// Records that a list of the connection changed.
    pub(crate) fn mark_changed(&self, kind: ItemKind) {
        let mut changed = self.changed.lock();
        if !changed.contains(&kind) {
            changed.push(kind);
        }
        drop(changed);
        self.has_changes.notify_one();
    }

    /// Fetches the lists that changed, or that a silent server may have changed, and calls `report`
    /// for each that clients should look at. Never returns.
    pub(crate) async fn run_collector(
        &self,
        server: &ServerContext,
        connection: &UpstreamConnection,
        report: impl Fn(ItemKind),
    ) {
        let mut polls = PollTimer::new();
        loop {
            tokio::select! {
                () = self.has_changes.notified() => {
                    // Taken before the fetch, so that a change during it leads to another.
                    let kinds = std::mem::take(&mut *self.changed.lock());
                    for kind in kinds {
                        self.fetch(server, connection, kind).await;
                        report(kind);
                    }
                    // Changes during the pause are collected into one fetch.
                    sleep(COLLECT_INTERVAL).await;
                }
                () = sleep_until(polls.next_poll_at()) => {
                    let capabilities = connection.server.describe(&gateway_caller()).capabilities;
                    let is_used = connection.take_new_calls(NewCalls::Lists);
                    for kind in polls.take_due(server, is_used, &capabilities) {
                        if self.fetch(server, connection, kind).await {
                            report(kind);
                        }
                    }
                }
            }
        }
    }

    /// Fetches a list of the connection. Returns true if its extra items differ from before.
    async fn fetch(
        &self,
        server: &ServerContext,
        connection: &UpstreamConnection,
        kind: ItemKind,
    ) -> bool {
        let settings = &server.settings;
        if !offers_list(
            &connection.server.describe(&gateway_caller()).capabilities,
            kind,
        ) {
            return false;
        }
        let listed = list_all(&*connection.server, kind, &settings.options.lists);
        match timeout(server.peek_live_settings().live.list_timeout.0, listed).await {
            Ok(Ok(list)) => {
                return self.extra_items.replace(
                    &self.connection,
                    connection.era,
                    kind,
                    list.items,
                );
            }
            Ok(Err(error)) => {
                tracing::debug!(server = settings.name, "connection not listed: {error}")
            }
            Err(_) => tracing::debug!(server = settings.name, "connection not listed in time"),
        }
        false
    }

    /// Removes the connection's items, and reports the lists that may be shorter now.
    pub(crate) fn discard(&self, report: impl Fn(ItemKind)) {
        if self.extra_items.forget(&self.connection) {
            ItemKind::ALL.into_iter().for_each(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::RawJson;

    fn items(names: impl IntoIterator<Item = String>) -> Vec<Arc<JsonObject>> {
        names
            .into_iter()
            .map(|name| Arc::new(JsonObject::new().with("name", RawJson::string(&name))))
            .collect()
    }

    fn merged(added: &ExtraItems, main: &[&str]) -> Vec<String> {
        let mut list = ItemList {
            items: items(main.iter().map(|name| (*name).to_owned())),
            ..ItemList::default()
        };
        added.merge_into(Era::Legacy, ItemKind::Tools, &mut list);
        list.items
            .iter()
            .map(|item| item.get_string("name").unwrap().to_string())
            .collect()
    }

    #[test]
    fn items_of_a_connection_are_listed_until_it_closes() {
        let added = Arc::new(ExtraItems::default());
        let one = ByteString::literal("one");
        let other = ByteString::literal("other");
        assert_eq!(merged(&added, &["a"]), ["a"]);
        added.replace(
            &one,
            Era::Legacy,
            ItemKind::Tools,
            items(["a", "b"].map(str::to_owned)),
        );
        added.replace(
            &other,
            Era::Legacy,
            ItemKind::Tools,
            items(["b", "c"].map(str::to_owned)),
        );
        assert_eq!(merged(&added, &["a"]), ["a", "b", "c"]);
        assert_eq!(merged(&added, &["a", "c"]), ["a", "c", "b"]);
        ExtraItemsCollector::new(&added, one).discard(|_| {});
        assert_eq!(merged(&added, &["a"]), ["a", "b", "c"]);
        added.replace(&other, Era::Legacy, ItemKind::Tools, Vec::new());
        assert_eq!(merged(&added, &["a"]), ["a"]);
        assert!(!added.forget(&other), "it added nothing any more");
    }

    #[test]
    fn items_of_connections_are_bounded() {
        let added = ExtraItems::default();
        for n in 0..3 {
            added.replace(
                &ByteString::from(format!("{n}")),
                Era::Legacy,
                ItemKind::Tools,
                items((0..200).map(|item| format!("{n} {item}"))),
            );
        }
        assert_eq!(merged(&added, &[]).len(), EXTRA_ITEMS_MAX);
        added.replace(
            &ByteString::literal("0"),
            Era::Legacy,
            ItemKind::Tools,
            items(["x".repeat(EXTRA_BYTES_MAX)]),
        );
        assert_eq!(merged(&added, &[]).len(), EXTRA_ITEMS_MAX - 200);
    }
}
