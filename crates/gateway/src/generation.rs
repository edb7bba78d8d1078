//! Generation: the gateway's config between two changes of it.
//!
//! Owns the servers, names, rules and scopes of one moment, and the catalogue over them. Does not
//! change servers (`reconfigure.rs`) or hold endpoints (`current_generation.rs`). Invariant: apart
//! from its catalogue, a generation is only replaced as a whole. No request sees servers, names or
//! rules of two generations at once.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::SchemaStyle;
use crate::catalog::Snapshot;
use crate::endpoint_scope::{EndpointScope, EndpointUnion};
use crate::names::{NameRequest, NameRules, assign};
use crate::running_server::RunningServer;
use crate::settings::{DisabledServer, SearchRules, ViewRules};
use moongate_access::policy::AccessTable;
use moongate_jsonrpc::json::ByteString;
use moongate_model::Principal;

/// Servers and rules of one moment.
pub(super) struct Generation {
    /// Servers, sorted by name.
    pub(super) servers: Vec<Arc<RunningServer>>,
    pub(super) names: NameRules,
    pub(super) access: AccessTable,
    /// Scope of each endpoint, by its name.
    pub(super) scopes: HashMap<String, EndpointScope>,
    pub(super) snapshot: ArcSwap<Snapshot>,
    /// Style of tools' input schemas, unless a view has its own.
    pub(super) schema: SchemaStyle,
    /// Rules of search mode at the endpoint over everything.
    pub(super) search: Option<SearchRules>,
    /// Servers that are configured and disabled.
    pub(super) disabled: Vec<DisabledServer>,
}

impl Generation {
    pub(super) fn new(
        mut servers: Vec<Arc<RunningServer>>,
        names: NameRules,
        access: AccessTable,
        views: Vec<ViewRules>,
    ) -> Self {
        // Sorted, so that collisions of names have the same winner after each start.
        servers.sort_by(|a, b| a.settings.name.cmp(&b.settings.name));
        let mut scopes: HashMap<String, EndpointScope> = servers
            .iter()
            .map(|s| (s.settings.name.clone(), EndpointScope::Server(s.clone())))
            .collect();
        scopes.extend(
            views
                .into_iter()
                .map(|v| (v.name.clone(), EndpointScope::View(Arc::new(v)))),
        );
        // Inserted last: the empty name always means the endpoint over everything.
        scopes.insert(String::new(), EndpointScope::All);
        let snapshot = ArcSwap::default();
        let schema = SchemaStyle::AsIs;
        Generation {
            servers,
            names,
            access,
            scopes,
            snapshot,
            schema,
            search: None,
            disabled: Vec::new(),
        }
    }

    /// Clones the generation, with one server replaced.
    pub(super) fn with_server(&self, entry: &Arc<RunningServer>) -> Self {
        let views = self.scopes.values().filter_map(|scope| match scope {
            EndpointScope::View(rules) => Some((**rules).clone()),
            _ => None,
        });
        let servers = self.servers.iter().map(|server| {
            if server.name == entry.name {
                entry.clone()
            } else {
                server.clone()
            }
        });
        let next = Generation::new(
            servers.collect(),
            self.names.clone(),
            self.access.clone(),
            views.collect(),
        );
        Generation {
            disabled: self.disabled.clone(),
            schema: self.schema,
            search: self.search.clone(),
            ..next
        }
    }

    /// Returns the scope of an endpoint for a principal. `None`: no such endpoint, or no access to
    /// it.
    pub(super) fn scope(&self, name: &str, principal: &Principal) -> Option<EndpointScope> {
        let scope = self
            .scopes
            .get(name)
            .filter(|_| self.access.allows_endpoint(principal, name))?;
        match (scope, self.access.allowed_endpoints(principal.role())) {
            (EndpointScope::All, Some(names)) => Some(EndpointScope::Union(Arc::new(
                EndpointUnion::new(names, &self.scopes),
            ))),
            _ => Some(scope.clone()),
        }
    }

    /// Returns the name that a tool would get without other tools.
    pub(super) fn expected_name(&self, server: &RunningServer, local: &ByteString) -> ByteString {
        let settings = &server.settings;
        let name = settings
            .presentation
            .tools
            .rename
            .get(local.as_str())
            .map_or(local.as_str(), String::as_str);
        let request = NameRequest {
            server: &settings.name,
            prefix: &settings.presentation.prefix,
            name,
            local,
        };
        let names = assign(&[request], &self.names);
        ByteString::from(
            names
                .into_iter()
                .next()
                .map(|(name, _)| name)
                .unwrap_or_default(),
        )
    }

    pub(super) fn find_server(&self, name: &str) -> Option<&Arc<RunningServer>> {
        self.servers
            .iter()
            .find(|entry| entry.settings.name == name)
    }
}
