//! One endpoint: everything, a view, or a single server with its own names.
//!
//! Owns the path of a call: resolve, check, start, restore. Invariant: a name that may not be used gives the same
//! answer as one that does not exist.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};

use crate::gateway::catalog::{Listed, Route, name_of};
use crate::gateway::generation::{Generation, Member};
use crate::gateway::hub::Happened;
use crate::gateway::listening::Listening;
use crate::gateway::templates::LookupBudget;
use crate::gateway::union::Union;
use crate::gateway::watched::{Asked, CallWatch, WatchedCall};
use crate::gateway::{Gateway, SchemaStyle, Snapshot, ViewRules, links, merge, schemas, unrouted_label};
use crate::json::{Object, Raw, Text};
use crate::model::{
    Ask, Call, Caller, Error, Event, Exchange, Face, Features, Filter, Kind, Method, Notice, Notices, Outcome,
    Principal, Reason, Server, TaskMethod, TaskWish,
};
use crate::policy::ANYBODY;
use crate::revision;
use crate::telemetry::Meter;
use crate::upstream::Upstream;

/// Longest instructions; clients cut at about this.
const INSTRUCTIONS_MAX: usize = 2048;

/// What an endpoint is over.
#[derive(Clone)]
pub(super) enum Scope {
    All,
    Server(Arc<Member>),
    View(Arc<ViewRules>),
    Union(Arc<Union>),
}

/// An endpoint, as a server.
pub struct View {
    pub(super) gateway: Arc<Gateway>,
    /// The servers and the rules that it is made of.
    pub(super) now: Arc<Generation>,
    pub(super) scope: Scope,
    pub(super) name: Text,
}

/// Where a call goes.
pub(super) struct Routed {
    pub(super) upstream: Arc<Member>,
    pub(super) meter: Arc<Meter>,
    /// The tool or prompt, as clients see it; empty where there is none.
    pub(super) tool: Text,
    pub(super) call: Call,
}

/// A call that has no way.
pub(super) struct Refused {
    pub(super) error: Error,
    /// The call, where its name is unknown.
    pub(super) call: Option<Box<Call>>,
    pub(super) asked: Asked,
}

impl View {
    pub(super) fn new(gateway: Arc<Gateway>, now: Arc<Generation>, scope: Scope, name: Text) -> Self {
        View { gateway, now, scope, name }
    }

    /// Another hold on the same endpoint.
    pub(super) fn again(&self) -> View {
        let View { gateway, now, scope, name } = self;
        View { gateway: gateway.clone(), now: now.clone(), scope: scope.clone(), name: name.clone() }
    }

    /// Whether items keep their servers' own names here.
    pub(super) fn is_raw(&self) -> bool {
        matches!(self.scope, Scope::Server(_))
    }

    pub(super) fn includes(&self, server: &str) -> bool {
        match &self.scope {
            Scope::All => true,
            Scope::Server(only) => only.settings.name == server,
            Scope::View(view) => view.includes(server),
            Scope::Union(union) => union.includes(server),
        }
    }

    /// Whether this caller may see and use an item through this endpoint.
    pub(super) fn permits(&self, principal: &Principal, kind: Kind, route: &Route) -> bool {
        if !self.includes(&route.upstream.settings.name) {
            return false;
        }
        if kind != Kind::Tools {
            return true;
        }
        let viewed = match &self.scope {
            Scope::View(view) => view.tools.matches(&route.exposed),
            Scope::Union(union) => union.has_tool(&route.upstream.settings.name, &route.exposed),
            Scope::All | Scope::Server(_) => true,
        };
        viewed && self.now.access.tool(principal, &route.exposed)
    }

