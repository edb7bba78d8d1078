//! What a config says of the gateway, from one change of it to the next.
//!
//! Owns the servers, names, rules and endpoints of one moment, and the catalogue over them. Invariant: but for its
//! catalogue, a generation is never changed, only replaced as a whole; so no request sees half of a change.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::gateway::catalog::Snapshot;
use crate::gateway::names::NameRules;
use crate::gateway::union::Union;
use crate::gateway::view::{Scope, View};
use crate::gateway::{Gateway, SchemaStyle, ViewRules};
use crate::json::Text;
use crate::model::{Call, Caller, Exchange, Principal};
use crate::policy::AccessTable;
use crate::upstream::{ServerCall, ServerSettings, Upstream};

/// A server as it is configured now. What serves may still be connected as it was configured before.
pub struct Member {
    /// The settings that hold for what clients see of it.
    pub settings: Arc<ServerSettings>,
    /// What serves.
    pub upstream: Arc<Upstream>,
}

impl Deref for Member {
    type Target = Upstream;
    fn deref(&self) -> &Upstream {
        &self.upstream
    }
}

impl Member {
    pub(super) fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        self.upstream.call(caller, call)
    }

    pub(super) fn begin_call(&self, caller: &Arc<Caller>, call: Call) -> ServerCall {
        self.upstream.begin_call(caller, call)
    }
}

/// The servers and the rules of one moment.
pub(super) struct Generation {
    /// Sorted by name.
    pub(super) servers: Vec<Arc<Member>>,
    pub(super) names: NameRules,
    pub(super) access: AccessTable,
    /// What each endpoint is over, by its name.
    pub(super) scopes: HashMap<String, Scope>,
    pub(super) snapshot: ArcSwap<Snapshot>,
    /// How tools' input schemas are listed, but for views that say it themselves.
    pub(super) schema: SchemaStyle,
    /// Servers that are configured and switched off.
    pub(super) disabled: Vec<String>,
}

impl Generation {
    pub(super) fn new(
        mut servers: Vec<Arc<Member>>,
        names: NameRules,
        access: AccessTable,
        views: Vec<ViewRules>,
    ) -> Self {
        servers.sort_by(|a, b| a.settings.name.cmp(&b.settings.name));
        let mut scopes: HashMap<String, Scope> =
            servers.iter().map(|s| (s.settings.name.clone(), Scope::Server(s.clone()))).collect();
        scopes.extend(views.into_iter().map(|v| (v.name.clone(), Scope::View(Arc::new(v)))));
        scopes.insert(String::new(), Scope::All);
        let (snapshot, schema) = (ArcSwap::default(), SchemaStyle::AsIs);
        Generation { servers, names, access, scopes, snapshot, schema, disabled: Vec::new() }
    }

    /// The same, with another in the place of a server.
    pub(super) fn with(&self, member: &Arc<Member>) -> Self {
        let swapped = |s: &Arc<Member>| if s.name == member.name { member.clone() } else { s.clone() };
        let views = self.scopes.values().filter_map(|scope| match scope {
            Scope::View(rules) => Some((**rules).clone()),
            _ => None,
        });
        let servers = self.servers.iter().map(swapped).collect();
        let next = Generation::new(servers, self.names.clone(), self.access.clone(), views.collect());
        Generation { disabled: self.disabled.clone(), schema: self.schema, ..next }
    }

    /// What an endpoint is over for a principal; `None`: there is none of this name, or not for it.
    pub(super) fn scope(&self, name: &str, principal: &Principal) -> Option<Scope> {
        let scope = self.scopes.get(name).filter(|_| self.access.endpoint(principal, name))?;
        match (scope, self.access.only(principal.id)) {
            (Scope::All, Some(names)) => Some(Scope::Union(Arc::new(Union::new(names, &self.scopes)))),
            _ => Some(scope.clone()),
        }
    }

    pub(super) fn member(&self, name: &str) -> Option<&Arc<Member>> {
        self.servers.iter().find(|member| member.settings.name == name)
    }
}

/// A generation with its endpoints.
pub(super) struct Current {
    pub(super) generation: Arc<Generation>,
    views: HashMap<String, Arc<View>>,
    /// The endpoints over everything of principals that may use only some others, by id.
    unions: HashMap<u32, Arc<View>>,
}

impl Current {
    pub(super) fn new(gateway: &Arc<Gateway>, generation: Arc<Generation>) -> Self {
        let view = |name: &str, scope: Scope| {
            Arc::new(View::new(gateway.clone(), generation.clone(), scope, Text::from(name)))
        };
        let views = generation.scopes.iter().map(|(name, scope)| (name.clone(), view(name, scope.clone())));
        let unions = generation.access.restricted().map(|(id, names)| {
            let union = Union::new(names, &generation.scopes);
            (id, view("", Scope::Union(Arc::new(union))))
        });
        Current { views: views.collect(), unions: unions.collect(), generation: generation.clone() }
    }

    /// Without endpoints: before the start, and after the end.
    pub(super) fn closed(generation: Arc<Generation>) -> Self {
        Current { generation, views: HashMap::new(), unions: HashMap::new() }
    }

    /// The endpoint of this name, if there is one; and whether the principal may use it.
    pub(super) fn view(&self, name: &str, principal: &Principal) -> Option<(&Arc<View>, bool)> {
        let union = self.unions.get(&principal.id).filter(|_| name.is_empty());
        let view = union.or_else(|| self.views.get(name))?;
        Some((view, self.generation.access.endpoint(principal, name)))
    }
}
