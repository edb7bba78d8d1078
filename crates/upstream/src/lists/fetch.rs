//! Lists of a server, fetched page by page. Owns their limits and their merge into whole lists.
//! Does not decide when to fetch (`supervisor/connected.rs`). Invariant: an error on any page fails
//! the whole list. A fetch ends even if the cursors of the server do not. A list over its limits is
//! cut, with a note.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gateway_caller::gateway_caller;
use crate::options::ListOptions;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{
    CacheHint, Call, Caller, Error, ItemKind, McpErrorKind, McpMethod, McpServer, Outcome,
    ServerCapabilities,
};
use moongate_protocol::Era;

/// Window in which changes of several lists are collected into one fetch.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(100);

/// Lists of a server, in the server's own wire form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerLists {
    lists: [Arc<ItemList>; 4],
}

/// List of one kind. Two are equal if they have the same, whichever connection gave them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ItemList {
    /// Items in the server's order.
    #[serde(with = "shared")]
    pub items: Vec<Arc<JsonObject>>,
    /// Cache hint, if the server gave one: the shortest time of all pages.
    pub cache: Option<CacheHint>,
    /// Notes on what was left out, with the setting that limits it.
    #[serde(default)]
    pub cut: Vec<String>,
    /// Era of the connection that gave it, if known.
    #[serde(skip)]
    pub era: Option<Era>,
    /// Items that are left out as they came.
    #[serde(default)]
    pub refused: Vec<RefusedItem>,
}

impl PartialEq for ItemList {
    fn eq(&self, other: &Self) -> bool {
        let ItemList {
            items,
            cache,
            cut,
            era: _,
            refused,
        } = self;
        *items == other.items
            && *cache == other.cache
            && *cut == other.cut
            && *refused == other.refused
    }
}

/// Item of a list that is left out as it came: it is not an object, or it has the key of an earlier
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedItem {
    /// Its key, or its position in the list.
    pub item: String,
    /// Reason, for operators.
    pub reason: String,
}

/// Maximum number of refused items that are named.
const REFUSED_MAX: usize = 100;
/// Length of a key that names a refused item, in characters.
const REFUSED_KEY_MAX: usize = 200;

