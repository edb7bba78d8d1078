//! Servers and tools that an endpoint covers: all, one server, a view, or what one key may use.
//!
//! Owns which servers and tools named endpoints reach together. Does not decide what the key's own
//! globs leave of them (`access`). Invariant: a union reaches nothing that none of the named
//! endpoints reaches.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::running_server::RunningServer;
use crate::settings::ViewRules;

/// Servers and tools that an endpoint covers.
#[derive(Clone)]
pub(super) enum EndpointScope {
    All,
    Server(Arc<RunningServer>),
    View(Arc<ViewRules>),
    Union(Arc<EndpointUnion>),
}

impl EndpointScope {
    /// Returns true if the endpoint has this server.
    pub(super) fn includes(&self, server: &str) -> bool {
        match self {
            EndpointScope::All => true,
            EndpointScope::Server(only) => only.settings.name == server,
            EndpointScope::View(view) => view.includes(server),
            EndpointScope::Union(union) => union.includes(server),
        }
    }

    /// Returns true if the endpoint has this tool of a server that it includes.
    pub(super) fn has_tool(&self, server: &str, exposed: &str) -> bool {
        match self {
            EndpointScope::View(view) => view.tools.matches(exposed),
            EndpointScope::Union(union) => union.has_tool(server, exposed),
            EndpointScope::All | EndpointScope::Server(_) => true,
        }
    }
}

/// Views and servers that one key may use.
#[derive(Debug, Default)]
pub(super) struct EndpointUnion {
    servers: HashSet<String>,
    views: Vec<Arc<ViewRules>>,
}

impl EndpointUnion {
    /// Unites the named endpoints. Names that lead nowhere add nothing.
    pub(super) fn new(names: &HashSet<String>, scopes: &HashMap<String, EndpointScope>) -> Self {
        let mut union = EndpointUnion::default();
        for name in names {
            match scopes.get(name) {
                Some(EndpointScope::Server(entry)) => {
                    union.servers.insert(entry.settings.name.clone());
                }
                Some(EndpointScope::View(view)) => union.views.push(view.clone()),
                Some(EndpointScope::All | EndpointScope::Union(_)) | None => {}
            }
        }
        union
    }

    pub(super) fn includes(&self, server: &str) -> bool {
        self.servers.contains(server) || self.views.iter().any(|view| view.includes(server))
    }

    /// Returns true if one of the endpoints has this tool.
    pub(super) fn has_tool(&self, server: &str, exposed: &str) -> bool {
        self.servers.contains(server)
            || self
                .views
                .iter()
                .any(|view| view.includes(server) && view.tools.matches(exposed))
    }
}
