//! Lists of a server of both eras: one for each era, from that era's face. Owns what replaces the
//! list of a face that is not connected. Does not fetch (`supervisor/refresh.rs`,
//! `dedicated/face_lister.rs`). Invariant: equal items of both faces are held once, and no item
//! keeps the message alive that it came in.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::lists::dedicated::extra_items::ExtraItems;
use crate::lists::fetch::{ItemList, ServerLists};
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::ItemKind;
use moongate_protocol::Era;

/// Lists of one server, as clients of each era get them.
#[derive(Clone)]
pub struct EraLists {
    /// Era of the shared connection, now or last.
    era: Era,
    /// Lists of the shared connection.
    shared: Arc<ServerLists>,
    /// Face in the other era, once it was listed.
    other: Option<OtherFace>,
    /// Lists for clients of the other era.
    other_lists: Arc<ServerLists>,
    /// Items of both, those of the shared connection first.
    all: Arc<ServerLists>,
}

/// Face of the server in the era that its shared connection does not have.
#[derive(Clone, Default)]
struct OtherFace {
    /// Lists as its connection had them, for each kind that it listed.
    listed: [Option<Arc<ItemList>>; ItemKind::ALL.len()],
    /// Lists of the shared connection at that time. `None`: its next ones.
    shared_then: [Option<Arc<ItemList>>; ItemKind::ALL.len()],
    is_connected: bool,
}

impl Default for EraLists {
    fn default() -> Self {
        EraLists::of_one_era(Era::Modern, Arc::default())
    }
}

impl EraLists {
    /// Creates the lists of a server whose other face was never listed.
    pub(crate) fn of_one_era(era: Era, shared: Arc<ServerLists>) -> Self {
        EraLists {
            era,
            other: None,
            other_lists: shared.clone(),
            all: shared.clone(),
            shared,
        }
    }

    /// Creates the lists that a previous process had.
    pub(crate) fn restored(era: Era, shared: ServerLists, other: Option<ServerLists>) -> Self {
        let mut lists = EraLists::of_one_era(era, Arc::new(shared));
        if let Some(other) = other {
            let mut face = OtherFace::default();
            for kind in ItemKind::ALL {
                face.listed[kind as usize] = Some(other.get(kind).clone());
                face.shared_then[kind as usize] = Some(lists.shared.get(kind).clone());
            }
            lists.other = Some(face);
            lists.rebuild(&ExtraItems::default());
        }
        lists
    }

    /// Returns the era of the shared connection, now or last.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Returns the era that the shared connection does not have.
    pub fn other_era(&self) -> Era {
        self.era.other()
    }

    /// Returns the lists of the shared connection.
    pub fn shared(&self) -> &Arc<ServerLists> {
        &self.shared
    }

    /// Returns the lists for clients of the other era. They may be the same.
    pub fn other(&self) -> &Arc<ServerLists> {
        &self.other_lists
    }

    /// Returns the lists for clients of an era.
    pub fn of_era(&self, era: Era) -> &Arc<ServerLists> {
        if era == self.era {
            &self.shared
        } else {
            &self.other_lists
        }
    }

    /// Returns the items of both eras. Of an item that both list, the shared connection's form
    /// counts.
    pub fn all(&self) -> &Arc<ServerLists> {
        &self.all
    }

    /// Returns true if clients get the same lists from both, and not only equal ones.
    pub(crate) fn holds_same(&self, before: &EraLists) -> bool {
        self.shared.holds_same(&before.shared) && self.other_lists.holds_same(&before.other_lists)
    }

    /// Returns true if both faces of the server have listed a kind.
    pub fn are_both_listed(&self, kind: ItemKind) -> bool {
        self.other
            .as_ref()
            .is_some_and(|other| other.listed[kind as usize].is_some())
    }

