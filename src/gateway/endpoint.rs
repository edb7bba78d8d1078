//! Endpoint: the union of everything, a view, or a single server with its own names.
//!
//! Owns the path of a call: resolve, check, start, restore. Does not hold items (`catalog.rs`). Invariant: a name that
//! may not be used gets the same error as one that does not exist.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};

use crate::gateway::call_watch::{CallWatch, UnsentCall, WatchedCall};
use crate::gateway::catalog::{CatalogRoute, RenderedList, server_name};
use crate::gateway::endpoint_union::EndpointUnion;
use crate::gateway::events::GatewayEvent;
use crate::gateway::generation::{Generation, ServerEntry};
use crate::gateway::subscription::ClientSubscription;
use crate::gateway::templates::LookupBudget;
use crate::gateway::{Gateway, SchemaStyle, Snapshot, ViewRules, expose, method_label, rewrite_links, schemas};
use crate::json::{ByteString, JsonObject, RawJson};
use crate::model::{
    Call, Caller, Error, Exchange, ExchangeEvent, InputRequired, ItemKind, McpErrorKind, McpMethod, Notification,
    NotificationStream, Outcome, Principal, Server, ServerCapabilities, ServerDescription, SubscriptionFilter,
    TaskMethod, TaskMode,
};
use crate::policy::ANONYMOUS;
use crate::revision;
use crate::telemetry::CallMeter;
use crate::upstream::Upstream;

/// Maximum length of instructions. Clients cut at about this.
const INSTRUCTIONS_MAX: usize = 2048;

/// Servers and tools that an endpoint covers.
#[derive(Clone)]
pub(super) enum EndpointScope {
    All,
    Server(Arc<ServerEntry>),
    View(Arc<ViewRules>),
    Union(Arc<EndpointUnion>),
}

/// Endpoint, as an MCP server.
pub struct Endpoint {
    pub(super) gateway: Arc<Gateway>,
    /// Servers and rules of this endpoint.
    pub(super) generation: Arc<Generation>,
    pub(super) scope: EndpointScope,
    pub(super) name: ByteString,
}

/// Target of a call.
pub(super) struct RoutedCall {
    pub(super) upstream: Arc<ServerEntry>,
    pub(super) meter: Arc<CallMeter>,
    /// Tool or prompt, as clients see it. Empty where there is none.
    pub(super) tool: ByteString,
}

impl Endpoint {
    pub(super) fn new(
        gateway: Arc<Gateway>,
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
        self.gateway.metrics.policy_denied.with_label_values(&[kind.member()]).inc();
        None
    }

    // === lists ===

