//! Preview of other settings: their effect on access, as far as the catalogue knows.
//!
//! Owns no state, and changes nothing. Does not apply settings (`reconfigure.rs`). Invariant: the
//! rules that decide about calls decide here, too.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::Gateway;
use crate::catalog::Snapshot;
use crate::endpoint::Endpoint;
use crate::generation::Generation;
use crate::running_server::RunningServer;
use crate::settings::GatewaySettings;
use moongate_access::auth::PrincipalChange;
use moongate_api::ToolAccessChange;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, Principal};

impl Gateway {
    /// Returns the tools that each principal would gain or lose, among known servers.
    pub fn tool_access_changes(
        self: &Arc<Self>,
        settings: GatewaySettings,
        principals: &[PrincipalChange],
    ) -> Vec<ToolAccessChange> {
        let before = self.generation();
        let known = settings.servers.into_iter().filter_map(|server| {
            let upstream = before.find_server(&server.name)?.upstream.clone();
            Some(Arc::new(RunningServer {
                settings: Arc::new(server),
                upstream,
            }))
        });
        // Only known servers count: nobody knows the lists of others yet.
        let after = Generation::new(
            known.collect(),
            settings.names,
            settings.access,
            settings.views,
        );
        after.snapshot.store(Arc::new(Snapshot::build(
            &after.servers,
            &after.names,
            &self.meters,
        )));
        let after = Arc::new(after);
        let changes = principals.iter().map(|change| {
            let then = self.callable_tools(&before, change.before.as_deref());
            let now = self.callable_tools(&after, change.after.as_deref());
            ToolAccessChange {
                key: change.name.clone(),
                gains: now.difference(&then).map(ByteString::to_string).collect(),
                loses: then.difference(&now).map(ByteString::to_string).collect(),
            }
        });
        changes
            .filter(|change| !change.gains.is_empty() || !change.loses.is_empty())
            .collect()
    }

    /// Returns the tools that a principal may call at any of its endpoints. None without one.
    fn callable_tools(
        self: &Arc<Self>,
        generation: &Arc<Generation>,
        principal: Option<&Principal>,
    ) -> BTreeSet<ByteString> {
        let Some(principal) = principal else {
            return BTreeSet::new();
        };
        let snapshot = generation.snapshot.load_full();
        let mut tools = BTreeSet::new();
        let scopes = generation
            .scopes
            .keys()
            .filter_map(|name| Some((name, generation.scope(name, principal)?)));
        for (name, scope) in scopes {
            let endpoint = Endpoint::new(
                self.clone(),
                generation.clone(),
                scope,
                ByteString::from(name.as_str()),
            );
            let routes = snapshot
                .iter(ItemKind::Tools)
                .filter(|route| endpoint.permits(principal, ItemKind::Tools, route));
            tools.extend(routes.map(|route| route.exposed.clone()));
        }
        tools
    }
}