    /// Returns the other face's lists for the next process, if they differ.
    pub(crate) fn persisted_other(&self) -> Option<&Arc<ServerLists>> {
        let differs =
            |kind: ItemKind| !Arc::ptr_eq(self.other_lists.get(kind), self.shared.get(kind));
        (self.other.is_some() && ItemKind::ALL.into_iter().any(differs))
            .then_some(&self.other_lists)
    }

    /// Makes this era that of the shared connection. `keeps`: whether the lists so far serve
    /// clients of their era on.
    pub(crate) fn turn_to(&mut self, era: Era, keeps: Option<KeptLists>) {
        if self.era == era {
            return;
        }
        let before = self.shared.clone();
        let next = if self.other.is_some() {
            self.other_lists.clone()
        } else {
            before.clone()
        };
        self.other = keeps.map(|kept| {
            let listed = ItemKind::ALL.map(|kind| Some(before.get(kind).clone()));
            let shared_then = ItemKind::ALL.map(|kind| match kept {
                KeptLists::JustListed => None,
                KeptLists::Remembered => Some(next.get(kind).clone()),
            });
            OtherFace {
                listed,
                shared_then,
                is_connected: false,
            }
        });
        (self.era, self.shared) = (era, next);
    }

    /// Records a list of the shared connection. Returns true if it differs from before.
    pub(crate) fn set_shared(&mut self, kind: ItemKind, list: ItemList) -> bool {
        let before = self.shared.get(kind).clone();
        let at = kind as usize;
        let differs = *before != list;
        // An equal list of another era says how its results come.
        if differs
            || before
                .era
                .is_some_and(|era| list.era.is_some_and(|now| now != era))
        {
            let other = self
                .other
                .as_ref()
                .and_then(|other| other.listed[at].clone());
            let list = Arc::new(with_known_items(
                kind,
                list,
                [Some(&before), other.as_ref()],
            ));
            // Copy on write: readers keep the lists that they hold.
            let mut lists = (*self.shared).clone();
            lists.replace(kind, list);
            self.shared = Arc::new(lists);
        }
        if let Some(other) = &mut self.other {
            other.shared_then[at].get_or_insert_with(|| self.shared.get(kind).clone());
        }
        differs
    }

    /// Records a list of the face in the other era, whose connection is open.
    pub(crate) fn set_other(&mut self, kind: ItemKind, list: ItemList) {
        let shared = self.shared.get(kind).clone();
        let at = kind as usize;
        let era = self.other_era();
        let other = self.other.get_or_insert_default();
        let before = other.listed[at].clone();
        let list = ItemList {
            era: Some(era),
            ..list
        };
        let same = [Some(&shared), before.as_ref()]
            .into_iter()
            .flatten()
            .find(|known| ***known == list)
            .cloned();
        let list = same.unwrap_or_else(|| {
            Arc::new(with_known_items(
                kind,
                list,
                [Some(&shared), before.as_ref()],
            ))
        });
        (other.listed[at], other.shared_then[at], other.is_connected) =
            (Some(list), Some(shared), true);
    }

    /// Returns true while the face in the other era is connected and listed.
    pub(crate) fn is_other_connected(&self) -> bool {
        self.other.as_ref().is_some_and(|other| other.is_connected)
    }

    /// Records that the connection in the other era has ended. Its lists stay, and follow the
    /// shared ones.
    pub(crate) fn close_other(&mut self) {
        if let Some(other) = &mut self.other {
            other.is_connected = false;
        }
    }

    /// Forgets the face in the other era: its clients meet the server in this one.
    pub(crate) fn forget_other(&mut self) {
        self.other = None;
    }