/// Serialization of objects behind an `Arc` as an array.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Serialize};

    use moongate_jsonrpc::json::JsonObject;

    pub(crate) fn serialize<S: serde::Serializer>(
        items: &[Arc<JsonObject>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        items
            .iter()
            .map(|item| &**item)
            .collect::<Vec<&JsonObject>>()
            .serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Arc<JsonObject>>, D::Error> {
        Ok(Vec::<JsonObject>::deserialize(from)?
            .into_iter()
            .map(Arc::new)
            .collect())
    }
}

impl ServerLists {
    /// Returns the list of one kind.
    pub fn get(&self, kind: ItemKind) -> &Arc<ItemList> {
        &self.lists[kind as usize]
    }

    /// Replaces one list.
    pub fn set(&mut self, kind: ItemKind, list: ItemList) {
        self.replace(kind, Arc::new(list));
    }

    /// Replaces one list by one that others may hold, too.
    pub(crate) fn replace(&mut self, kind: ItemKind, list: Arc<ItemList>) {
        self.lists[kind as usize] = list;
    }

    /// Returns true if both hold the same lists, and not only equal ones.
    pub(crate) fn holds_same(&self, other: &ServerLists) -> bool {
        self.lists
            .iter()
            .zip(&other.lists)
            .all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl From<[Arc<ItemList>; ItemKind::ALL.len()]> for ServerLists {
    fn from(lists: [Arc<ItemList>; ItemKind::ALL.len()]) -> Self {
        ServerLists { lists }
    }
}

/// Returns the lists whose changes the server does not announce.
pub(crate) fn unannounced_lists(capabilities: &ServerCapabilities) -> Vec<ItemKind> {
    ItemKind::ALL
        .into_iter()
        .filter(|kind| offers_list(capabilities, *kind) && !announces_changes(capabilities, *kind))
        .collect()
}

fn announces_changes(capabilities: &ServerCapabilities, kind: ItemKind) -> bool {
    match kind {
        ItemKind::Tools => capabilities.tools_changes,
        ItemKind::Prompts => capabilities.prompts_changes,
        ItemKind::Resources | ItemKind::Templates => capabilities.resources_changes,
    }
}

/// Returns true if the server has lists of this kind.
pub fn offers_list(capabilities: &ServerCapabilities, kind: ItemKind) -> bool {
    match kind {
        ItemKind::Tools => capabilities.tools,
        ItemKind::Prompts => capabilities.prompts,
        ItemKind::Resources | ItemKind::Templates => capabilities.resources,
    }
}

/// Fetches one list to its end, or to its limits.
///
/// A server that declared the method but does not know it has an empty list.
pub async fn list_all(
    server: &dyn McpServer,
    kind: ItemKind,
    limits: &ListOptions,
) -> Result<ItemList, Error> {
    let mut list = ItemList::default();
    let mut bytes = 0;
    let mut seen = HashSet::new();
    let mut cursor: Option<ByteString> = None;
    // A server without sessions may filter by the capabilities of each request. The list is for all
    // clients.
    let caller = Arc::new(Caller {
        declared_capabilities: moongate_protocol::shared_capabilities(),
        ..(*gateway_caller()).clone()
    });
    for page in 0.. {
        if page >= limits.max_pages {
            list.cut.push(format!(
                "the list has more than {} pages (max_pages)",
                limits.max_pages
            ));
            break;
        }
        let Some(outcome) = fetch_page(server, kind, &caller, cursor.as_ref()).await? else {
            break;
        };
        let page = outcome
            .result
            .get(kind.member())
            .and_then(RawJson::as_array);
        let page = page.ok_or_else(|| {
            Error::new(
                McpErrorKind::ServerProtocol,
                format!(
                    "the answer to {} has no array {:?}",
                    kind.list_method(),
                    kind.member()
                ),
            )
        })?;
        let room = list.take_page(&page, limits, &mut bytes);
        if let Some(hint) = outcome.cache_hint {
            list.merge_cache_hint(hint);
        }
        if !room {
            break;
        }
        match outcome.result.get_string("nextCursor") {
            // 2026-07-28/server/utilities/pagination.mdx: an empty cursor is a cursor. A repeated
            // one is a loop.
            Some(next) if seen.insert(next.clone()) => cursor = Some(next),
            Some(_) => {
                tracing::warn!(
                    method = kind.list_method(),
                    "server repeats a cursor; the list ends there"
                );
                break;
            }
            None => break,
        }
    }
    for cut in &list.cut {
        tracing::warn!(
            method = kind.list_method(),
            "list cut off: {cut}; the rest is left out"
        );
    }
    list.refuse_duplicates(kind);
    Ok(list)
}

/// Fetches one page. `None`: the server does not know the method.
async fn fetch_page(
    server: &dyn McpServer,
    kind: ItemKind,
    caller: &Arc<Caller>,
    cursor: Option<&ByteString>,
) -> Result<Option<Outcome>, Error> {
    // Returned as it came. 2025-11-25/server/utilities/pagination.mdx, Implementation Guidelines:
    // "Clients MUST treat cursors as opaque tokens".
    let params = cursor.into_iter().fold(JsonObject::new(), |params, c| {
        params.with("cursor", RawJson::string(c))
    });
    let end = server
        .call(caller, Call::new(McpMethod::List(kind), params))
        .outcome()
        .await;
    match end {
        Ok(outcome) => Ok(Some(outcome)),
        Err(Error {
            kind: McpErrorKind::ServerError(error),
            ..
        }) if error.code == moongate_jsonrpc::message::code::METHOD_NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

impl ItemList {
    /// Merges the hint of a page. The strictest hint of all pages holds for the list.
    fn merge_cache_hint(&mut self, hint: CacheHint) {
        let merged = self.cache.map_or(hint, |h| CacheHint {
            ttl_ms: h.ttl_ms.min(hint.ttl_ms),
            public: h.public && hint.public,
        });
        self.cache = Some(merged);
    }

    /// Takes the items of a page. Returns false if a limit was reached.
    ///
    /// An item that is not an object, or has duplicate keys, is left out. The others stay.
    fn take_page(&mut self, page: &[RawJson], limits: &ListOptions, bytes: &mut usize) -> bool {
        for item in page {
            let Some(item) = item.as_object() else {
                let name = format!("#{}", self.items.len() + self.refused.len() + 1);
                self.refuse(
                    name,
                    if item.is_object() {
                        "it has a duplicate key"
                    } else {
                        "it is not an object"
                    },
                );
                continue;
            };
            *bytes += item.size_hint();
            if *bytes > limits.max_list.0 {
                self.cut.push(format!(
                    "the items have more than {} bytes (max_list)",
                    limits.max_list.0
                ));
                return false;
            }
            if self.items.len() >= limits.max_items {
                self.cut.push(format!(
                    "the list has more than {} items (max_items)",
                    limits.max_items
                ));
                return false;
            }
            self.items.push(Arc::new(item));
        }
        true
    }

    /// Removes duplicates from a looping or overlapping list. The first item counts. One that
    /// differs is named.
    fn refuse_duplicates(&mut self, kind: ItemKind) {
        let mut first: HashMap<ByteString, Arc<JsonObject>> = HashMap::new();
        let mut twice = Vec::new();
        self.items.retain(|item| {
            let Some(key) = item.get_string(kind.item_key()) else {
                return true;
            };
            let Some(known) = first.get(&key) else {
                first.insert(key, item.clone());
                return true;
            };
            if known != item && twice.len() < REFUSED_MAX {
                twice.push(key);
            }
            false
        });
        for key in twice {
            self.refuse(
                key.to_string(),
                "its server lists another item with that name first",
            );
        }
    }

    fn refuse(&mut self, item: String, reason: &str) {
        if self.refused.len() < REFUSED_MAX {
            let item = item.chars().take(REFUSED_KEY_MAX).collect();
            self.refused.push(RefusedItem {
                item,
                reason: reason.to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_units::SizeSetting;

    /// Takes a page within limits. Returns true if there is room for more, the number of items, and
    /// what was cut.
    fn take_page(page: &[RawJson], max_items: usize, max_bytes: usize) -> (bool, usize, String) {
        let limits = ListOptions {
            max_items,
            max_list: SizeSetting(max_bytes),
            ..ListOptions::default()
        };
        let mut list = ItemList::default();
        let mut bytes = 0;
        let more = list.take_page(page, &limits, &mut bytes);
        (more, list.items.len(), list.cut.join("; "))
    }

    #[test]
    fn a_list_is_cut_where_a_limit_says_so() {
        let page = RawJson::parse(bytes::Bytes::from_static(
            br#"[{"name":"a"},{"name":"b","x":[[[[]]]]},7,{"name":"c"},{"name":"d"}]"#,
        ));
        let page = page.unwrap().as_array().unwrap();
        assert_eq!(take_page(&page, 10, 1000), (true, 4, String::new()));
        let (more, count, cut) = take_page(&page, 2, 1000);
        assert!(!more && count == 2 && cut.contains("max_items"), "{cut}");
        let (more, count, cut) = take_page(&page, 10, 30);
        assert!(!more && count < 4 && cut.contains("max_list"), "{cut}");
    }
}
