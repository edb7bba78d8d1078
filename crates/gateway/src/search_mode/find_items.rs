//! Searches of a model: the items that fit its words, as text.
//!
//! Owns the words of the answers. Does not rank (`moongate_search`). Invariant: an answer has nothing of an item that the
//! caller may not use, and one item cannot write a line of another.

use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::catalog_route::CatalogRoute;
use crate::endpoint::Endpoint;
use crate::search_mode::item_index::ItemGroup;
use crate::search_mode::item_summary::one_line;
use crate::search_mode::item_texts::{ItemId, json_text};
use crate::search_mode::meta_arguments::LIMIT_MAX;
use crate::search_mode::ranked_items::RankedItems;
use crate::search_mode::text_result::{content_result, error_result, text_block, text_result};
use moongate_jsonrpc::json::{ByteString, RawJson};
use moongate_model::{ItemKind, Outcome, Principal};

/// Characters of a query that an answer repeats.
const REPEATED_MAX: usize = 100;

/// Search of one caller.
pub(super) struct ItemQuery {
    pub(super) group: ItemGroup,
    pub(super) text: ByteString,
    /// Only server that is searched.
    pub(super) server: Option<ByteString>,
    pub(super) limit: usize,
    /// True if whole definitions are wanted.
    pub(super) full: bool,
}

impl Endpoint {
    /// Answers a search.
    pub(super) fn find_items(&self, principal: &Principal, query: &ItemQuery) -> Outcome {
        let snapshot = self.generation.snapshot.load_full();
        let servers = || {
            let visible = self.visible_servers(principal, &snapshot);
            visible.iter().map(|visible| visible.server.name.to_string()).collect::<Vec<_>>().join(", ")
        };
        // A server that the caller may not see gets the answer of one that does not exist. A refusal of its
        // own would tell its name.
        if let Some(server) = &query.server
            && !self.visible_servers(principal, &snapshot).iter().any(|visible| visible.server.name == *server)
        {
            return error_result(&format!("There is no server \"{}\". Servers: {}.", repeated(server), servers()));
        }
        let is_searched = |kind: ItemKind, route: &CatalogRoute| {
            query.server.as_ref().is_none_or(|name| *name == route.upstream.name)
                && self.permits(principal, kind, route)
        };
        // The filter goes into the ranking. A filter afterwards would let hidden items use up the limit.
        let found = self.indexes().rank(&snapshot, query.group, &query.text, query.limit, is_searched);
        // No match is no error: the model should try other words, and not report a failure.
        if found.items.is_empty() {
            return text_result(&no_match_text(&query.text, &servers()));
        }
        text_result(&self.found_text(query, &found))
    }

    /// Writes the items of a search that found some.
    pub(super) fn found_text(&self, query: &ItemQuery, found: &RankedItems) -> String {
        let (plural, how) = match query.group {
            ItemGroup::Tools => ("tools", "Call with call_tool."),
            ItemGroup::Resources => ("resources", "Read with read_resource."),
            ItemGroup::Prompts => ("prompts", "Get with get_prompt."),
        };
        let mut lines = vec![format!("{} of {} {plural}. {how}", found.items.len(), found.total)];
        for item in &found.items {
            lines.push(match query.full {
                true => json_text(&self.listed_definition(item.kind, &item.route)).to_owned(),
                false => self.summarize(item.kind, &item.route).to_lines(),
            });
        }
        if found.has_more {
            // At the highest limit, advice to raise it would only lead to a refusal.
            let higher = if query.limit < LIMIT_MAX { format!(", or limit {LIMIT_MAX}") } else { String::new() };
            lines.push(format!("More: search again with other words{higher}."));
        }
        lines.join("\n")
    }

    /// Describes tools by their whole definitions.
    pub(super) fn describe_tools(&self, principal: &Principal, names: &[ByteString]) -> Outcome {
        let snapshot = self.generation.snapshot.load_full();
        let mut is_found = false;
        let mut blocks = Vec::new();
        for name in names {
            let id = (ItemKind::Tools, name.clone());
            let text = match self.find_visible(principal, &snapshot, &id) {
                Some(route) => {
                    is_found = true;
                    json_text(&self.listed_definition(ItemKind::Tools, route)).to_owned()
                }
                None => self.unknown_text(principal, &snapshot, ItemKind::Tools, name),
            };
            blocks.push(text_block(&text));
        }
        let mut outcome = content_result(&blocks);
        // One wrong name must not spoil the definitions of the others, so only a complete miss is an error.
        if !is_found {
            outcome.result.set(ByteString::literal("isError"), RawJson::literal("true"));
        }
        outcome
    }

    /// Returns the text about an unknown key, with the keys that may have been meant.
    pub(super) fn unknown_text(&self, principal: &Principal, snapshot: &Snapshot, kind: ItemKind, key: &str) -> String {
        let (what, search) = match kind {
            ItemKind::Tools => ("tool", "search_tools"),
            ItemKind::Prompts => ("prompt", "search_prompts"),
            ItemKind::Resources | ItemKind::Templates => ("resource", "search_resources"),
        };
        let near = self.nearest_keys(snapshot, principal, kind, key);
        let near = near.iter().map(ByteString::as_str).collect::<Vec<_>>().join(", ");
        let near = if near.is_empty() { String::new() } else { format!(" Nearest: {near}.") };
        format!("Unknown {what}: {}.{near} Find others with {search}.", repeated(key))
    }

    /// Returns the line that says how to use an item, if the caller may see it.
    pub(super) fn item_signature(&self, principal: &Principal, kind: ItemKind, key: &ByteString) -> Option<String> {
        let snapshot = self.generation.snapshot.load_full();
        let route = self.find_visible(principal, &snapshot, &(kind, key.clone()))?;
        Some(self.summarize(kind, route).signature)
    }

    fn find_visible<'a>(
        &self,
        principal: &Principal,
        snapshot: &'a Arc<Snapshot>,
        (kind, key): &ItemId,
    ) -> Option<&'a Arc<CatalogRoute>> {
        let route = snapshot.find_exposed(*kind, key)?;
        // A hidden item is unknown here, since its definition would tell that it exists.
        (!route.hidden && self.permits(principal, *kind, route)).then_some(route)
    }
}

/// Writes the answer to a search that found nothing.
pub(super) fn no_match_text(query: &str, servers: &str) -> String {
    format!("No good match for \"{}\". Try other words. Servers: {servers}.", repeated(query))
}

/// Returns the beginning of a caller's text in one line.
fn repeated(text: &str) -> String {
    // A query may quote the text of a server, and its line breaks would look like further items.
    one_line(text).chars().take(REPEATED_MAX).collect()
}
