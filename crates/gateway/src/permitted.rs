//! Proof that policy lets a caller use a target, and the decisions that give it.
//!
//! Owns every decision about one item, resource or task. Does not search for targets (`catalog.rs`,
//! `resolve_uri.rs`). Invariant: only this file makes a `Permitted`, and the gateway starts no call
//! without one (`start_call.rs`).

use std::ops::Deref;
use std::sync::Arc;

use crate::call_route::CallRoute;
use crate::catalog::Snapshot;
use crate::catalog_route::CatalogRoute;
use crate::decision::{Decision, DecisionRecorder, DecisionRule};
use crate::endpoint::Endpoint;
use crate::endpoint_context::EndpointContext;
use crate::endpoint_scope::EndpointScope;
use crate::running_server::{RunningServer, server_name};
use crate::task_handles;
use moongate_access::policy::ItemRules;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, ItemKind, Principal, SharingMode};
use moongate_protocol::{Era, ListedOutput};
use moongate_telemetry::{CallMeter, DeniedRule};

/// Target that policy lets a caller use.
// The private field ensures it: outside this file, only the decisions below lead to a value.
#[derive(Clone)]
pub(super) struct Permitted<T>(T);

impl<T> Deref for Permitted<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl Permitted<Arc<CatalogRoute>> {
    /// Routes a call of a client of this era to the item.
    pub(super) fn route_call(&self, era: Era) -> Permitted<CallRoute> {
        let CatalogRoute {
            upstream,
            meter,
            exposed,
            ..
        } = &*self.0;
        let server = upstream.clone();
        let meter = meter.clone();
        let tool = exposed.clone();
        let output = self.0.output_for(era);
        Permitted(CallRoute {
            server,
            meter,
            tool,
            output,
        })
    }

    /// Returns the item's server, for what concerns the item.
    pub(super) fn server(&self) -> Permitted<Arc<RunningServer>> {
        Permitted(self.0.upstream.clone())
    }
}

impl Permitted<Arc<RunningServer>> {
    /// Routes a call that names no tool or prompt.
    pub(super) fn route_call(self, meter: Arc<CallMeter>) -> Permitted<CallRoute> {
        self.route_result(meter, ListedOutput::default())
    }

    /// Routes a call that names no tool, and whose result was listed so.
    pub(super) fn route_result(
        self,
        meter: Arc<CallMeter>,
        output: ListedOutput,
    ) -> Permitted<CallRoute> {
        Permitted(CallRoute {
            server: self.0,
            meter,
            tool: ByteString::literal(""),
            output,
        })
    }
}

impl Endpoint {
    /// Returns true if a principal may see an item through this endpoint.
    pub(super) fn permits(
        &self,
        principal: &Principal,
        kind: ItemKind,
        route: &CatalogRoute,
    ) -> bool {
        self.decide_route(principal, kind, route).is_visible()
    }

    fn decide_route(
        &self,
        principal: &Principal,
        kind: ItemKind,
        route: &CatalogRoute,
    ) -> Decision {
        self.decide(
            principal,
            kind,
            (&route.upstream.settings.name, &route.exposed),
            &mut (),
        )
    }

    /// Decides about an item, by its server and its exposed name. `recorder` sees each rule.
    pub(super) fn decide(
        &self,
        principal: &Principal,
        kind: ItemKind,
        (server, exposed): (&str, &str),
        recorder: &mut impl DecisionRecorder,
    ) -> Decision {
        // Globs of keys apply to tools only.
        let allows = self.offers_named(kind, (server, exposed), recorder)
            && (kind != ItemKind::Tools
                || recorder.record(
                    DecisionRule::Principal,
                    self.generation.access.allows_tool(principal, exposed),
                ));
        if allows {
            Decision::Allow
        } else {
            Decision::Deny
        }
    }

    /// Returns true if this endpoint has an item, for principals that may use it.
    pub(super) fn offers(&self, kind: ItemKind, route: &CatalogRoute) -> bool {
        self.offers_named(
            kind,
            (&route.upstream.settings.name, &route.exposed),
            &mut (),
        )
    }

    fn offers_named(
        &self,
        kind: ItemKind,
        (server, exposed): (&str, &str),
        recorder: &mut impl DecisionRecorder,
    ) -> bool {
        // Globs of views apply to tools only.
        recorder.record(DecisionRule::Servers, self.includes(server))
            && (kind != ItemKind::Tools
                || recorder.record(DecisionRule::Tools, self.scope.has_tool(server, exposed)))
    }

