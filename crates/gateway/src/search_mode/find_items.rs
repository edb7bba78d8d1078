//! Searches of a model: the items that fit its words, as text.
//!
//! Owns the words of the answers. Does not rank (`moongate_search`). Invariant: an answer has
//! nothing of an item that the caller may not use, and one item cannot write a line of another.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::running_server::RunningServer;
use crate::search_mode::item_index::ItemGroup;
use crate::search_mode::item_summary::one_line;
use crate::search_mode::item_texts::json_text;
use crate::search_mode::meta_arguments::LIMIT_MAX;
use crate::search_mode::ranked_items::RankedItems;
use crate::search_mode::server_overview::{not_ready_text, state_note};
use crate::search_mode::text_result::{error_result, text_result};
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, Outcome};
use moongate_protocol::Era;

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
    /// Revision of the client.
    pub(super) client: &'static str,
}

impl ItemQuery {
    /// Returns true if the search includes a server.
    fn searches(&self, server: &RunningServer) -> bool {
        self.server.as_ref().is_none_or(|name| *name == server.name)
    }
}

impl Endpoint {
    /// Answers a search.
    pub(super) fn find_items(&self, caller: &Caller, query: &ItemQuery) -> Outcome {
        let snapshot = self.generation.snapshot.load_full();
        let principal = &caller.principal;
        let era = moongate_protocol::era_of(caller.revision);
        let visible = self.visible_servers(principal, &snapshot);
        let servers: Vec<&Arc<RunningServer>> =
            visible.iter().map(|visible| visible.server).collect();
        // A server that the caller may not see gets the answer of one that does not exist. A
        // separate refusal would reveal its name.
        if let Some(server) = &query.server
            && !servers.iter().any(|visible| visible.name == *server)
        {
            let text = format!(
                "There is no server \"{}\". Servers: {}.",
                repeated(server),
                names_of(&servers)
            );
            return error_result(&text);
        }
        // The filter goes into the ranking. A filter afterwards would let hidden items use up the
        // limit.
        let found = self.indexes().rank(
            &snapshot,
            query.group,
            &query.text,
            query.limit,
            |kind, route| {
                query.searches(&route.upstream)
                    && route.form_for(era).is_some()
                    && self.permits(principal, kind, route)
            },
        );
        // No match isn't an error: the model should try other words, and not report a failure.
        if found.items.is_empty() {
            return text_result(&no_match_text(query, &servers));
        }
        text_result(&self.found_text(era, query, &found))
    }

    /// Writes the items of a search that found some.
    pub(super) fn found_text(&self, era: Era, query: &ItemQuery, found: &RankedItems) -> String {
        let (plural, how) = match query.group {
            ItemGroup::Tools => ("tools", "Call with call_tool."),
            ItemGroup::Resources => ("resources", "Read with read_resource."),
            ItemGroup::Prompts => ("prompts", "Get with get_prompt."),
        };
        let mut lines = vec![format!(
            "{} of {} {plural}. {how}",
            found.items.len(),
            found.total
        )];
        for item in &found.items {
            let form = item.route.form_or_main(era);
            lines.push(match query.full {
                true => json_text(&self.listed_for(query.client, item.kind, &item.route, form))
                    .to_owned(),
                false => self.summarize(item.kind, &item.route, form).to_lines(),
            });
        }
        if found.has_more {
            // At the highest limit, advice to raise it would only lead to a refusal.
            let higher = if query.limit < LIMIT_MAX {
                format!(", or limit {LIMIT_MAX}")
            } else {
                String::new()
            };
            lines.push(format!("More: search again with other words{higher}."));
        }
        lines.join("\n")
    }
}

/// Writes the answer to a search that found nothing in these servers.
pub(super) fn no_match_text(query: &ItemQuery, servers: &[&Arc<RunningServer>]) -> String {
    let searched = servers.iter().filter(|server| query.searches(server));
    let searched: Vec<&Arc<RunningServer>> = searched.copied().collect();
    let not_ready = not_ready_text(searched.iter().copied());
    // Where no server answers, other words find nothing either.
    let is_any_ready = searched
        .iter()
        .any(|server| state_note(server.status().state).is_none());
    let advice = if is_any_ready || not_ready.is_empty() {
        " Try other words."
    } else {
        ""
    };
    format!(
        "No good match for \"{}\".{not_ready}{advice} Servers: {}.",
        repeated(&query.text),
        names_of(servers)
    )
}

fn names_of(servers: &[&Arc<RunningServer>]) -> String {
    servers
        .iter()
        .map(|server| server.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the beginning of a caller's text in one line.
pub(super) fn repeated(text: &str) -> String {
    // A query may quote the text of a server, and its line breaks would look like further items.
    one_line(text).chars().take(REPEATED_MAX).collect()
}