    fn list_items(
        &self,
        caller: &Caller,
        kind: ItemKind,
        params: &JsonObject,
        with_tasks: bool,
    ) -> Result<Outcome, Error> {
        if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
            // Every list has one page, so no cursor was ever given out.
            return Err(Error::new(McpErrorKind::InvalidParams, "Invalid params: unknown cursor"));
        }
        let RenderedList { mut result, mut hint, .. } = self.rendered_list(caller, kind, with_tasks);
        if let Some(absence) = self.absence() {
            revision::explain_absence(&mut result, &absence);
            // The absence of a server may end at any time.
            hint.ttl_ms = 0;
        }
        // The shortest cache time of any server holds for the whole list.
        for upstream in self.generation.servers.iter().filter(|upstream| self.includes(&upstream.name)) {
            if let Some(fresh) = upstream.list_ttl(kind) {
                hint.ttl_ms = hint.ttl_ms.min(fresh);
            }
        }
        Ok(Outcome { result, cache_hint: Some(hint), task: None })
    }

    /// Explains why the one server of this endpoint never came up. An endpoint with several servers has other items to
    /// list, and the status shows them all.
    fn absence(&self) -> Option<String> {
        match &self.scope {
            EndpointScope::Server(only) => only.absence(),
            EndpointScope::All | EndpointScope::View(_) | EndpointScope::Union(_) => None,
        }
    }

    /// Renders a list, without the age of its parts.
    pub(super) fn rendered_list(&self, caller: &Caller, kind: ItemKind, with_tasks: bool) -> RenderedList {
        let key = (self.name.clone(), caller.principal.id, kind, with_tasks);
        // Without keys every caller sees the same list, so shared caches may hold it.
        let public = caller.principal.id == ANONYMOUS;
        let style = match &self.scope {
            EndpointScope::View(view) => view.schema.unwrap_or(self.generation.schema),
            _ => self.generation.schema,
        };
        let visible = |route: &CatalogRoute| {
            let plain = || {
                let plain = if self.keeps_local_names() { render_local(kind, route) } else { route.listed.clone() };
                let combined = route.combined.as_ref().filter(|_| style == SchemaStyle::Compatible);
                let compatible = combined.and_then(|combined| combined.compatible.as_ref());
                compatible.and_then(|schema| schemas::with_schema(&plain, schema)).unwrap_or(plain)
            };
            let listed = || match with_tasks && runs_as_task(&route.upstream) {
                true => {
                    let plain = plain();
                    revision::offer_as_task(&plain).unwrap_or(plain)
                }
                false => plain(),
            };
            self.permits(&caller.principal, kind, route).then(listed)
        };
        self.generation.snapshot.load().list(key, public, visible)
    }

    // === calls ===

    /// Resolves a call to its target, and names the item as its server does. A call that is refused stays as it was.
    pub(super) fn route(&self, caller: &Caller, call: &mut Call) -> Result<RoutedCall, Error> {
        let snapshot = self.generation.snapshot.load();
        match call.method {
            McpMethod::CallTool => self.resolve_named(&snapshot, caller, ItemKind::Tools, call),
            McpMethod::GetPrompt => self.resolve_named(&snapshot, caller, ItemKind::Prompts, call),
            McpMethod::ReadResource => self.resolve_resource(&snapshot, caller, call),
            McpMethod::Complete => self.resolve_completion(&snapshot, caller, call),
            McpMethod::Task(_) => self.route_task_call(caller, call),
            McpMethod::List(_) | McpMethod::Other(_) => {
                Err(Error::new(McpErrorKind::UnknownMethod, format!("Method not found: {}", call.method.name())))
            }
        }
    }

    fn resolve_named(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        kind: ItemKind,
        call: &mut Call,
    ) -> Result<RoutedCall, Error> {
        let wrong = || Error::new(McpErrorKind::InvalidParams, "Invalid params: name must be a string");
        let name = call.params.get_string("name").ok_or_else(wrong)?;
        let what = if kind == ItemKind::Tools { "tool" } else { "prompt" };
        let unknown = || Error::new(McpErrorKind::UnknownName, format!("Unknown {what}: {name}"));
        let route = self.lookup(snapshot, caller, kind, &name).ok_or_else(unknown)?;
        // The check needs the definition, which is known only now.
        if let Some(check) = call.deferred_check.take() {
            check(&route.definition, call.params.get("arguments"))?;
        }
        Self::check_task_mode(&route.upstream, call)?;
        check_resumable(&route.upstream, call)?;
        if route.local != name {
            call.params.set(ByteString::literal("name"), route.local_raw.clone());
        }
        call.definition = Some(route.definition.clone());
        let (upstream, meter, tool) = (route.upstream.clone(), route.meter.clone(), route.exposed.clone());
        Ok(RoutedCall { upstream, meter, tool })
    }

    fn resolve_resource(&self, snapshot: &Snapshot, caller: &Caller, call: &mut Call) -> Result<RoutedCall, Error> {
        let wrong = || Error::new(McpErrorKind::InvalidParams, "Invalid params: uri must be a string");
        let uri = call.params.get_string("uri").ok_or_else(wrong)?;
        let (upstream, local) = self.resolve_uri(snapshot, caller, &uri, &LookupBudget::new())?;
        check_resumable(&upstream, call)?;
        if local != uri {
            call.params.set(ByteString::literal("uri"), RawJson::string(&local));
        }
        let meter = self.method_meter(&McpMethod::ReadResource);
        Ok(RoutedCall { meter, upstream, tool: ByteString::literal("") })
    }

    /// Resolves `completion/complete`. The prompt or template that it refers to decides the server.
    fn resolve_completion(&self, snapshot: &Snapshot, caller: &Caller, call: &mut Call) -> Result<RoutedCall, Error> {
        let wrong =
            || Error::new(McpErrorKind::InvalidParams, "Invalid params: ref must name a prompt or a resource template");
        let mut reference = call.params.get_object("ref").ok_or_else(wrong)?;
        let is_prompt = reference.get_string("type").is_some_and(|t| t.as_str() == "ref/prompt");
        let (upstream, key, local) = if is_prompt {
            let name = reference.get_string("name").ok_or_else(wrong)?;
            let unknown = || Error::new(McpErrorKind::UnknownName, format!("Unknown prompt: {name}"));
            let route = self.lookup(snapshot, caller, ItemKind::Prompts, &name).ok_or_else(unknown)?;
            (route.upstream.clone(), "name", route.local.clone())
        } else {
            let uri = reference.get_string("uri").ok_or_else(wrong)?;
            let (upstream, local) = match self.lookup(snapshot, caller, ItemKind::Templates, &uri) {
                Some(route) => (route.upstream.clone(), route.local.clone()),
                None => self.resolve_uri(snapshot, caller, &uri, &LookupBudget::new())?,
            };
            (upstream, "uri", local)
        };
        check_resumable(&upstream, call)?;
        if reference.get_string(key).as_ref() != Some(&local) {
            reference.set(ByteString::literal(key), RawJson::string(&local));
            call.params.set(ByteString::literal("ref"), reference.to_raw());
        }
        Ok(RoutedCall { meter: self.method_meter(&McpMethod::Complete), upstream, tool: ByteString::literal("") })
    }

    pub(super) fn method_meter(&self, method: &McpMethod) -> Arc<CallMeter> {
        let meters = &self.gateway.method_meters;
        let meter = meters.get(method_label(method)).or_else(|| meters.get("_OTHER"));
        meter.cloned().expect("there is a meter for every method, and one for the others")
    }

    /// Starts a routed call and watches it: its time, its links.
    pub(super) fn start(&self, caller: &Arc<Caller>, routed: RoutedCall, call: Call) -> Exchange {
        let RoutedCall { upstream, meter, tool } = routed;
        let method = call.method.clone();
        // A single server's endpoint keeps that server's URIs, so its links need no rewriting.
        let links = (!self.keeps_local_names()).then(|| self.gateway.clone());
        let about_task = call.task_mode != TaskMode::Never || matches!(method, McpMethod::Task(_));
        let naming = about_task.then(|| self.task_naming(caller, &upstream));
        let watch = CallWatch::new(self, caller, &call, (meter, upstream.clone(), tool));
        let server = upstream.clone();
        let change = move |event| match event {
            ExchangeEvent::Done(mut end) => {
                if let (Ok(outcome), Some(gateway)) = (&mut end, &links) {
                    let budget = LookupBudget::new();
                    let exposed = |uri: &ByteString| gateway.exposed_uri(&server.name, uri, &budget);
                    rewrite_links::rewrite(&method, &mut outcome.result, &exposed);
                }
                if let (Ok(Outcome { task: Some(task), .. }), Some(naming)) = (&mut end, &naming) {
                    naming.expose_task(task);
                }
                ExchangeEvent::Done(end)
            }
            ExchangeEvent::InputRequired(ask) => {
                ExchangeEvent::InputRequired(InputRequired { server: Some(server.name.clone()), ..ask })
            }
            other => other,
        };
        let events = WatchedCall::new(upstream.begin_call(caller, call), watch, change);
        self.gateway.in_flight.track(caller.principal.id, &self.gateway.metrics, events)
    }

    /// Ends a call that never left the gateway.
    pub(super) fn answer_locally(&self, caller: &Caller, asked: UnsentCall, end: Result<Outcome, Error>) -> Exchange {
        asked.record(self, caller, &end);
        Exchange::ready(end)
    }

    // === events ===

    /// Translates an event for a subscriber on this endpoint. Returns `None` if it is of no concern there.
    pub(super) fn translate_event(&self, caller: &Arc<Caller>, happened: GatewayEvent) -> Option<Notification> {
        match happened {
            GatewayEvent::LogMessage(server, level, params) => {
                self.includes(&server).then_some(Notification::Log(level, params))
            }
            GatewayEvent::ElicitationCompleted(server, id, params) => {
                self.includes(&server).then_some(Notification::ElicitationComplete(id, params))
            }
            GatewayEvent::TaskChanged(server, mut task) => {
                let upstream = self.generation.servers.iter().find(|u| u.name == server && self.includes(&server))?;
                self.task_naming(caller, upstream).expose_task(&mut task);
                Some(Notification::TaskStatus(task))
            }
            // The subscriber compares its lists to find out whether a change is visible to it.
            GatewayEvent::ListChanged(..) | GatewayEvent::Reconfigured => None,
            GatewayEvent::FromDedicatedConnection(server, owner, notice) if owner.matches(caller) => match *notice {
                Notification::ResourceUpdated(uri, params) => {
                    self.translate_event(caller, GatewayEvent::ResourceUpdated(server, uri, params))
                }
                Notification::Log(level, params) => {
                    self.translate_event(caller, GatewayEvent::LogMessage(server, level, params))
                }
                Notification::ListChanged(kind) => self.includes(&server).then_some(Notification::ListChanged(kind)),
                _ => None,
            },
            GatewayEvent::FromDedicatedConnection(..) => None,
            GatewayEvent::ResourceUpdated(server, local, mut params) => {
                if !self.includes(&server) {
                    return None;
                }
                let exposed = || self.gateway.exposed_uri(&server, &local, &LookupBudget::new());
                let uri = if self.keeps_local_names() { None } else { exposed() };
                if let Some(uri) = &uri {
                    params.set(ByteString::literal("uri"), RawJson::string(uri));
                }
                Some(Notification::ResourceUpdated(uri.unwrap_or(local), params))
            }
        }
    }
}

