//! Coverage of an endpoint: the servers and tools behind it, for operators.
//!
//! Owns no state. Does not decide about calls, nor know keys (`permitted.rs`). Invariant: views are
//! read by the functions that decide about calls.

use crate::Gateway;
use crate::catalog_route::CatalogRoute;
use crate::endpoint_scope::EndpointScope;

/// Servers and tools of one endpoint, before any key narrows them.
pub struct EndpointCoverage(EndpointScope);

impl Default for EndpointCoverage {
    /// Covers everything.
    fn default() -> Self {
        EndpointCoverage(EndpointScope::All)
    }
}

impl EndpointCoverage {
    /// Returns true if the endpoint has this server.
    pub fn includes(&self, server: &str) -> bool {
        self.0.includes(server)
    }

    /// Returns true if the endpoint has this tool.
    pub fn has_tool(&self, route: &CatalogRoute) -> bool {
        let server = &route.upstream.settings.name;
        self.0.includes(server) && self.0.has_tool(server, &route.exposed)
    }

    /// Returns true if tools have their servers' own names here.
    pub fn keeps_local_names(&self) -> bool {
        matches!(self.0, EndpointScope::Server(_))
    }

    /// Returns true if the endpoint is a view, which chooses among exposed tools.
    pub fn is_view(&self) -> bool {
        matches!(self.0, EndpointScope::View(_))
    }
}

impl Gateway {
    /// Returns the names of all endpoints: first the one over everything, which has none, then
    /// views, then servers.
    pub fn endpoint_names(&self) -> Vec<String> {
        let generation = self.generation();
        let mut names: Vec<(bool, String)> = generation
            .scopes
            .iter()
            .map(|(name, scope)| (matches!(scope, EndpointScope::Server(_)), name.clone()))
            .collect();
        names.sort();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns what an endpoint covers, or `None` for an unknown endpoint.
    pub fn endpoint_coverage(&self, name: &str) -> Option<EndpointCoverage> {
        self.generation()
            .scopes
            .get(name)
            .cloned()
            .map(EndpointCoverage)
    }
}
