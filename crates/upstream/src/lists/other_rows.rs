//! Stored form of the lists of a server's other era. Owns how items are named that both eras have.
//! Does not store (`cache.rs`). Invariant: an item that both have is stored once, and is held once
//! after a restart.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::lists::fetch::{ItemList, RefusedItem, ServerLists};
use moongate_jsonrpc::json::JsonObject;
use moongate_model::{CacheHint, ItemKind};
use moongate_protocol::Era;

/// List of the other era, as the store has it.
#[derive(Serialize, Deserialize)]
pub(crate) struct OtherListRow {
    /// Position in the shared list of each item, in order. `None`: the next one of `own`.
    shared: Vec<Option<usize>>,
    /// Items that differ from those of the shared list.
    own: Vec<JsonObject>,
    cache: Option<CacheHint>,
    cut: Vec<String>,
    #[serde(default)]
    refused: Vec<RefusedItem>,
}

/// Lists of the other era, as the store has them.
pub(crate) type OtherRows = [OtherListRow; ItemKind::ALL.len()];

/// Returns the stored form of the lists of the other era.
pub(crate) fn store(lists: &ServerLists, shared: &ServerLists) -> OtherRows {
    ItemKind::ALL.map(|kind| OtherListRow::new(lists.get(kind), shared.get(kind)))
}

/// Returns the stored lists of this era, or `None` if they do not fit to the shared ones.
pub(crate) fn restore(rows: OtherRows, era: Era, shared: &ServerLists) -> Option<ServerLists> {
    let mut lists = ServerLists::default();
    for (kind, row) in ItemKind::ALL.into_iter().zip(rows) {
        lists.set(kind, row.into_list(era, shared.get(kind))?);
    }
    Some(lists)
}

impl OtherListRow {
    fn new(list: &ItemList, shared: &ItemList) -> Self {
        // Equal items are the same allocation (`eras.rs`).
        let known: HashMap<_, _> = shared
            .items
            .iter()
            .enumerate()
            .map(|(n, item)| (Arc::as_ptr(item), n))
            .collect();
        // The era is not stored: it is the one that the row's shared lists do not have.
        let ItemList {
            items,
            cache,
            cut,
            era: _,
            refused,
        } = list;
        let positions: Vec<Option<usize>> = items
            .iter()
            .map(|item| known.get(&Arc::as_ptr(item)).copied())
            .collect();
        let own = items
            .iter()
            .zip(&positions)
            .filter(|(_, position)| position.is_none());
        OtherListRow {
            own: own.map(|(item, _)| (**item).clone()).collect(),
            shared: positions,
            cache: *cache,
            cut: cut.clone(),
            refused: refused.clone(),
        }
    }

    fn into_list(self, era: Era, shared: &ItemList) -> Option<ItemList> {
        let mut own = self.own.into_iter().map(Arc::new);
        let items: Option<Vec<_>> = self
            .shared
            .into_iter()
            .map(|position| match position {
                Some(position) => shared.items.get(position).cloned(),
                None => own.next(),
            })
            .collect();
        Some(ItemList {
            items: items?,
            cache: self.cache,
            cut: self.cut,
            era: Some(era),
            refused: self.refused,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::RawJson;

    fn item(name: &str) -> Arc<JsonObject> {
        Arc::new(JsonObject::new().with("name", RawJson::string(name)))
    }

    fn read_row(json: &str, shared: &ItemList) -> Option<ItemList> {
        let row: OtherListRow = serde_json::from_str(json).unwrap();
        row.into_list(Era::Modern, shared)
    }

    #[test]
    fn an_item_of_both_eras_is_stored_and_held_once() {
        let shared = ItemList {
            items: vec![item("a"), item("b")],
            ..ItemList::default()
        };
        let refused = vec![RefusedItem {
            item: "d".to_owned(),
            reason: "it has a duplicate key".to_owned(),
        }];
        let other = ItemList {
            items: vec![item("c"), shared.items[1].clone()],
            refused,
            ..ItemList::default()
        };
        let row = OtherListRow::new(&other, &shared);
        assert_eq!(row.shared, [None, Some(1)]);
        assert_eq!(row.own.len(), 1);
        let json = serde_json::to_string(&row).unwrap();
        let restored = read_row(&json, &shared).unwrap();
        assert_eq!(restored, other);
        assert_eq!(restored.era, Some(Era::Modern));
        assert!(Arc::ptr_eq(&restored.items[1], &shared.items[1]));
        assert!(
            read_row(&json, &ItemList::default()).is_none(),
            "a row of other lists is of no use"
        );
    }
}