    /// The item that a client names, if it exists and may be used.
    pub(super) fn find(&self, snapshot: &Snapshot, caller: &Caller, kind: Kind, key: &Text) -> Option<Arc<Route>> {
        let route = match &self.scope {
            Scope::Server(upstream) => snapshot.find_local(kind, &name_of(upstream), key),
            _ => snapshot.find(kind, key),
        };
        let route = route?;
        if self.permits(&caller.principal, kind, route) {
            return Some(route.clone());
        }
        self.gateway.metrics.policy_denied.with_label_values(&[kind.member()]).inc();
        None
    }

    // === lists ===

    fn list(&self, caller: &Caller, kind: Kind, params: &Object, with_tasks: bool) -> Result<Outcome, Error> {
        if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
            // Everything is on the first page, so that no cursor was ever given out.
            return Err(Error::new(Reason::InvalidParams, "Invalid params: unknown cursor"));
        }
        let Listed { mut result, mut hint, .. } = self.listed(caller, kind, with_tasks);
        if let Some(absence) = self.absence() {
            revision::explain_absence(&mut result, &absence);
            // It may be over at any time.
            hint.ttl_ms = 0;
        }
        for upstream in self.now.servers.iter().filter(|upstream| self.includes(&upstream.name)) {
            if let Some(fresh) = upstream.fresh_for(kind) {
                hint.ttl_ms = hint.ttl_ms.min(fresh);
            }
        }
        Ok(Outcome { result, cache: Some(hint), task: None })
    }

    /// Explains why the one server of this endpoint never came up. Where there are several, a list is not empty for that
    /// reason, and the status has them all.
    fn absence(&self) -> Option<String> {
        match &self.scope {
            Scope::Server(only) => only.absence(),
            Scope::All | Scope::View(_) | Scope::Union(_) => None,
        }
    }

    /// What a list holds, without the age of its parts.
    pub(super) fn listed(&self, caller: &Caller, kind: Kind, with_tasks: bool) -> Listed {
        let key = (self.name.clone(), caller.principal.id, kind, with_tasks);
        let public = caller.principal.id == ANYBODY;
        let style = match &self.scope {
            Scope::View(view) => view.schema.unwrap_or(self.now.schema),
            _ => self.now.schema,
        };
        let visible = |route: &Route| {
            let plain = || {
                let plain = if self.is_raw() { merge_raw(kind, route) } else { route.listed.clone() };
                let combined = route.combined.as_ref().filter(|_| style == SchemaStyle::Compatible);
                let compatible = combined.and_then(|combined| combined.compatible.as_ref());
                compatible.and_then(|schema| schemas::with_schema(&plain, schema)).unwrap_or(plain)
            };
            let listed = || match with_tasks && runs_as_task(&route.upstream) {
                true => {
                    let plain = plain();
                    revision::offered_as_task(&plain).unwrap_or(plain)
                }
                false => plain(),
            };
            self.permits(&caller.principal, kind, route).then(listed)
        };
        self.now.snapshot.load().list(key, public, visible)
    }

    // === calls ===

    /// The way of a call, or the call itself where its name is unknown.
    pub(super) fn route(&self, caller: &Caller, call: Call, asked: Asked) -> Result<Routed, Box<Refused>> {
        let mut unknown = None;
        let resolved = self.resolve(caller, call, &mut unknown).and_then(resumable);
        resolved.map_err(|error| Box::new(Refused { error, call: unknown, asked }))
    }

    fn resolve(&self, caller: &Caller, call: Call, unknown: &mut Option<Box<Call>>) -> Result<Routed, Error> {
        let snapshot = self.now.snapshot.load();
        match call.method {
            Method::CallTool => self.named(&snapshot, caller, Kind::Tools, call, unknown),
            Method::GetPrompt => self.named(&snapshot, caller, Kind::Prompts, call, unknown),
            Method::ReadResource => self.resource(&snapshot, caller, call),
            Method::Complete => self.completion(&snapshot, caller, call),
            Method::Task(_) => self.task(caller, call),
            Method::List(_) | Method::Other(_) => {
                Err(Error::new(Reason::UnknownMethod, format!("Method not found: {}", call.method.name())))
            }
        }
    }

    fn named(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        kind: Kind,
        mut call: Call,
        unknown: &mut Option<Box<Call>>,
    ) -> Result<Routed, Error> {
        let wrong = || Error::new(Reason::InvalidParams, "Invalid params: name must be a string");
        let name = call.params.text("name").ok_or_else(wrong)?;
        let what = if kind == Kind::Tools { "tool" } else { "prompt" };
        let Some(route) = self.find(snapshot, caller, kind, &name) else {
            *unknown = Some(Box::new(call));
            return Err(Error::new(Reason::UnknownName, format!("Unknown {what}: {name}")));
        };
        if let Some(check) = call.check.take() {
            check(&route.definition, call.params.get("arguments"))?;
        }
        if route.local != name {
            call.params.set(Text::literal("name"), route.local_raw.clone());
        }
        Self::check_wish(&route.upstream, &call)?;
        call.definition = Some(route.definition.clone());
        let (upstream, meter, tool) = (route.upstream.clone(), route.meter.clone(), route.exposed.clone());
        Ok(Routed { upstream, meter, tool, call })
    }

    fn resource(&self, snapshot: &Snapshot, caller: &Caller, mut call: Call) -> Result<Routed, Error> {
        let wrong = || Error::new(Reason::InvalidParams, "Invalid params: uri must be a string");
        let uri = call.params.text("uri").ok_or_else(wrong)?;
        let (upstream, local) = self.locate(snapshot, caller, &uri, &LookupBudget::new())?;
        if local != uri {
            call.params.set(Text::literal("uri"), Raw::string(&local));
        }
        Ok(Routed { meter: self.unrouted(&Method::ReadResource), upstream, tool: Text::literal(""), call })
    }

    /// `completion/complete`: the prompt or template that it is for says whose it is.
    fn completion(&self, snapshot: &Snapshot, caller: &Caller, mut call: Call) -> Result<Routed, Error> {
        let wrong =
            || Error::new(Reason::InvalidParams, "Invalid params: ref must name a prompt or a resource template");
        let mut reference = call.params.object("ref").ok_or_else(wrong)?;
        let is_prompt = reference.text("type").is_some_and(|t| t.as_str() == "ref/prompt");
        let (upstream, key, local) = if is_prompt {
            let name = reference.text("name").ok_or_else(wrong)?;
            let unknown = || Error::new(Reason::UnknownName, format!("Unknown prompt: {name}"));
            let route = self.find(snapshot, caller, Kind::Prompts, &name).ok_or_else(unknown)?;
            (route.upstream.clone(), "name", route.local.clone())
        } else {
            let uri = reference.text("uri").ok_or_else(wrong)?;
            let (upstream, local) = match self.find(snapshot, caller, Kind::Templates, &uri) {
                Some(route) => (route.upstream.clone(), route.local.clone()),
                None => self.locate(snapshot, caller, &uri, &LookupBudget::new())?,
            };
            (upstream, "uri", local)
        };
        if reference.text(key).as_ref() != Some(&local) {
            reference.set(Text::literal(key), Raw::string(&local));
            call.params.set(Text::literal("ref"), reference.raw());
        }
        Ok(Routed { meter: self.unrouted(&Method::Complete), upstream, tool: Text::literal(""), call })
    }

    pub(super) fn unrouted(&self, method: &Method) -> Arc<Meter> {
        let meters = &self.gateway.unrouted;
        let meter = meters.get(unrouted_label(method)).or_else(|| meters.get("_OTHER"));
        meter.cloned().expect("there is a meter for every method, and one for the others")
    }

    /// Starts a routed call and watches it: its time, its links.
    pub(super) fn run(&self, caller: &Arc<Caller>, routed: Routed) -> Exchange {
        let Routed { upstream, meter, tool, call } = routed;
        let method = call.method.clone();
        let links = (!self.is_raw()).then(|| (self.gateway.clone(), name_of(&upstream)));
        let about_task = call.task != TaskWish::Never || matches!(method, Method::Task(_));
        let naming = about_task.then(|| self.naming(caller, &upstream));
        let name = upstream.name.clone();
        let watch = CallWatch::new(self, caller, &call, (meter, name.clone(), tool));
        let change = move |event| match event {
            Event::Done(mut end) => {
                if let (Ok(outcome), Some((gateway, server))) = (&mut end, &links) {
                    let budget = LookupBudget::new();
                    let exposed = |uri: &Text| gateway.exposed_uri(server, uri, &budget);
                    links::rewrite(&method, &mut outcome.result, &exposed);
                }
                if let (Ok(Outcome { task: Some(task), .. }), Some(naming)) = (&mut end, &naming) {
                    naming.restore(task);
                }
                Event::Done(end)
            }
            Event::Ask(ask) => Event::Ask(Ask { server: Some(name.clone()), ..ask }),
            other => other,
        };
        let events = WatchedCall::new(upstream.begin_call(caller, call), watch, change);
        self.gateway.inflight.enter(caller.principal.id, &self.gateway.metrics, events)
    }

    /// Ends a call that never left the gateway.
    pub(super) fn answer(&self, caller: &Caller, asked: Asked, end: Result<Outcome, Error>) -> Exchange {
        asked.record(self, caller, &end);
        Exchange::done(end)
    }

    // === news ===

    /// What a listener on this endpoint hears of something that happened.
    pub(super) fn heard(&self, caller: &Arc<Caller>, happened: Happened) -> Option<Notice> {
        match happened {
            Happened::Logged(server, level, params) => self.includes(&server).then_some(Notice::Log(level, params)),
            Happened::Elicited(server, id, params) => self.includes(&server).then_some(Notice::Elicited(id, params)),
            Happened::Task(server, mut task) => {
                let upstream = self.now.servers.iter().find(|u| u.name == server && self.includes(&server))?;
                self.naming(caller, upstream).restore(&mut task);
                Some(Notice::Task(task))
            }
            // The listener finds out whether it is shown what changed.
            Happened::Changed(..) | Happened::Reloaded => None,
            Happened::Own(server, owner, notice) if owner.is(caller) => match *notice {
                Notice::Updated(uri, params) => self.heard(caller, Happened::Updated(server, uri, params)),
                Notice::Log(level, params) => self.heard(caller, Happened::Logged(server, level, params)),
                Notice::Changed(kind) => self.includes(&server).then_some(Notice::Changed(kind)),
                _ => None,
            },
            Happened::Own(..) => None,
            Happened::Updated(server, local, mut params) => {
                if !self.includes(&server) {
                    return None;
                }
                let exposed = || self.gateway.exposed_uri(&server, &local, &LookupBudget::new());
                let uri = if self.is_raw() { None } else { exposed() };
                if let Some(uri) = &uri {
                    params.set(Text::literal("uri"), Raw::string(uri));
                }
                Some(Notice::Updated(uri.unwrap_or(local), params))
            }
        }
    }
}