    /// Derives what clients get, once all changes are recorded. Returns true if that differs from
    /// before.
    pub(crate) fn rebuild(&mut self, extra_items: &ExtraItems) -> bool {
        let lists = match &self.other {
            Some(other) => {
                let era = self.other_era();
                Arc::new(ServerLists::from(ItemKind::ALL.map(|kind| {
                    other.list(kind, era, self.shared.get(kind), extra_items)
                })))
            }
            None => self.shared.clone(),
        };
        let differs = !lists.holds_same(&self.other_lists);
        if differs || self.other.is_none() {
            self.other_lists = lists;
        }
        let all = ItemKind::ALL
            .map(|kind| union(kind, self.shared.get(kind), self.other_lists.get(kind)));
        let all = ServerLists::from(all);
        if all.holds_same(&self.shared) {
            self.all = self.shared.clone();
        } else if all != *self.all {
            self.all = Arc::new(all);
        }
        differs
    }
}

/// Reason to keep the lists of a face whose connection is replaced by one in the other era.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum KeptLists {
    /// It listed them in this process: they belong to the next lists of the new connection.
    JustListed,
    /// A previous process had them: they belong to what that process knew of the other face.
    Remembered,
}

impl OtherFace {
    /// Returns the list of one kind for clients of this era.
    fn list(
        &self,
        kind: ItemKind,
        era: Era,
        shared: &Arc<ItemList>,
        extra_items: &ExtraItems,
    ) -> Arc<ItemList> {
        let at = kind as usize;
        let Some(listed) = &self.listed[at] else {
            return shared.clone();
        };
        let followed = match &self.shared_then[at] {
            Some(shared_then)
                if !self.is_connected
                    && !Arc::ptr_eq(shared_then, shared)
                    && shared_then != shared =>
            {
                Arc::new(follow_shared_changes(kind, listed, shared_then, shared))
            }
            _ => listed.clone(),
        };
        let mut list = (*followed).clone();
        extra_items.merge_into(era, kind, &mut list);
        let same = [shared, listed, &followed]
            .into_iter()
            .find(|known| ***known == list)
            .cloned();
        same.unwrap_or_else(|| Arc::new(list))
    }
}

/// Returns what an unconnected face would list after the server's lists have changed: its own form
/// of the items that are as they were when both were listed, and the connected face's form of all
/// others.
fn follow_shared_changes(
    kind: ItemKind,
    listed: &ItemList,
    shared_then: &ItemList,
    shared: &ItemList,
) -> ItemList {
    let own = by_key(kind, listed);
    let known = by_key(kind, shared_then);
    let mut items = Vec::new();
    let mut keys = HashSet::new();
    for item in &shared.items {
        let key = item.get_string(kind.item_key());
        keys.extend(key.clone());
        match key.filter(|key| known.get(key).is_some_and(|known| *known == item)) {
            // An item that this face did not list at that time exists in the other era only.
            Some(key) => items.extend(own.get(&key).map(|own| (*own).clone())),
            None => items.push(item.clone()),
        }
    }
    items.extend(
        listed
            .items
            .iter()
            .filter(|item| {
                item.get_string(kind.item_key())
                    .is_some_and(|key| !known.contains_key(&key) && !keys.contains(&key))
            })
            .cloned(),
    );
    ItemList {
        items,
        cache: listed.cache,
        era: listed.era,
        ..shared.clone()
    }
}

/// Returns the list with the known form of each item that is known already, and copies of the
/// others.
fn with_known_items<const N: usize>(
    kind: ItemKind,
    list: ItemList,
    lists: [Option<&Arc<ItemList>>; N],
) -> ItemList {
    let known = lists.map(|known| known.map(|known| by_key(kind, known)));
    ItemList {
        items: list
            .items
            .into_iter()
            .map(|item| known_or_detached(kind, item, &known))
            .collect(),
        ..list
    }
}

/// Returns the known form of an item, or a copy that keeps no message in memory.
fn known_or_detached(
    kind: ItemKind,
    item: Arc<JsonObject>,
    lists: &[Option<HashMap<ByteString, &Arc<JsonObject>>>],
) -> Arc<JsonObject> {
    let key = item.get_string(kind.item_key());
    let same = key.and_then(|key| {
        let found = lists.iter().flatten().filter_map(|known| known.get(&key));
        found.copied().find(|known| **known == item).cloned()
    });
    same.unwrap_or_else(|| {
        item.to_raw()
            .detached()
            .as_object()
            .map(Arc::new)
            .unwrap_or(item)
    })
}

