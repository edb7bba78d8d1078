//! Search for the tool that an operator asks about, also where the catalogue has none.
//!
//! Owns the guess of its server. Does not decide about it (`explain.rs`). Invariant: a name that
//! the catalogue knows leads where a call would go.

use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::endpoint::Endpoint;
use crate::endpoint_scope::EndpointScope;
use crate::running_server::RunningServer;
use crate::selected_item::select_item;
use moongate_jsonrpc::json::ByteString;
use moongate_model::ItemKind;
use moongate_search::few_edits_or_beginning;

/// Tool of a server, as far as it is known.
pub(super) struct ExplainedItem {
    pub(super) server: Arc<RunningServer>,
    pub(super) local: ByteString,
    pub(super) exposed: ByteString,
    pub(super) listing: ItemListing,
}

/// Knowledge about an item from its server's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ItemListing {
    /// The list has it.
    Listed,
    /// The list has it, and it cannot be exposed for this reason.
    Excluded(String),
    /// The list lacks it.
    Missing {
        /// Name that was probably meant, as clients see it.
        nearest: Option<ByteString>,
    },
    /// Nobody has the list yet.
    Unknown,
}

impl Endpoint {
    /// Finds the tool that a name means. `None`: no server's prefix fits.
    pub(super) fn find_explained(
        &self,
        snapshot: &Snapshot,
        name: &ByteString,
    ) -> Option<ExplainedItem> {
        if let Some(route) = self.find_route(snapshot, ItemKind::Tools, name) {
            let server = route.upstream.clone();
            let local = route.local.clone();
            let exposed = route.exposed.clone();
            return Some(ExplainedItem {
                server,
                local,
                exposed,
                listing: ItemListing::Listed,
            });
        }
        let servers = self
            .generation
            .servers
            .iter()
            .filter(|server| match &self.scope {
                EndpointScope::Server(only) => only.settings.name == server.settings.name,
                _ => true,
            });
        let candidates: Vec<_> = servers
            .filter(|server| self.may_belong_to(name, server))
            .collect();
        let listed = candidates
            .iter()
            .find_map(|server| self.find_unexposed(server, name));
        listed.or_else(|| {
            // The longest of several prefixes is meant: the others only start like it.
            let server = candidates
                .into_iter()
                .max_by_key(|server| server.settings.presentation.prefix.len())?;
            Some(self.guess_item(snapshot, server, name))
        })
    }

    /// Finds an item that the server lists and the catalogue lacks.
    fn find_unexposed(
        &self,
        server: &Arc<RunningServer>,
        name: &ByteString,
    ) -> Option<ExplainedItem> {
        let lists = server.lists();
        lists.get(ItemKind::Tools).items.iter().find_map(|item| {
            let local = item.get_string(ItemKind::Tools.item_key())?;
            let exposed = self.generation.expected_name(server, &local);
            let own = if self.keeps_local_names() {
                &local
            } else {
                &exposed
            };
            if own != name {
                return None;
            }
            let listing = match select_item(ItemKind::Tools, server, server.era_lists().era(), item)
            {
                // Another item has the name, or the catalogue is about to be built.
                Ok(Some(_)) => return None,
                Ok(None) => ItemListing::Listed,
                Err(excluded) => ItemListing::Excluded(excluded.reason),
            };
            Some(ExplainedItem {
                server: server.clone(),
                local,
                exposed,
                listing,
            })
        })
    }

    /// Assumes a tool of this name at a server whose list does not have it.
    fn guess_item(
        &self,
        snapshot: &Snapshot,
        server: &Arc<RunningServer>,
        name: &ByteString,
    ) -> ExplainedItem {
        let is_known = server.is_listed() || !server.lists().get(ItemKind::Tools).items.is_empty();
        let listing = match is_known {
            true => ItemListing::Missing {
                nearest: self.nearest_tool(snapshot, name),
            },
            false => ItemListing::Unknown,
        };
        let prefix = format!(
            "{}{}",
            server.settings.presentation.prefix, self.generation.names.separator
        );
        let is_plain = self.keeps_local_names() || server.settings.presentation.prefix.is_empty();
        let base = if is_plain {
            name
        } else {
            name.strip_prefix(prefix.as_str()).unwrap_or(name)
        };
        let renamed = server
            .settings
            .presentation
            .tools
            .rename
            .iter()
            .find(|(_, to)| to.as_str() == base)
            .map(|(local, _)| local);
        let local = ByteString::from(renamed.map_or(base, String::as_str));
        let exposed = if self.keeps_local_names() {
            self.generation.expected_name(server, &local)
        } else {
            name.clone()
        };
        ExplainedItem {
            server: server.clone(),
            local,
            exposed,
            listing,
        }
    }

    /// Returns the tool of this endpoint whose name resembles another most. `None`: none does.
    pub(super) fn nearest_tool(&self, snapshot: &Snapshot, wanted: &str) -> Option<ByteString> {
        let routes = snapshot
            .iter(ItemKind::Tools)
            .filter(|route| !route.hidden)
            .filter(|route| match &self.scope {
                EndpointScope::Server(only) => only.settings.name == route.upstream.settings.name,
                _ => true,
            });
        let near = routes.filter_map(|route| {
            let shown = if self.keeps_local_names() {
                &route.local
            } else {
                &route.exposed
            };
            // People often leave the prefix out.
            let names = [shown, &route.local];
            let edits = names
                .into_iter()
                .filter_map(|name| few_edits_or_beginning(wanted, name))
                .min()?;
            Some((edits, shown))
        });
        near.min().map(|(_, name)| name.clone())
    }
}
