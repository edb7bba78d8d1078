//! Indexes of the catalogue for search mode, built when somebody first searches.
//!
//! Owns one index a group of items, which all endpoints and principals share. Does not decide who
//! sees an item: the filter of each search does. Invariant: only servers whose items changed are
//! read again.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::catalog::Snapshot;
use crate::catalog_route::CatalogRoute;
use crate::search_mode::item_texts::{ItemId, ItemTexts};
use moongate_jsonrpc::json::ByteString;
use moongate_model::ItemKind;
use moongate_search::{SearchIndex, ServerDocument};

/// Searches that run at once. They take the time of threads, which calls need as well.
const SEARCHES_MAX: usize = 2;

/// Items that are searched together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemGroup {
    Tools,
    /// Resources and templates.
    Resources,
    Prompts,
}

/// Indexes of all groups, as far as somebody searched.
pub(crate) struct ItemIndexes {
    // A lock for each group: an update for tools must not hold up a search for prompts.
    groups: [Mutex<GroupIndex>; 3],
    /// Permits of searches.
    pub(super) searches: Arc<Semaphore>,
}

/// Index of one group, as of one snapshot.
#[derive(Default)]
struct GroupIndex {
    // Weak, or the index would keep a replaced catalogue in memory until the next search. It also
    // keeps the address from reuse, so equal pointers mean the same snapshot.
    snapshot: Weak<Snapshot>,
    index: SearchIndex<ItemId>,
    /// Digest of each server's items.
    digests: HashMap<ByteString, u64>,
}

impl Default for ItemIndexes {
    fn default() -> Self {
        ItemIndexes {
            groups: Default::default(),
            searches: Arc::new(Semaphore::new(SEARCHES_MAX)),
        }
    }
}

impl ItemIndexes {
    /// Returns the index of a group for a snapshot. Takes long after a change, so no async task may
    /// call it.
    pub(super) fn load(&self, group: ItemGroup, snapshot: &Arc<Snapshot>) -> SearchIndex<ItemId> {
        // Held during an update: a second search waits for that one, and does not repeat it.
        let mut cached = self.groups[group as usize].lock();
        if !Weak::ptr_eq(&cached.snapshot, &Arc::downgrade(snapshot)) {
            cached.update(group, snapshot);
            // Noted last: after a panic in the update, the next search updates again.
            cached.snapshot = Arc::downgrade(snapshot);
        }
        // A copy shares its words and costs little. A search under the lock would hold up all
        // others.
        cached.index.clone()
    }
}

impl ItemGroup {
    pub(super) fn kinds(self) -> &'static [ItemKind] {
        match self {
            ItemGroup::Tools => &[ItemKind::Tools],
            ItemGroup::Resources => &[ItemKind::Resources, ItemKind::Templates],
            ItemGroup::Prompts => &[ItemKind::Prompts],
        }
    }
}

impl GroupIndex {
    fn update(&mut self, group: ItemGroup, snapshot: &Snapshot) {
        let mut servers: BTreeMap<ByteString, Vec<(ItemKind, &CatalogRoute)>> = BTreeMap::new();
        for kind in group.kinds() {
            for route in snapshot.iter(*kind).filter(|route| !route.hidden) {
                servers
                    .entry(route.upstream.name.clone())
                    .or_default()
                    .push((*kind, route));
            }
        }
        let gone = self
            .digests
            .keys()
            .filter(|name| !servers.contains_key(*name))
            .cloned()
            .collect::<Vec<_>>();
        for name in gone {
            self.index.remove_server(&name);
            self.digests.remove(&name);
        }
        for (name, items) in servers {
            let about = items
                .first()
                .and_then(|(_, route)| route.upstream.description_or_instructions())
                .unwrap_or_default();
            let title = items
                .first()
                .and_then(|(_, route)| route.upstream.settings.presentation.title.as_deref())
                .unwrap_or_default();
            // A change of any server makes a new snapshot. The digest spares the servers that did
            // not change.
            let digest = digest(title, &about, &items);
            if self.digests.get(&name) == Some(&digest) {
                continue;
            }
            let texts: Vec<ItemTexts> = items
                .iter()
                .map(|(kind, route)| ItemTexts::read(*kind, route))
                .collect();
            let documents = texts.iter().map(ItemTexts::document);
            self.index.replace_server(
                ServerDocument {
                    name: &name,
                    title,
                    description: &about,
                },
                documents,
            );
            self.digests.insert(name, digest);
        }
    }
}

/// Digest of everything that the index reads of a server.
fn digest(title: &str, about: &str, items: &[(ItemKind, &CatalogRoute)]) -> u64 {
    let parts: Vec<(ItemKind, &[u8], &[u8])> = items
        .iter()
        .map(|(kind, route)| {
            (
                *kind,
                route.exposed.as_bytes(),
                &route.form.listed.bytes()[..],
            )
        })
        .collect();
    // Fixed keys suffice. A server that forges a collision makes only its own entries stale.
    BuildHasherDefault::<DefaultHasher>::default().hash_one((title, about, parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NameRules;
    use crate::testing;
    use bytes::Bytes;
    use moongate_jsonrpc::json::JsonObject;

    fn snapshot(server: &str, tools: &[&str]) -> Arc<Snapshot> {
        let tools = tools
            .iter()
            .map(|name| JsonObject::parse(Bytes::from(format!(r#"{{"name":"{name}"}}"#))).unwrap());
        let entry = testing::running_server(server, ItemKind::Tools, tools);
        let rules = NameRules {
            separator: "__".to_owned(),
            max_length: 64,
        };
        Arc::new(testing::snapshot(&[entry], &rules))
    }

    fn found(indexes: &ItemIndexes, snapshot: &Arc<Snapshot>, query: &str) -> Vec<String> {
        let hits = indexes
            .load(ItemGroup::Tools, snapshot)
            .search(query, |_| true, 5);
        hits.into_iter().map(|hit| hit.id.1.to_string()).collect()
    }

    #[tokio::test]
    async fn the_index_follows_the_catalogue() {
        let indexes = ItemIndexes::default();
        let first = snapshot("a", &["read_file", "send_mail"]);
        assert_eq!(found(&indexes, &first, "send mail"), ["a__send_mail"]);
        let second = snapshot("b", &["read_file"]);
        assert!(found(&indexes, &second, "send mail").is_empty());
        assert_eq!(found(&indexes, &second, "read file"), ["b__read_file"]);
        assert_eq!(found(&indexes, &first, "send mail"), ["a__send_mail"]);
    }
}
