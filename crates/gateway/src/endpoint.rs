//! Endpoint: the union of everything, a view, or a single server with its own names.
//!
//! Owns what a caller may see and use through it. Does not resolve or start calls (`resolve_call.rs`, `start_call.rs`).
//! Invariant: a request sees the servers and rules of one generation.

use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::catalog_route::CatalogRoute;
use crate::endpoint_context::EndpointContext;
use crate::endpoint_scope::EndpointScope;
use crate::generation::Generation;
use crate::server_entry::server_name;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, ItemKind, McpMethod, Principal};
use moongate_telemetry::{CallMeter, DeniedRule};

/// Gateway, as its endpoints see it.
pub(super) trait EndpointHost: Send + Sync {
    /// Returns the parts that all endpoints share.
    fn context(&self) -> &Arc<EndpointContext>;

    /// Returns the current catalogue.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Returns the current endpoint of this name, if there is one and the principal may use it.
    fn endpoint(&self, name: &str, principal: &Principal) -> Option<Arc<Endpoint>>;

    /// Builds the catalogue anew, and publishes the differences.
    fn rebuild(&self);
}

/// Endpoint, as an MCP server.
pub struct Endpoint {
    pub(super) gateway: Arc<dyn EndpointHost>,
    /// Servers and rules of this endpoint.
    pub(super) generation: Arc<Generation>,
    pub(super) scope: EndpointScope,
    pub(super) name: ByteString,
}

impl Endpoint {
    pub(super) fn new(
        gateway: Arc<dyn EndpointHost>,
        generation: Arc<Generation>,
        scope: EndpointScope,
        name: ByteString,
    ) -> Self {
        Endpoint { gateway, generation, scope, name }
    }

    /// Clones the endpoint. The parts are shared.
    pub(super) fn clone_endpoint(&self) -> Endpoint {
        let Endpoint { gateway, generation: now, scope, name } = self;
        Endpoint { gateway: gateway.clone(), generation: now.clone(), scope: scope.clone(), name: name.clone() }
    }

    /// Returns true if items keep their servers' own names here.
    pub(super) fn keeps_local_names(&self) -> bool {
        matches!(self.scope, EndpointScope::Server(_))
    }

    pub(super) fn includes(&self, server: &str) -> bool {
        match &self.scope {
            EndpointScope::All => true,
            EndpointScope::Server(only) => only.settings.name == server,
            EndpointScope::View(view) => view.includes(server),
            EndpointScope::Union(union) => union.includes(server),
        }
    }

    /// Returns true if this caller may see and use an item through this endpoint.
    pub(super) fn permits(&self, principal: &Principal, kind: ItemKind, route: &CatalogRoute) -> bool {
        if !self.includes(&route.upstream.settings.name) {
            return false;
        }
        // Globs of views and keys apply to tools only.
        if kind != ItemKind::Tools {
            return true;
        }
        let viewed = match &self.scope {
            EndpointScope::View(view) => view.tools.matches(&route.exposed),
            EndpointScope::Union(union) => union.has_tool(&route.upstream.settings.name, &route.exposed),
            EndpointScope::All | EndpointScope::Server(_) => true,
        };
        viewed && self.generation.access.allows_tool(principal, &route.exposed)
    }

    /// Finds the item that a client names, if it exists and may be used.
    pub(super) fn lookup(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        kind: ItemKind,
        key: &ByteString,
    ) -> Option<Arc<CatalogRoute>> {
        let route = match &self.scope {
            // Servers' own names are unique within one server only.
            EndpointScope::Server(upstream) => snapshot.find_local(kind, &server_name(upstream), key),
            _ => snapshot.find_exposed(kind, key),
        };
        let route = route?;
        if self.permits(&caller.principal, kind, route) {
            return Some(route.clone());
        }
        // Operators see the refusal here. Clients get the error of an unknown name.
        self.gateway.context().metrics.access.policy_denied.inc(DeniedRule(kind.member()));
        None
    }

    /// Explains why the one server of this endpoint never came up. An endpoint with several servers has other items to
    /// list, and the status shows them all.
    pub(super) fn absence(&self) -> Option<String> {
        match &self.scope {
            EndpointScope::Server(only) => only.absence(),
            EndpointScope::All | EndpointScope::View(_) | EndpointScope::Union(_) => None,
        }
    }

    pub(super) fn method_meter(&self, method: &McpMethod) -> Arc<CallMeter> {
        let meters = &self.gateway.context().method_meters;
        let meter = meters.get(method.label()).or_else(|| meters.get("_OTHER"));
        meter.cloned().expect("there is a meter for every method, and one for the others")
    }
}
