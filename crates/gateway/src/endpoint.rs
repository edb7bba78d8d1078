//! Endpoint: the union of everything, a view, or a single server with its own names.
//!
//! Owns the servers and rules that hold on it. Does not decide about calls (`permitted.rs`) or
//! start them (`start_call.rs`). Invariant: a request sees the servers and rules of one generation.

use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::catalog_route::CatalogRoute;
use crate::endpoint_context::EndpointContext;
use crate::endpoint_scope::EndpointScope;
use crate::generation::Generation;
use crate::running_server::{RunningServer, server_name};
use crate::settings::SearchRules;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, McpMethod, Principal};
use moongate_telemetry::CallMeter;

/// Gateway, as its endpoints see it.
pub(super) trait EndpointHost: Send + Sync {
    /// Returns the parts that all endpoints share.
    fn context(&self) -> &Arc<EndpointContext>;

    /// Returns the current catalogue.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Returns the current endpoint of this name, if there is one and the principal may use it.
    fn endpoint(&self, name: &str, principal: &Principal) -> Option<Arc<Endpoint>>;

    /// Rebuilds the catalogue, and publishes the differences.
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
        Endpoint {
            gateway,
            generation,
            scope,
            name,
        }
    }

    /// Clones the endpoint. The parts are shared.
    pub(super) fn clone_endpoint(&self) -> Endpoint {
        let Endpoint {
            gateway,
            generation: now,
            scope,
            name,
        } = self;
        Endpoint {
            gateway: gateway.clone(),
            generation: now.clone(),
            scope: scope.clone(),
            name: name.clone(),
        }
    }

    /// Returns true if items keep their servers' own names here.
    pub(super) fn keeps_local_names(&self) -> bool {
        matches!(self.scope, EndpointScope::Server(_))
    }

    /// Returns the rules of search mode. `None`: the lists have all tools.
    pub(super) fn search_rules(&self) -> Option<&SearchRules> {
        match &self.scope {
            EndpointScope::All | EndpointScope::Union(_) => self.generation.search.as_ref(),
            EndpointScope::View(view) => view.search.as_ref(),
            EndpointScope::Server(_) => None,
        }
    }

    /// Returns the servers of this endpoint, sorted by name.
    pub(super) fn servers(&self) -> impl Iterator<Item = &Arc<RunningServer>> {
        self.generation
            .servers
            .iter()
            .filter(|server| self.includes(&server.settings.name))
    }

    /// Returns true if the endpoint has one server, also counting those that may be enabled later.
    pub(super) fn is_of_one_server(&self) -> bool {
        let disabled = self
            .generation
            .disabled
            .iter()
            .filter(|server| self.includes(&server.name));
        self.servers().count() + disabled.count() == 1
    }

    pub(super) fn includes(&self, server: &str) -> bool {
        self.scope.includes(server)
    }

    /// Finds the route of an item, by the key that clients of this endpoint use.
    pub(super) fn find_route<'a>(
        &self,
        snapshot: &'a Snapshot,
        kind: ItemKind,
        key: &ByteString,
    ) -> Option<&'a Arc<CatalogRoute>> {
        match &self.scope {
            // Servers' own names are unique within one server only.
            EndpointScope::Server(upstream) => {
                snapshot.find_local(kind, &server_name(upstream), key)
            }
            _ => snapshot.find_exposed(kind, key),
        }
    }

    /// Explains why the one server of this endpoint never came up. An endpoint with several servers
    /// has other items to list, and the status shows them all.
    pub(super) fn absence(&self) -> Option<String> {
        match &self.scope {
            EndpointScope::Server(only) => only.absence(),
            EndpointScope::All | EndpointScope::View(_) | EndpointScope::Union(_) => None,
        }
    }

    pub(super) fn method_meter(&self, method: &McpMethod) -> Arc<CallMeter> {
        let meters = &self.gateway.context().method_meters;
        let meter = meters.get(method.label()).or_else(|| meters.get("_OTHER"));
        meter
            .cloned()
            .expect("there is a meter for every method, and one for the others")
    }
}
