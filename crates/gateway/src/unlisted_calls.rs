//! Calls of names that no list has: they may be newer than the list.
//!
//! Owns which servers are relisted for a name, and the second lookup. Does not decide the server of
//! a name: the catalogue does. Invariant: a name that may not be used takes the same path and time
//! as one that does not exist.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::call_route::CallRoute;
use crate::call_watch::LocalCall;
use crate::endpoint::Endpoint;
use crate::endpoint_scope::EndpointScope;
use crate::permitted::Permitted;
use crate::running_server::RunningServer;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, Caller, Error, Exchange, ItemKind, McpErrorKind, McpMethod};

impl Endpoint {
    /// Relists the servers that may have a name, in the client's era as well, and calls it if it is
    /// there by then.
    pub(super) fn call_unlisted(
        &self,
        caller: &Arc<Caller>,
        mut call: Call,
        error: Error,
    ) -> Exchange {
        let is_unknown = error.kind == McpErrorKind::UnknownName;
        let found = is_unknown.then(|| self.candidate_servers(&call)).flatten();
        let Some((kind, servers)) = found else {
            return self.answer_locally(caller, LocalCall::from_call(&call), Err(error));
        };
        let endpoint = self.clone_endpoint();
        let caller = caller.clone();
        Exchange::start_with(async move {
            // The items of both eras may be the same while the client's own list is not.
            let era = moongate_protocol::era_of(caller.revision);
            let before: Vec<_> = servers
                .iter()
                .map(|server| server.era_lists().of_era(era).clone())
                .collect();
            join_all(servers.iter().map(|server| server.relist_for(era, kind))).await;
            // Unchanged lists cannot hold the name, so the catalogue need not be built again.
            let is_same = servers
                .iter()
                .zip(&before)
                .all(|(server, before)| Arc::ptr_eq(server.era_lists().of_era(era), before));
            if is_same {
                if let Some(route) = endpoint.route_to_gateway(&caller, &call) {
                    return endpoint.start(&caller, route, call);
                }
                return endpoint.answer_locally(&caller, LocalCall::from_call(&call), Err(error));
            }
            endpoint.gateway.rebuild();
            match endpoint.route(&caller, &mut call) {
                Ok(route) => endpoint.start(&caller, route, call),
                Err(error) => {
                    endpoint.answer_locally(&caller, LocalCall::from_call(&call), Err(error))
                }
            }
        })
    }

    /// Routes an unknown name through a bridge to another gateway, which may know it by now: its
    /// list comes from memory.
    fn route_to_gateway(&self, caller: &Caller, call: &Call) -> Option<Permitted<CallRoute>> {
        // A bridge has no rules.
        let gateway = self.permit_extensions(&caller.principal)?;
        let is_there = gateway.settings.is_gateway && gateway.is_connected();
        is_there.then(|| gateway.route_call(self.method_meter(&call.method)))
    }

    /// Returns the servers that a name could belong to, by their prefixes. Returns `None` if there
    /// is none.
    fn candidate_servers(&self, call: &Call) -> Option<(ItemKind, Vec<Arc<RunningServer>>)> {
        let kind = match call.method {
            McpMethod::CallTool => ItemKind::Tools,
            McpMethod::GetPrompt => ItemKind::Prompts,
            _ => return None,
        };
        let name = call.params.get_string("name")?;
        let servers: Vec<Arc<RunningServer>> = self
            .generation
            .servers
            .iter()
            .filter(|server| self.includes(&server.name) && self.may_belong_to(&name, server))
            .cloned()
            .collect();
        (!servers.is_empty()).then_some((kind, servers))
    }

    /// Returns true if the name could be one of the server's, by its prefix.
    pub(super) fn may_belong_to(&self, name: &ByteString, server: &RunningServer) -> bool {
        let rest = match self.scope {
            // Names have no prefix on a single server's endpoint.
            EndpointScope::Server(_) => return true,
            _ => name.strip_prefix(&*server.settings.presentation.prefix),
        };
        server.settings.presentation.prefix.is_empty()
            || rest.is_some_and(|rest| rest.starts_with(&self.generation.names.separator))
    }
}