/// Checks that a continuation goes to the server that issued its state. A name may have moved to another server between
/// two rounds.
pub(super) fn check_resumable(upstream: &ServerEntry, call: &Call) -> Result<(), Error> {
    let server = call.continuation.as_ref().and_then(|resume| resume.server.as_ref());
    match server {
        Some(server) if *server != upstream.name => {
            let message = "Invalid params: requestState is from a server that no longer answers to this name; call again without it";
            Err(Error::new(McpErrorKind::InvalidParams, message))
        }
        _ => Ok(()),
    }
}

/// Returns the server's name for models, with the title that the config gives it.
fn display_title(server: &ServerEntry) -> String {
    let name = &server.settings.name;
    match &server.settings.title {
        Some(title) if title != name => format!("{name} ({title})"),
        _ => name.clone(),
    }
}

/// Returns true if any tool of the server may become a task without declaring it.
fn runs_as_task(upstream: &Upstream) -> bool {
    upstream.description().and_then(|face| face.features.tasks).is_some_and(|tasks| tasks.any_tool)
}

/// Renders an item under its server's own key, with the config's description.
fn render_local(kind: ItemKind, route: &CatalogRoute) -> RawJson {
    let rules = match kind {
        ItemKind::Tools => &route.upstream.settings.tools,
        ItemKind::Prompts => &route.upstream.settings.prompts,
        ItemKind::Resources | ItemKind::Templates => &route.upstream.settings.resources,
    };
    expose::render_item(kind, &route.definition, &route.local, rules.describe.get(route.local.as_str()))
}