/// What one server handed out is for no other: a name may have moved to another one between two rounds.
fn resumable(routed: Routed) -> Result<Routed, Error> {
    let server = routed.call.resume.as_ref().and_then(|resume| resume.server.as_ref());
    match server {
        Some(server) if *server != routed.upstream.name => {
            let message = "Invalid params: requestState is from a server that no longer answers to this name; call again without it";
            Err(Error::new(Reason::InvalidParams, message))
        }
        _ => Ok(routed),
    }
}

/// A server's name for models, with the title that the config gives it.
fn titled(server: &Member) -> String {
    let name = &server.settings.name;
    match &server.settings.title {
        Some(title) if title != name => format!("{name} ({title})"),
        _ => name.clone(),
    }
}

/// Whether any tool of the server may become a task, although none says so.
fn runs_as_task(upstream: &Upstream) -> bool {
    upstream.face().and_then(|face| face.features.tasks).is_some_and(|tasks| tasks.any_tool)
}

/// An item under its server's own key, but with the config's description.
fn merge_raw(kind: Kind, route: &Route) -> Raw {
    let rules = match kind {
        Kind::Tools => &route.upstream.settings.tools,
        Kind::Prompts => &route.upstream.settings.prompts,
        Kind::Resources | Kind::Templates => &route.upstream.settings.resources,
    };
    merge::dress(kind, &route.definition, &route.local, rules.describe.get(route.local.as_str()))
}

