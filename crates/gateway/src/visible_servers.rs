//! Servers that a caller may know: those of which it may use something.
//!
//! Owns that decision, and the numbers of tools behind it. Does not decide about items
//! (`permitted.rs`). Invariant: a server whose tools are all denied looks like none, whether it is
//! up or not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::catalog::{Snapshot, ToolCounts};
use crate::endpoint::Endpoint;
use crate::running_server::RunningServer;
use moongate_model::{ItemKind, Principal};

/// Server with the number of tools that a caller may use.
pub(super) struct VisibleServer<'a> {
    pub(super) server: &'a Arc<RunningServer>,
    pub(super) tools: usize,
}

impl Endpoint {
    /// Returns the servers that a caller may know, sorted by name.
    pub(super) fn visible_servers(
        &self,
        principal: &Principal,
        snapshot: &Snapshot,
    ) -> Vec<VisibleServer<'_>> {
        let key = (self.name.clone(), principal.role());
        // Each `initialize` asks, and the walk over all tools is long.
        let counts = snapshot.tool_counts(key, || self.count_tools(principal, snapshot));
        let visible = self.servers().filter_map(|server| {
            let tools = *counts.get(&server.settings.name)?;
            Some(VisibleServer { server, tools })
        });
        visible.collect()
    }

    fn count_tools(&self, principal: &Principal, snapshot: &Snapshot) -> ToolCounts {
        let mut counts: HashMap<&str, (usize, usize)> = HashMap::new();
        for route in snapshot.iter(ItemKind::Tools).filter(|route| !route.hidden) {
            let (all, permitted) = counts.entry(&route.upstream.settings.name).or_default();
            *all += 1;
            *permitted += usize::from(self.permits(principal, ItemKind::Tools, route));
        }
        let others = [ItemKind::Resources, ItemKind::Templates, ItemKind::Prompts];
        let others: HashSet<&str> = others
            .into_iter()
            .flat_map(|kind| snapshot.iter(kind).filter(|route| !route.hidden))
            .map(|route| &*route.upstream.settings.name)
            .collect();
        let visible = self.servers().filter_map(|server| {
            let name = server.settings.name.as_str();
            let (all, tools) = counts.get(name).copied().unwrap_or_default();
            // A server that is starting has no tools yet. It looks unknown only if all that it may
            // have is denied.
            let is_visible = tools > 0
                || others.contains(name)
                || (all == 0 && self.may_allow_tools(principal, server));
            is_visible.then(|| (name.to_owned(), tools))
        });
        visible.collect()
    }

    /// Returns true if a principal's key may allow tools of a server, whatever their names.
    fn may_allow_tools(&self, principal: &Principal, server: &RunningServer) -> bool {
        let generation = &self.generation;
        let beginning = generation
            .names
            .beginning(&server.settings.presentation.prefix)
            .unwrap_or_default();
        generation.access.may_allow_from(principal, &beginning)
    }
}
