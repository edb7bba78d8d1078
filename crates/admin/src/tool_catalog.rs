//! Tools of an endpoint, grouped by server or ranked for a query.
//!
//! Owns the rows that describe them. Does not rank or decide what is exposed (`moongate_gateway`).
//! Invariant: a query returns what search mode would find, followed by unlisted tools.

use std::sync::Arc;

use crate::admin_state::AdminState;
use crate::config_view::entry_source;
use crate::control_types::ConfigStatus;
use crate::server_items::{summarize_item, with_rule};
use crate::server_use::find_route;
use moongate_api::{FoundTools, ServerItem, ServerTools, ToolOwner};
use moongate_gateway::{EndpointCoverage, Gateway, RunningServer, Snapshot};
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::ItemKind;

/// Tools that the search returns at most, with those that are not shown.
const FOUND_MAX: usize = 500;
/// Tools that are not listed, and are shown next to those that are.
const UNLISTED_MAX: usize = 20;

/// Lists the tools of an endpoint by server. A view has exposed tools only, the other endpoints
/// all.
pub(super) fn tools_by_server(admin: &AdminState, coverage: &EndpointCoverage) -> Vec<ServerTools> {
    let snapshot = admin.gateway.snapshot();
    let config = admin.reloader.config();
    let world = CatalogView {
        gateway: &admin.gateway,
        coverage,
        snapshot: &snapshot,
        config: &config,
    };
    admin
        .gateway
        .servers()
        .iter()
        .filter(|server| coverage.includes(&server.settings.name))
        .map(|server| world.describe_tools(server))
        .collect()
}

/// Finds the tools of an endpoint that fit a query.
pub(super) fn find_tools(
    admin: &AdminState,
    coverage: &EndpointCoverage,
    query: &str,
    shown: usize,
) -> FoundTools {
    let snapshot = admin.gateway.snapshot();
    let config = admin.reloader.config();
    let world = CatalogView {
        gateway: &admin.gateway,
        coverage,
        snapshot: &snapshot,
        config: &config,
    };
    let servers = admin.gateway.servers();
    // More than are shown are asked for, since the page says how many there are.
    let hits = admin.gateway.rank_tools(coverage, query, FOUND_MAX);
    let listed = hits
        .iter()
        .take(shown)
        .filter_map(|id| world.describe_hit(&servers, id));
    FoundTools {
        listed: listed.collect(),
        total: hits.len(),
        unlisted: world.find_unlisted(&servers, query),
    }
}

/// Catalogue as one endpoint has it, and the config behind it.
struct CatalogView<'a> {
    gateway: &'a Gateway,
    coverage: &'a EndpointCoverage,
    snapshot: &'a Snapshot,
    config: &'a ConfigStatus,
}

impl CatalogView<'_> {
    /// Describes a server's tools that the endpoint has, or could have.
    fn describe_tools(&self, server: &RunningServer) -> ServerTools {
        let lists = server.lists();
        let items = lists.get(ItemKind::Tools).items.iter();
        let tools = items.filter(|item| match find_route(self.snapshot, server, item) {
            Some(route) => self.coverage.has_tool(route),
            // A tool that is off has no route. Operators must see it here to switch it on.
            None => !self.coverage.is_view(),
        });
        ServerTools {
            owner: self.describe_owner(server),
            tools: tools.map(|item| self.describe_tool(server, item)).collect(),
        }
    }

    /// Describes a tool that the search found, with its server.
    fn describe_hit(
        &self,
        servers: &[Arc<RunningServer>],
        id: &ByteString,
    ) -> Option<(ToolOwner, ServerItem)> {
        let route = self.snapshot.find_exposed(ItemKind::Tools, id)?;
        let server = servers
            .iter()
            .find(|server| server.settings.name == route.upstream.settings.name)?;
        Some((
            self.describe_owner(server),
            self.describe_tool(server, &route.form.definition),
        ))
    }

    /// Finds tools by their texts that the endpoint does not list.
    fn find_unlisted(
        &self,
        servers: &[Arc<RunningServer>],
        query: &str,
    ) -> Vec<(ToolOwner, ServerItem)> {
        let CatalogView {
            coverage, snapshot, ..
        } = *self;
        // A view has the exposed tools it names. Others are not hidden in it, they are not part of
        // it.
        if coverage.is_view() {
            return Vec::new();
        }
        // The index lacks tools that are not listed, so their texts are compared here.
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let mut found = Vec::new();
        for server in servers
            .iter()
            .filter(|server| coverage.includes(&server.settings.name))
        {
            let lists = server.lists();
            let items = lists.get(ItemKind::Tools).items.iter();
            let unlisted = items
                .filter(|item| find_route(snapshot, server, item).is_none_or(|route| route.hidden));
            // Never below zero: each server adds at most what is left.
            let fitting = unlisted
                .filter(|item| has_words(item, &words))
                .take(UNLISTED_MAX - found.len());
            found.extend(fitting.map(|item| {
                (
                    self.describe_owner(server),
                    self.describe_tool(server, item),
                )
            }));
        }
        found
    }

    /// Describes a server as far as the rows of its tools need it.
    fn describe_owner(&self, server: &RunningServer) -> ToolOwner {
        let settings = &server.settings;
        ToolOwner {
            name: settings.name.clone(),
            title: settings.presentation.title.clone(),
            source: entry_source(self.config, &settings.name),
        }
    }

    fn describe_tool(&self, server: &RunningServer, item: &JsonObject) -> ServerItem {
        let tool = summarize_item((self.gateway, self.snapshot), ItemKind::Tools, server, item);
        with_exposed_name(self.coverage, with_rule(self.config, server, tool))
    }
}

/// Returns true if the texts of a tool have all words, which are in lower case.
fn has_words(tool: &JsonObject, words: &[String]) -> bool {
    let texts = ["name", "title", "description"].map(|key| {
        tool.get_string(key)
            .map(|text| text.to_lowercase())
            .unwrap_or_default()
    });
    words
        .iter()
        .all(|word| texts.iter().any(|text| text.contains(word)))
}

/// Gives a tool the name that clients of the endpoint see.
pub(super) fn with_exposed_name(coverage: &EndpointCoverage, tool: ServerItem) -> ServerItem {
    // A tool that no client sees must not get a name here.
    let is_local = coverage.keeps_local_names() && tool.exposed.is_some();
    let exposed = if is_local {
        Some(tool.name.clone())
    } else {
        tool.exposed
    };
    ServerItem { exposed, ..tool }
}