    /// Permits an item of the catalogue.
    pub(super) fn permit_item(
        &self,
        principal: &Principal,
        kind: ItemKind,
        route: &Arc<CatalogRoute>,
    ) -> Option<Permitted<Arc<CatalogRoute>>> {
        self.decide_route(principal, kind, route)
            .allowed(|| Permitted(route.clone()))
    }

    /// Finds the item that a client names, if it exists and may be used.
    pub(super) fn lookup(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        kind: ItemKind,
        key: &ByteString,
    ) -> Option<Permitted<Arc<CatalogRoute>>> {
        let permitted = self.permit_item(
            &caller.principal,
            kind,
            self.find_route(snapshot, kind, key)?,
        );
        if permitted.is_none() {
            // Operators see the refusal here. Clients get the error of an unknown name.
            self.gateway
                .context()
                .metrics
                .access
                .policy_denied
                .inc(DeniedRule(kind.member()));
        }
        permitted
    }

    /// Permits a resource of a server, by the server's own URI.
    pub(super) fn permit_resource(
        &self,
        snapshot: &Snapshot,
        server: &Arc<RunningServer>,
        local: &ByteString,
    ) -> Option<Permitted<Arc<RunningServer>>> {
        let allowed = self.includes(&server.settings.name)
            && self
                .gateway
                .context()
                .allows_resource(snapshot, server, local);
        allowed.then(|| Permitted(server.clone()))
    }

    /// Permits the extensions of this endpoint's server: methods that no rule can judge. `None`
    /// unless every rule leaves everything of the server as it is.
    pub(super) fn permit_extensions(
        &self,
        principal: &Principal,
    ) -> Option<Permitted<Arc<RunningServer>>> {
        let EndpointScope::Server(only) = &self.scope else {
            return None;
        };
        let rules = [
            &only.settings.presentation.tools,
            &only.settings.presentation.resources,
            &only.settings.presentation.prompts,
        ];
        let permits = rules.into_iter().all(ItemRules::leaves_all)
            && self.generation.access.allows_all_tools(principal);
        permits.then(|| Permitted(only.clone()))
    }

    /// Returns true if tasks keep their servers' own ids. Holds on a single server's endpoint,
    /// where callers cannot be distinguished.
    pub(super) fn keeps_local_task_ids(&self, caller: &Caller) -> bool {
        matches!(self.scope, EndpointScope::Server(_)) && caller.principal.secret.is_none()
    }

    /// Permits a task by its handle. Also returns the server's own id of it.
    pub(super) fn permit_task(
        &self,
        caller: &Caller,
        handle: &ByteString,
    ) -> Option<(Permitted<Arc<RunningServer>>, ByteString)> {
        let secret = caller.principal.secret.as_ref();
        if let (EndpointScope::Server(only), None) = (&self.scope, secret) {
            return Some((Permitted(only.clone()), handle.clone()));
        }
        // A handle opens only for the principal that it was made for.
        // 2025-11-25/basic/utilities/tasks.mdx, Security Considerations: "receivers MUST reject
        // `tasks/get`, `tasks/result`, and `tasks/cancel` requests for tasks that do not belong to
        // the same authorization context as the requestor".
        let (name, local) = task_handles::open_handle(handle, secret)?;
        let server = self
            .generation
            .servers
            .iter()
            .find(|server| server.settings.name == name)?;
        self.includes(name)
            .then(|| (Permitted(server.clone()), ByteString::from(local)))
    }

    /// Permits the task list of a server, if it holds one principal's tasks only.
    pub(super) fn permit_task_list(
        &self,
        server: &Arc<RunningServer>,
    ) -> Option<Permitted<Arc<RunningServer>>> {
        // A connection that several principals share lists the tasks of all of them.
        // 2025-11-25/basic/utilities/tasks.mdx, Security Considerations: else "listing tasks would
        // expose task metadata to any requestor regardless of task ID entropy".
        let isolated = self.gateway.context().principals.is_single()
            || server.settings.options.share != SharingMode::Auto;
        (isolated && self.includes(&server.settings.name)).then(|| Permitted(server.clone()))
    }
}

impl EndpointContext {
    /// Returns true if the config lets a server have a resource. Long URIs are not tried with
    /// patterns, so they must be listed.
    fn allows_resource(
        &self,
        snapshot: &Snapshot,
        server: &RunningServer,
        local: &ByteString,
    ) -> bool {
        let rules = &server.settings.presentation.resources;
        if local.len() > self.uri_max() && rules.has_patterns() {
            return snapshot
                .find_local(ItemKind::Resources, &server_name(server), local)
                .is_some();
        }
        rules.allows_uri(local)
    }
}