impl Server for View {
    fn describe(&self, _: &Caller) -> Face {
        let servers = || self.now.servers.iter().filter(|u| self.includes(&u.settings.name));
        let faces: Vec<Face> = servers().filter_map(|upstream| upstream.face()).collect();
        let features = Features {
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
            extensions: merge::announced(faces.iter().map(|face| &face.features.extensions)),
            experimental: merge::announced(faces.iter().map(|face| &face.features.experimental)),
        };
        let text = |upstream: &Member| {
            upstream.settings.description.clone().or_else(|| upstream.face().and_then(|face| face.instructions))
        };
        let instructions = match &self.scope {
            Scope::Server(only) => merge::paragraphs(text(only), self.absence()),
            _ => merge::instructions(servers().map(|u| (titled(u), text(u))), INSTRUCTIONS_MAX),
        };
        let info = match &self.scope {
            Scope::Server(only) => {
                revision::implementation_as(only.settings.title.as_deref(), only.settings.icon.as_deref())
            }
            _ => revision::implementation(),
        };
        Face { info, instructions, features }
    }

    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        let asked = Asked::of(&call);
        if let Method::List(kind) = call.method {
            let listed = self.list(caller, kind, &call.params, call.task != TaskWish::Never);
            return self.answer(caller, asked, listed);
        }
        if call.method == Method::Task(TaskMethod::List) {
            let listed = self.list_tasks(caller, call);
            return listed.unwrap_or_else(|error| self.answer(caller, asked, Err(error)));
        }
        match self.route(caller, call, asked) {
            Ok(routed) => self.run(caller, routed),
            Err(refused) => self.call_unknown(caller, refused),
        }
    }

    fn listen(&self, caller: &Arc<Caller>, filter: Filter) -> Notices {
        // First listen, then subscribe: nothing is missed in between. Nor is a change of the rules: either it is in what
        // holds now, or it is heard of.
        let receiver = self.gateway.hub.listen();
        let Some(view) = self.gateway.view(&self.name, &caller.principal) else { return Notices::over() };
        let (listening, mut honoured) = Listening::new(view.again(), caller, filter.clone(), receiver);
        let stream = stream::unfold(listening, |mut listening| async move {
            listening.next().await.map(|notice| (notice, listening))
        });
        if filter.tasks.is_empty() {
            return Notices { honoured, stream: stream.boxed(), opened: None };
        }
        let (tasks, watches) = self.watch(caller, &filter.tasks);
        honoured.tasks = tasks;
        // The end of all tasks is not the end of the listening.
        let watched = stream::select_all(watches.into_iter().map(Box::pin)).chain(stream::pending());
        let heard = stream::select(stream.map(Some).chain(stream::once(std::future::ready(None))), watched.map(Some));
        let heard = heard.take_while(|heard| std::future::ready(heard.is_some())).filter_map(std::future::ready);
        Notices { honoured, stream: heard.boxed(), opened: None }
    }

    fn try_subscriptions(&self, caller: &Arc<Caller>, uris: &[Text]) -> Option<BoxFuture<'static, Result<(), Error>>> {
        self.find_out_subscriptions(caller, uris)
    }

    fn tell(&self, caller: &Arc<Caller>, notice: Notice) {
        for upstream in self.now.servers.iter().filter(|u| self.includes(&u.settings.name)) {
            upstream.tell(caller, notice.clone());
        }
    }
}
