//! What other settings would change, as far as the catalogue knows.
//!
//! Owns nothing and changes nothing. Invariant: the same rules decide here that decide about calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use crate::gateway::catalog::Snapshot;
use crate::gateway::endpoint::Endpoint;
use crate::gateway::generation::{Generation, ServerEntry};
use crate::gateway::{Gateway, GatewaySettings};
use crate::json::ByteString;
use crate::model::{ItemKind, Principal};

/// Who a key is before a change, and after it.
pub struct PrincipalChange {
    /// The name of the key; `None`: whoever comes without one.
    pub name: Option<String>,
    /// Who it is now.
    pub before: Option<Arc<Principal>>,
    /// Who it would be.
    pub after: Option<Arc<Principal>>,
}

/// What somebody would be able to call, and would not any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolAccessChange {
    /// The name of the key; `None`: whoever comes without one.
    pub key: Option<String>,
    /// Tools, by exposed name.
    pub gains: Vec<String>,
    /// Tools, by exposed name.
    pub loses: Vec<String>,
}

impl Gateway {
    /// Who would gain or lose which tool of the servers that are known.
    pub fn tool_access_changes(
        self: &Arc<Self>,
        settings: GatewaySettings,
        who: &[PrincipalChange],
    ) -> Vec<ToolAccessChange> {
        let before = self.generation();
        let known = settings.servers.into_iter().filter_map(|server| {
            let upstream = before.find_server(&server.name)?.upstream.clone();
            Some(Arc::new(ServerEntry { settings: Arc::new(server), upstream }))
        });
        let after = Generation::new(known.collect(), settings.names, settings.access, settings.views);
        after.snapshot.store(Arc::new(Snapshot::build(&after.servers, &after.names, &self.meters)));
        let after = Arc::new(after);
        let change = |who: &PrincipalChange| {
            let callable = |generation: &Arc<Generation>, principal: &Option<Arc<Principal>>| {
                principal.as_ref().map(|principal| self.callable_tools(generation, principal)).unwrap_or_default()
            };
            let (then, now) = (callable(&before, &who.before), callable(&after, &who.after));
            let but = |a: &BTreeSet<ByteString>, b: &BTreeSet<ByteString>| {
                a.difference(b).map(ByteString::to_string).collect()
            };
            ToolAccessChange { key: who.name.clone(), gains: but(&now, &then), loses: but(&then, &now) }
        };
        who.iter().map(change).filter(|change| !change.gains.is_empty() || !change.loses.is_empty()).collect()
    }

    /// The tools that a principal may call at any of its endpoints.
    fn callable_tools(self: &Arc<Self>, generation: &Arc<Generation>, principal: &Principal) -> BTreeSet<ByteString> {
        let snapshot = generation.snapshot.load_full();
        let mut tools = BTreeSet::new();
        let scopes = generation.scopes.keys().filter_map(|name| Some((name, generation.scope(name, principal)?)));
        for (name, scope) in scopes {
            let view = Endpoint::new(self.clone(), generation.clone(), scope, ByteString::from(name.as_str()));
            let routes = snapshot.iter(ItemKind::Tools).filter(|route| view.permits(principal, ItemKind::Tools, route));
            tools.extend(routes.map(|route| route.exposed.clone()));
        }
        tools
    }
}
