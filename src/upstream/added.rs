//! Items that a server adds on connections beside the main one.
//!
//! Owns what such a connection lists and the main one does not. Does not list the main connection (`follow`). Invariant:
//! what one connection adds is listed for everybody until that connection ends, and never hides an item of the main one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::json::{Object, Text};
use crate::model::Kind;
use crate::upstream::connect::Active;
use crate::upstream::items::{List, list_all, offers};
use crate::upstream::{ServerSettings, own_caller};

/// Items that all connections of one server may add together,
const ADDED_MAX: usize = 256;
/// and their bytes.
const ADDED_BYTES_MAX: usize = 1024 * 1024;
/// The lists of one connection are not taken more often.
const PAUSE: Duration = Duration::from_secs(2);

type Lists = [Vec<Arc<Object>>; Kind::ALL.len()];

/// What connections beside the main one add to the lists of a server.
#[derive(Default)]
pub(super) struct Added(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// What the main connection listed.
    main: Lists,
    by: HashMap<Text, Lists>,
}

impl Added {
    /// Adds to a list of the main connection what the others have beyond it.
    pub(super) fn merge(&self, kind: Kind, list: &mut List) {
        let mut table = self.lock();
        table.main[kind as usize] = list.items.clone();
        let mut known = keys(&list.items, kind);
        let mut added: Vec<_> = table.by.iter().collect();
        // In an order that does not change from list to list.
        added.sort_by_key(|(one, _)| *one);
        for item in added.into_iter().flat_map(|(_, lists)| &lists[kind as usize]) {
            if item.text(kind.item_key()).is_some_and(|key| known.insert(key)) {
                list.items.push(item.clone());
            }
        }
    }

    /// Keeps what a connection has beyond the main one.
    fn keep(&self, by: &Text, kind: Kind, items: Vec<Arc<Object>>) {
        let mut table = self.lock();
        let known = keys(&table.main[kind as usize], kind);
        table.by.entry(by.clone()).or_default()[kind as usize].clear();
        let all = || table.by.values().flatten().flatten();
        let (mut count, mut bytes) = (all().count(), all().map(|item| item.size_hint()).sum::<usize>());
        let mut kept = Vec::new();
        for item in items {
            if item.text(kind.item_key()).is_none_or(|key| known.contains(&key)) {
                continue;
            }
            (count, bytes) = (count + 1, bytes + item.size_hint());
            if count > ADDED_MAX || bytes > ADDED_BYTES_MAX {
                tracing::warn!(
                    "server: what its connections add to its lists is more than {ADDED_MAX} items or {ADDED_BYTES_MAX} bytes; the rest is left out"
                );
                break;
            }
            kept.push(item);
        }
        if let Some(lists) = table.by.get_mut(by) {
            lists[kind as usize] = kept;
        }
    }

    /// Forgets what a connection added; true if there was anything.
    fn forget(&self, by: &Text) -> bool {
        self.lock().by.remove(by).is_some_and(|lists| lists.iter().any(|list| !list.is_empty()))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keys(items: &[Arc<Object>], kind: Kind) -> HashSet<Text> {
    items.iter().filter_map(|item| item.text(kind.item_key())).collect()
}

/// Lists of one connection that changed, to be taken there.
pub(super) struct Adding {
    added: Arc<Added>,
    by: Text,
    changed: Mutex<Vec<Kind>>,
    more: Notify,
}

impl Adding {
    /// What the connection of this name adds.
    pub(super) fn new(added: &Arc<Added>, by: Text) -> Self {
        Adding { added: added.clone(), by, changed: Mutex::default(), more: Notify::new() }
    }

    /// Notes that a list of the connection changed.
    pub(super) fn change(&self, kind: Kind) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if !changed.contains(&kind) {
            changed.push(kind);
        }
        drop(changed);
        self.more.notify_one();
    }

    /// Takes the lists that change, and tells of each, for as long as the connection is watched.
    pub(super) async fn follow(&self, active: &Active, settings: &ServerSettings, tell: impl Fn(Kind)) {
        loop {
            self.more.notified().await;
            let kinds = std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
            let features = active.server.describe(&own_caller()).features;
            for kind in kinds {
                if offers(&features, kind) {
                    let listed = list_all(&*active.server, kind, &settings.lists);
                    match timeout(settings.list_timeout, listed).await {
                        Ok(Ok(list)) => self.added.keep(&self.by, kind, list.items),
                        Ok(Err(error)) => {
                            tracing::debug!(server = settings.name, "a connection cannot be listed: {error}")
                        }
                        Err(_) => tracing::debug!(server = settings.name, "a connection cannot be listed in time"),
                    }
                }
                tell(kind);
            }
            sleep(PAUSE).await;
        }
    }

    /// Forgets what the connection added, and tells of the lists that are shorter for it.
    pub(super) fn end(&self, tell: impl Fn(Kind)) {
        if self.added.forget(&self.by) {
            Kind::ALL.into_iter().for_each(tell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Raw;

    fn items(names: impl IntoIterator<Item = String>) -> Vec<Arc<Object>> {
        names.into_iter().map(|name| Arc::new(Object::new().with("name", Raw::string(&name)))).collect()
    }

    fn merged(added: &Added, main: &[&str]) -> Vec<String> {
        let mut list = List { items: items(main.iter().map(|name| (*name).to_owned())), ..List::default() };
        added.merge(Kind::Tools, &mut list);
        list.items.iter().map(|item| item.text("name").unwrap().to_string()).collect()
    }

    #[test]
    fn what_a_connection_adds_is_listed_until_it_ends() {
        let added = Arc::new(Added::default());
        let (one, other) = (Text::literal("one"), Text::literal("other"));
        assert_eq!(merged(&added, &["a"]), ["a"]);
        added.keep(&one, Kind::Tools, items(["a", "b"].map(str::to_owned)));
        added.keep(&other, Kind::Tools, items(["b", "c"].map(str::to_owned)));
        assert_eq!(merged(&added, &["a"]), ["a", "b", "c"]);
        assert_eq!(merged(&added, &["a", "c"]), ["a", "c", "b"]);
        Adding::new(&added, one).end(|_| {});
        assert_eq!(merged(&added, &["a"]), ["a", "b", "c"]);
        added.keep(&other, Kind::Tools, Vec::new());
        assert_eq!(merged(&added, &["a"]), ["a"]);
        assert!(!added.forget(&other), "it added nothing any more");
    }

    #[test]
    fn what_connections_add_is_bounded() {
        let added = Added::default();
        for n in 0..3 {
            added.keep(&Text::from(format!("{n}")), Kind::Tools, items((0..200).map(|item| format!("{n} {item}"))));
        }
        assert_eq!(merged(&added, &[]).len(), ADDED_MAX);
        added.keep(&Text::literal("0"), Kind::Tools, items(["x".repeat(ADDED_BYTES_MAX)]));
        assert_eq!(merged(&added, &[]).len(), ADDED_MAX - 200);
    }
}