impl Server for Endpoint {
    fn describe(&self, _: &Caller) -> ServerDescription {
        let servers = || self.generation.servers.iter().filter(|u| self.includes(&u.settings.name));
        let faces: Vec<ServerDescription> = servers().filter_map(|upstream| upstream.description()).collect();
        // Clients read the capabilities once, and servers may come later: every kind is offered.
        let features = ServerCapabilities {
            tools: true,
            tools_changes: true,
            prompts: true,
            prompts_changes: true,
            resources: true,
            resources_changes: true,
            subscribe: true,
            subscribe_untried: false,
            completions: true,
            logging: true,
            tasks: self.task_features(),
            extensions: expose::merge_extensions(faces.iter().map(|face| &face.features.extensions)),
            experimental: expose::merge_extensions(faces.iter().map(|face| &face.features.experimental)),
        };
        let text = |upstream: &ServerEntry| {
            upstream.settings.description.clone().or_else(|| upstream.description().and_then(|face| face.instructions))
        };
        let instructions = match &self.scope {
            EndpointScope::Server(only) => expose::paragraphs(text(only), self.absence()),
            _ => expose::instructions(servers().map(|u| (display_title(u), text(u))), INSTRUCTIONS_MAX),
        };
        // Clients show a single server under the title and icon of its config.
        let info = match &self.scope {
            EndpointScope::Server(only) => {
                revision::implementation_as(only.settings.title.as_deref(), only.settings.icon.as_deref())
            }
            _ => revision::implementation(),
        };
        ServerDescription { info, instructions, features }
    }