fn by_key(kind: ItemKind, list: &ItemList) -> HashMap<ByteString, &Arc<JsonObject>> {
    list.items
        .iter()
        .filter_map(|item| Some((item.get_string(kind.item_key())?, item)))
        .collect()
}

fn union(kind: ItemKind, shared: &Arc<ItemList>, other: &Arc<ItemList>) -> Arc<ItemList> {
    if Arc::ptr_eq(shared, other) {
        return shared.clone();
    }
    let known = by_key(kind, shared);
    let more: Vec<_> = other
        .items
        .iter()
        .filter(|item| {
            item.get_string(kind.item_key())
                .is_some_and(|key| !known.contains_key(&key))
        })
        .cloned()
        .collect();
    match more.is_empty() {
        true => shared.clone(),
        false => Arc::new(ItemList {
            items: shared.items.iter().cloned().chain(more).collect(),
            ..(**shared).clone()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::RawJson;

    const TOOLS: ItemKind = ItemKind::Tools;

    /// Returns a list of tools, each as `name` or `name=form`.
    fn list(tools: &[&str]) -> ItemList {
        ItemList {
            items: tools.iter().map(|text| item(text)).collect(),
            ..ItemList::default()
        }
    }

    fn item(text: &str) -> Arc<JsonObject> {
        let (name, form) = text.split_once('=').unwrap_or((text, ""));
        let item = JsonObject::new().with("name", RawJson::string(name));
        Arc::new(if form.is_empty() {
            item
        } else {
            item.with("title", RawJson::string(form))
        })
    }

    fn shown_tools(lists: &ServerLists) -> Vec<String> {
        lists
            .get(TOOLS)
            .items
            .iter()
            .map(|item| match item.get_string("title") {
                Some(form) => format!("{}={form}", item.get_string("name").unwrap()),
                None => item.get_string("name").unwrap().to_string(),
            })
            .collect()
    }

    /// Changes the lists, and returns what the shared era and the other one get.
    fn change_lists(
        lists: &mut EraLists,
        change: impl FnOnce(&mut EraLists),
    ) -> (Vec<String>, Vec<String>) {
        change(lists);
        lists.rebuild(&ExtraItems::default());
        (shown_tools(lists.shared()), shown_tools(lists.other()))
    }

    fn lists_of_both_eras() -> EraLists {
        let mut lists = EraLists::default();
        let (shared, other) = change_lists(&mut lists, |lists| {
            lists.set_shared(TOOLS, list(&["a", "b=modern", "new"]));
            lists.set_other(TOOLS, list(&["a", "b=legacy", "old"]));
        });
        assert_eq!(shared, ["a", "b=modern", "new"]);
        assert_eq!(other, ["a", "b=legacy", "old"]);
        lists
    }

    #[test]
    fn lists_of_the_other_face_have_its_era() {
        let mut lists = lists_of_both_eras();
        assert_eq!(lists.other().get(TOOLS).era, Some(Era::Legacy));
        // It stays where the list follows the shared one.
        change_lists(&mut lists, |lists| {
            lists.close_other();
            lists.set_shared(TOOLS, list(&["a", "c"]));
        });
        assert_eq!(lists.other().get(TOOLS).era, Some(Era::Legacy));
    }

    #[test]
    fn a_face_that_was_never_listed_has_the_list_of_the_other() {
        let mut lists = EraLists::default();
        let (shared, other) = change_lists(&mut lists, |lists| {
            _ = lists.set_shared(TOOLS, list(&["a", "b=modern"]))
        });
        assert_eq!(shared, other);
        assert!(
            Arc::ptr_eq(lists.shared(), lists.other()) && Arc::ptr_eq(lists.shared(), lists.all())
        );
        assert!(lists.persisted_other().is_none());
    }

    fn share_first_item(lists: &EraLists) -> bool {
        Arc::ptr_eq(
            &lists.shared().get(TOOLS).items[0],
            &lists.other().get(TOOLS).items[0],
        )
    }

    #[test]
    fn equal_items_of_both_faces_are_held_once() {
        let mut lists = lists_of_both_eras();
        assert!(share_first_item(&lists));
        assert_eq!(shown_tools(lists.all()), ["a", "b=modern", "new", "old"]);
        // A list that was fetched again shares the items that are as they were.
        change_lists(&mut lists, |lists| {
            _ = lists.set_shared(TOOLS, list(&["a", "c"]))
        });
        assert!(share_first_item(&lists));
        change_lists(&mut lists, |lists| {
            lists.set_other(TOOLS, list(&["a", "c"]))
        });
        assert!(
            Arc::ptr_eq(lists.shared().get(TOOLS), lists.other().get(TOOLS)),
            "the whole list"
        );
        let before = lists.clone();
        assert!(
            !lists.set_shared(TOOLS, list(&["a", "c"])),
            "nothing changed"
        );
        lists.rebuild(&ExtraItems::default());
        assert!(lists.holds_same(&before));
    }

    #[test]
    fn a_face_that_is_not_connected_follows_the_other() {
        let mut lists = lists_of_both_eras();
        let (_, other) = change_lists(&mut lists, EraLists::close_other);
        assert_eq!(other, ["a", "b=legacy", "old"], "nothing changed yet");
        // Changed, added and removed items are those of the face that is connected.
        let (_, other) = change_lists(&mut lists, |lists| {
            _ = lists.set_shared(TOOLS, list(&["b=modern", "a=2", "c", "new"]))
        });
        assert_eq!(other, ["b=legacy", "a=2", "c", "old"]);
        let (_, other) = change_lists(&mut lists, |lists| {
            _ = lists.set_shared(TOOLS, list(&["b=other"]))
        });
        assert_eq!(other, ["b=other", "old"]);
        let (_, other) = change_lists(&mut lists, |lists| {
            lists.set_other(TOOLS, list(&["b=legacy"]))
        });
        assert_eq!(other, ["b=legacy"], "it is connected again");
        let (shared, other) = change_lists(&mut lists, EraLists::forget_other);
        assert_eq!(shared, other);
    }

    #[test]
    fn lists_change_places_with_their_connections() {
        let mut lists = EraLists::default();
        change_lists(&mut lists, |lists| {
            _ = lists.set_shared(TOOLS, list(&["a=modern", "new"]))
        });
        let (shared, other) = change_lists(&mut lists, |lists| {
            lists.turn_to(Era::Legacy, Some(KeptLists::JustListed))
        });
        assert_eq!(shared, other, "until it is listed");
        let (shared, other) = change_lists(&mut lists, |lists| {
            _ = lists.set_shared(TOOLS, list(&["a=legacy", "old"]))
        });
        assert_eq!(shared, ["a=legacy", "old"]);
        assert_eq!(other, ["a=modern", "new"]);
        let (_, other) = change_lists(&mut lists, |lists| {
            _ = lists.set_shared(TOOLS, list(&["a=legacy", "b"]))
        });
        assert_eq!(other, ["a=modern", "b", "new"]);
        // Back, after a restart of a server that was not seen in this era meanwhile.
        change_lists(&mut lists, |lists| {
            lists.turn_to(Era::Modern, Some(KeptLists::Remembered))
        });
        let (shared, other) = change_lists(&mut lists, |lists| {
            _ = lists.set_shared(TOOLS, list(&["a=newer", "b", "new"]))
        });
        assert_eq!(shared, ["a=newer", "b", "new"]);
        assert_eq!(other, ["a=newer", "b"]);
        // A server that speaks one era has one list.
        let (shared, other) = change_lists(&mut lists, |lists| lists.turn_to(Era::Legacy, None));
        assert_eq!(shared, other);
    }
}
