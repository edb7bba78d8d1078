//! What other settings would change, as far as the catalogue knows.
//!
//! Owns nothing and changes nothing. Invariant: the same rules decide here that decide about calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use crate::gateway::catalog::Snapshot;
use crate::gateway::generation::{Generation, Member};
use crate::gateway::view::View;
use crate::gateway::{Gateway, GatewaySettings};
use crate::json::Text;
use crate::model::{Kind, Principal};

/// Who a key is before a change, and after it.
pub struct Who {
    /// The name of the key; `None`: whoever comes without one.
    pub name: Option<String>,
    /// Who it is now.
    pub before: Option<Arc<Principal>>,
    /// Who it would be.
    pub after: Option<Arc<Principal>>,
}

/// What somebody would be able to call, and would not any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gains {
    /// The name of the key; `None`: whoever comes without one.
    pub key: Option<String>,
    /// Tools, by exposed name.
    pub gains: Vec<String>,
    /// Tools, by exposed name.
    pub loses: Vec<String>,
}

impl Gateway {
    /// Who would gain or lose which tool of the servers that are known.
    pub fn gains(self: &Arc<Self>, settings: GatewaySettings, who: &[Who]) -> Vec<Gains> {
        let before = self.generation();
        let known = settings.servers.into_iter().filter_map(|server| {
            let upstream = before.member(&server.name)?.upstream.clone();
            Some(Arc::new(Member { settings: Arc::new(server), upstream }))
        });
        let after = Generation::new(known.collect(), settings.names, settings.access, settings.views);
        after.snapshot.store(Arc::new(Snapshot::build(&after.servers, &after.names, &self.meters)));
        let after = Arc::new(after);
        let change = |who: &Who| {
            let callable = |generation: &Arc<Generation>, principal: &Option<Arc<Principal>>| {
                principal.as_ref().map(|principal| self.callable(generation, principal)).unwrap_or_default()
            };
            let (then, now) = (callable(&before, &who.before), callable(&after, &who.after));
            let but = |a: &BTreeSet<Text>, b: &BTreeSet<Text>| a.difference(b).map(Text::to_string).collect();
            Gains { key: who.name.clone(), gains: but(&now, &then), loses: but(&then, &now) }
        };
        who.iter().map(change).filter(|change| !change.gains.is_empty() || !change.loses.is_empty()).collect()
    }

    /// The tools that a principal may call at any of its endpoints.
    fn callable(self: &Arc<Self>, generation: &Arc<Generation>, principal: &Principal) -> BTreeSet<Text> {
        let snapshot = generation.snapshot.load_full();
        let mut tools = BTreeSet::new();
        let scopes = generation.scopes.keys().filter_map(|name| Some((name, generation.scope(name, principal)?)));
        for (name, scope) in scopes {
            let view = View::new(self.clone(), generation.clone(), scope, Text::from(name.as_str()));
            let routes = snapshot.iter(Kind::Tools).filter(|route| view.permits(principal, Kind::Tools, route));
            tools.extend(routes.map(|route| route.exposed.clone()));
        }
        tools
    }
}