    fn call(&self, caller: &Arc<Caller>, mut call: Call) -> Exchange {
        if let McpMethod::List(kind) = call.method {
            let listed = self.list_items(caller, kind, &call.params, call.task_mode != TaskMode::Never);
            return self.answer_locally(caller, UnsentCall::from_call(&call), listed);
        }
        if call.method == McpMethod::Task(TaskMethod::List) {
            let asked = UnsentCall::from_call(&call);
            let listed = self.list_tasks(caller, call);
            return listed.unwrap_or_else(|error| self.answer_locally(caller, asked, Err(error)));
        }
        match self.route(caller, &mut call) {
            Ok(routed) => self.start(caller, routed, call),
            Err(error) => self.call_unlisted(caller, call, error),
        }
    }

    fn subscribe(&self, caller: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
        // Events are subscribed to before resources, so nothing is missed in between. A change of the rules is not
        // missed either: it is in the current generation, or comes as an event.
        let receiver = self.gateway.events.subscribe_events();
        let Some(view) = self.gateway.endpoint(&self.name, &caller.principal) else {
            return NotificationStream::closed();
        };
        let (listening, mut honoured) =
            ClientSubscription::new(view.clone_endpoint(), caller, filter.clone(), receiver);
        let stream = stream::unfold(listening, |mut listening| async move {
            listening.next().await.map(|notice| (notice, listening))
        });
        if filter.tasks.is_empty() {
            return NotificationStream { acknowledged: honoured, stream: stream.boxed(), established: None };
        }
        let (tasks, watches) = self.watch_tasks(caller, &filter.tasks);
        honoured.tasks = tasks;
        // The end of all tasks must not end the stream.
        let watched = stream::select_all(watches.into_iter().map(Box::pin)).chain(stream::pending());
        let heard = stream::select(stream.map(Some).chain(stream::once(std::future::ready(None))), watched.map(Some));
        let heard = heard.take_while(|heard| std::future::ready(heard.is_some())).filter_map(std::future::ready);
        NotificationStream { acknowledged: honoured, stream: heard.boxed(), established: None }
    }

    fn try_subscriptions(
        &self,
        caller: &Arc<Caller>,
        uris: &[ByteString],
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        self.find_out_subscriptions(caller, uris)
    }

    fn notify(&self, caller: &Arc<Caller>, notice: Notification) {
        for upstream in self.generation.servers.iter().filter(|u| self.includes(&u.settings.name)) {
            upstream.notify(caller, notice.clone());
        }
    }
}
