//! What a server offers: its lists, walked to the end.
//!
//! Invariant: a list is taken as a whole or not at all, and walking it ends, whatever cursors the server invents.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::json::{Object, Raw, Text};
use crate::model::{CacheHint, Call, Caller, Error, Features, Kind, Method, Reason, Server};
use crate::revision;
use crate::upstream::own_caller;

/// Pages of one list.
const PAGES_MAX: usize = 1000;
/// Items of one list.
const ITEMS_MAX: usize = 10_000;

/// A server's lists, as it spelled them.
#[derive(Clone, Debug, Default)]
pub struct Items {
    lists: [Arc<List>; 4],
}

/// One list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct List {
    /// The items, in the server's order.
    #[serde(with = "shared")]
    pub items: Vec<Arc<Object>>,
    /// How long it may be kept, if the server said so: the shortest time of its pages.
    pub cache: Option<CacheHint>,
}

/// Objects behind an `Arc`, as an array.
mod shared {
    use super::{Arc, Deserialize, Object, Serialize};

    pub(super) fn serialize<S: serde::Serializer>(items: &[Arc<Object>], serializer: S) -> Result<S::Ok, S::Error> {
        items.iter().map(|item| &**item).collect::<Vec<&Object>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Arc<Object>>, D::Error> {
        Ok(Vec::<Object>::deserialize(from)?.into_iter().map(Arc::new).collect())
    }
}

impl Items {
    /// One of the lists.
    pub fn get(&self, kind: Kind) -> &Arc<List> {
        &self.lists[kind as usize]
    }

    /// Replaces one list; true if it differs from before.
    pub fn set(&mut self, kind: Kind, list: List) -> bool {
        let slot = &mut self.lists[kind as usize];
        let differs = **slot != list;
        *slot = Arc::new(list);
        differs
    }
}

/// Whether a server has such a list at all.
pub fn offers(features: &Features, kind: Kind) -> bool {
    match kind {
        Kind::Tools => features.tools,
        Kind::Prompts => features.prompts,
        Kind::Resources | Kind::Templates => features.resources,
    }
}

/// Walks one list to its end.
///
/// A server that does not know the method, although it said so, has an empty list.
pub async fn list_all(server: &dyn Server, kind: Kind) -> Result<List, Error> {
    let mut list = List::default();
    let mut seen = HashSet::new();
    let mut cursor: Option<Text> = None;
    // A server without sessions may list what it has for the abilities of each request; the list is for all clients.
    let caller = Arc::new(Caller { capabilities: revision::shared_capabilities(), ..(*own_caller()).clone() });
    for _ in 0..PAGES_MAX {
        let params = cursor.iter().fold(Object::new(), |params, c| params.with("cursor", Raw::string(c)));
        let outcome = match server.call(&caller, Call::new(Method::List(kind), params)).outcome().await {
            Ok(outcome) => outcome,
            Err(Error { reason: Reason::Answered(error), .. })
                if error.code == crate::jsonrpc::code::METHOD_NOT_FOUND =>
            {
                break;
            }
            Err(error) => return Err(error),
        };
        let page = outcome.result.get(kind.member()).and_then(Raw::as_array);
        let page = page.ok_or_else(|| {
            Error::new(
                Reason::ServerProtocol,
                format!("the answer to {} has no array {:?}", kind.list_method(), kind.member()),
            )
        })?;
        // An item that is no object, or has duplicate keys, is left out; the others stay.
        list.items.extend(page.iter().filter_map(Raw::as_object).map(Arc::new));
        if let Some(hint) = outcome.cache {
            let merged = list
                .cache
                .map_or(hint, |h| CacheHint { ttl_ms: h.ttl_ms.min(hint.ttl_ms), public: h.public && hint.public });
            list.cache = Some(merged);
        }
        if list.items.len() > ITEMS_MAX {
            list.items.truncate(ITEMS_MAX);
            tracing::warn!(
                method = kind.list_method(),
                "the list has more than {ITEMS_MAX} items; the rest is left out"
            );
            break;
        }
        match outcome.result.text("nextCursor") {
            // 2026-07-28/server/utilities/pagination.mdx: an empty cursor is a cursor. A repeated one is a loop.
            Some(next) if seen.insert(next.clone()) => cursor = Some(next),
            Some(_) => {
                tracing::warn!(method = kind.list_method(), "the server repeats a cursor; the list ends there");
                break;
            }
            None => break,
        }
    }
    dedup(&mut list.items, kind);
    Ok(list)
}

/// A looping or overlapping list holds items twice: the first counts.
fn dedup(items: &mut Vec<Arc<Object>>, kind: Kind) {
    let mut seen = HashSet::new();
    items.retain(|item| item.text(kind.item_key()).is_none_or(|key| seen.insert(key)));
}
