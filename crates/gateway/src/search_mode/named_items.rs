//! Items that a model names: their definitions, and what is said about a name that does not exist.
//!
//! Owns the words. Does not compare names (`nearest_names.rs`) or start calls (`item_calls.rs`).
//! Invariant: an item that the caller may not use looks unknown.

use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::catalog_route::{CatalogRoute, ItemForm};
use crate::endpoint::Endpoint;
use crate::running_server::RunningServer;
use crate::search_mode::find_items::repeated;
use crate::search_mode::item_index::ItemGroup;
use crate::search_mode::item_texts::{ItemId, json_text};
use crate::search_mode::meta_tools::MetaTool;
use crate::search_mode::server_overview::not_ready_text;
use crate::search_mode::text_result::{content_result, error_result, text_block};
use moongate_jsonrpc::json::{ByteString, RawJson};
use moongate_model::{Caller, ItemKind, Outcome, Principal};

impl Endpoint {
    /// Describes tools by their whole definitions.
    pub(super) fn describe_tools(&self, caller: &Caller, names: &[ByteString]) -> Outcome {
        let snapshot = self.generation.snapshot.load_full();
        let principal = &caller.principal;
        let mut is_found = false;
        let mut blocks = Vec::new();
        for name in names {
            let id = (ItemKind::Tools, name.clone());
            let text = match self.find_visible(caller, &snapshot, &id) {
                Some((route, form)) => {
                    is_found = true;
                    json_text(&self.listed_for(caller.revision, ItemKind::Tools, route, form))
                        .to_owned()
                }
                None => self.unknown_text(principal, &id),
            };
            blocks.push(text_block(&text));
        }
        let mut outcome = content_result(&blocks);
        // One wrong name must not spoil the definitions of the others, so only a complete miss is
        // an error.
        if !is_found {
            outcome
                .result
                .set(ByteString::literal("isError"), RawJson::literal("true"));
        }
        outcome
    }

    /// Refuses members that are next to the arguments of an item, and shows where they belong.
    pub(super) fn refuse_misplaced(&self, caller: &Caller, id: &ItemId, stray: &str) -> Outcome {
        let signature = self.item_signature(caller, id);
        let how = signature.map(|signature| arguments_text(&id.1, &signature));
        let how = how.unwrap_or_else(|| self.unknown_text(&caller.principal, id));
        let what = words_of(id.0).0;
        error_result(&format!(
            "{stray}: the arguments of a {what} go into `arguments`. Nothing was called.\n{how}"
        ))
    }

    /// Returns the line that says how to use an item, if the caller may see it.
    pub(super) fn item_signature(&self, caller: &Caller, id: &ItemId) -> Option<String> {
        let snapshot = self.generation.snapshot.load_full();
        let (route, form) = self.find_visible(caller, &snapshot, id)?;
        Some(self.summarize(id.0, route, form).signature)
    }

    fn lists_meta_tool(&self, tool: MetaTool) -> bool {
        let snapshot = self.generation.snapshot.load();
        self.search_rules().is_some_and(|rules| {
            self.listed_meta_tools(rules, &snapshot)
                .any(|listed| listed == tool)
        })
    }

    /// Returns the text about an unknown item.
    pub(super) fn unknown_text(&self, principal: &Principal, id: &ItemId) -> String {
        let (kind, key) = id;
        let tool = MetaTool::from_name(key);
        match tool.filter(|tool| *kind == ItemKind::Tools && self.lists_meta_tool(*tool)) {
            Some(tool) => format!("{} is called directly: {}", tool.name(), tool.signature()),
            None => format!(
                "Unknown {}: {}. {}",
                words_of(*kind).0,
                repeated(key),
                self.finding_text(principal, id)
            ),
        }
    }

    /// Returns the sentences that lead from an unknown item to the one that may have been meant.
    pub(super) fn finding_text(&self, principal: &Principal, (kind, key): &ItemId) -> String {
        let snapshot = self.generation.snapshot.load();
        let (what, search, group) = words_of(*kind);
        let near = self.nearest_keys(&snapshot, principal, *kind, key);
        if !near.is_empty() {
            let near = near
                .iter()
                .map(ByteString::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            return format!("Nearest: {near}. Find others with {search}.");
        }
        let visible = self.visible_servers(principal, &snapshot);
        let named = visible
            .iter()
            .map(|visible| visible.server)
            .filter(|server| self.is_of_server(server, key));
        let not_ready = not_ready_text(named);
        match not_ready.trim_start() {
            "" if self.has_items(group, &snapshot) => format!("Find {what}s with {search}."),
            "" => format!("There are no {what}s here."),
            not_ready => not_ready.to_owned(),
        }
    }

    /// Returns true if a name starts as those of a server do.
    fn is_of_server(&self, server: &RunningServer, name: &str) -> bool {
        let beginning = self
            .generation
            .names
            .beginning(&server.settings.presentation.prefix);
        beginning.is_some_and(|beginning| name.starts_with(&beginning))
    }

    fn find_visible<'a>(
        &self,
        caller: &Caller,
        snapshot: &'a Arc<Snapshot>,
        (kind, key): &ItemId,
    ) -> Option<(&'a Arc<CatalogRoute>, &'a ItemForm)> {
        let route = snapshot.find_exposed(*kind, key)?;
        // A hidden item is unknown here, since its definition would reveal that it exists.
        let form = route.form_for(moongate_protocol::era_of(caller.revision))?;
        (!route.hidden && self.permits(&caller.principal, *kind, route)).then_some((route, form))
    }
}

/// Writes how a tool or prompt is called.
pub(super) fn arguments_text(name: &str, signature: &str) -> String {
    format!("Arguments of {name}: {signature}")
}

/// Returns the noun of a kind, the tool that finds its items, and the group that it searches.
fn words_of(kind: ItemKind) -> (&'static str, &'static str, ItemGroup) {
    match kind {
        ItemKind::Tools => ("tool", "search_tools", ItemGroup::Tools),
        ItemKind::Prompts => ("prompt", "search_prompts", ItemGroup::Prompts),
        ItemKind::Resources | ItemKind::Templates => {
            ("resource", "search_resources", ItemGroup::Resources)
        }
    }
}
