//! One endpoint: everything, a view, or a single server with its own names.
//!
//! Owns the path of a call: resolve, check, start, restore. Invariant: a name that may not be used gives the same
//! answer as one that does not exist.

use std::sync::Arc;

use futures_util::{StreamExt, stream};

use crate::gateway::catalog::{Listed, Route, name_of};
use crate::gateway::generation::{Generation, Member};
use crate::gateway::hub::Happened;
use crate::gateway::listening::Listening;
use crate::gateway::union::Union;
use crate::gateway::watched::{Asked, CallWatch, WatchedCall};
use crate::gateway::{Gateway, Snapshot, ViewRules, links, merge, unrouted_label, uris};
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
    fn find(&self, snapshot: &Snapshot, caller: &Caller, kind: Kind, key: &Text) -> Option<Arc<Route>> {
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
        let Listed { result, mut hint, .. } = self.listed(caller, kind, with_tasks);
        for upstream in self.now.servers.iter().filter(|upstream| self.includes(&upstream.name)) {
            if let Some(fresh) = upstream.fresh_for(kind) {
                hint.ttl_ms = hint.ttl_ms.min(fresh);
            }
        }
        Ok(Outcome { result, cache: Some(hint), task: None })
    }

    /// What a list holds, without the age of its parts.
    pub(super) fn listed(&self, caller: &Caller, kind: Kind, with_tasks: bool) -> Listed {
        let key = (self.name.clone(), caller.principal.id, kind, with_tasks);
        let public = caller.principal.id == ANYBODY;
        let visible = |route: &Route| {
            let plain = || if self.is_raw() { merge_raw(kind, route) } else { route.listed.clone() };
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

    fn resolve(&self, caller: &Caller, call: Call) -> Result<Routed, Error> {
        let snapshot = self.now.snapshot.load();
        match call.method {
            Method::CallTool => self.named(&snapshot, caller, Kind::Tools, call),
            Method::GetPrompt => self.named(&snapshot, caller, Kind::Prompts, call),
            Method::ReadResource => self.resource(&snapshot, caller, call),
            Method::Complete => self.completion(&snapshot, caller, call),
            Method::Task(_) => self.task(caller, call),
            Method::List(_) | Method::Other(_) => {
                Err(Error::new(Reason::UnknownMethod, format!("Method not found: {}", call.method.name())))
            }
        }
    }

    fn named(&self, snapshot: &Snapshot, caller: &Caller, kind: Kind, mut call: Call) -> Result<Routed, Error> {
        let wrong = || Error::new(Reason::InvalidParams, "Invalid params: name must be a string");
        let name = call.params.text("name").ok_or_else(wrong)?;
        let what = if kind == Kind::Tools { "tool" } else { "prompt" };
        let unknown = || Error::new(Reason::UnknownName, format!("Unknown {what}: {name}"));
        let route = self.find(snapshot, caller, kind, &name).ok_or_else(unknown)?;
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
        let (upstream, local) = self.locate(snapshot, caller, &uri)?;
        if local != uri {
            call.params.set(Text::literal("uri"), Raw::string(&local));
        }
        Ok(Routed { meter: self.unrouted(&Method::ReadResource), upstream, tool: Text::literal(""), call })
    }

    /// Whose a URI is, and what that server calls it.
    pub(super) fn locate(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        uri: &Text,
    ) -> Result<(Arc<Member>, Text), Error> {
        let listed = || self.find(snapshot, caller, Kind::Resources, uri);
        self.place(snapshot, uri, listed, true).ok_or_else(|| not_found(uri))
    }

    /// The same for whoever does not ask for it now: without a guess, since where nothing tells whose it is, it is nobody's.
    pub(super) fn known_place(&self, snapshot: &Snapshot, caller: &Caller, uri: &Text) -> Option<(Arc<Member>, Text)> {
        let permitted = |route: &&Arc<Route>| self.permits(&caller.principal, Kind::Resources, route);
        let listed = || snapshot.find(Kind::Resources, uri).filter(permitted).cloned();
        self.place(snapshot, uri, listed, false)
    }

    fn place(
        &self,
        snapshot: &Snapshot,
        uri: &Text,
        listed: impl FnOnce() -> Option<Arc<Route>>,
        guess: bool,
    ) -> Option<(Arc<Member>, Text)> {
        if let Scope::Server(upstream) = &self.scope {
            return upstream.settings.resources.exists(uri).then(|| (upstream.clone(), uri.clone()));
        }
        if let Some(route) = listed() {
            return Some((route.upstream.clone(), route.local.clone()));
        }
        let only = || Some((self.only_server(snapshot).filter(|_| guess)?, uri.clone()));
        let (server, local) = self.unlisted(snapshot, uri).or_else(only)?;
        Some((self.member(&server, &local)?, local))
    }

    /// Whose a URI in no list is, by what it says itself, by templates, and by what was learned.
    fn unlisted(&self, snapshot: &Snapshot, uri: &Text) -> Option<(String, Text)> {
        if let Some((server, local)) = uris::unwrap(uri) {
            return Some((server.to_owned(), Text::from(&*local)));
        }
        let by_template = snapshot.find_template(uri, None).map(|route| route.upstream.settings.name.clone());
        let server = by_template.or_else(|| self.gateway.learned.find(uri).map(|t| t.to_string()))?;
        Some((server, uri.clone()))
    }

    /// The server of this name, if it is here and may have the resource.
    pub(super) fn member(&self, server: &str, local: &Text) -> Option<Arc<Member>> {
        let member = self.now.servers.iter().find(|u| u.settings.name == server && self.includes(server));
        member.filter(|u| u.settings.resources.exists(local)).cloned()
    }

    /// The server that a URI in no list must belong to, because no other has resources here.
    fn only_server(&self, snapshot: &Snapshot) -> Option<String> {
        let routes = snapshot.iter(Kind::Resources).chain(snapshot.iter(Kind::Templates));
        let listed = routes.filter(|route| !route.implied);
        let mut names = listed.map(|r| r.upstream.settings.name.as_str()).filter(|name| self.includes(name));
        let first = names.next()?;
        names.all(|name| name == first).then(|| first.to_owned())
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
                None => self.locate(snapshot, caller, &uri)?,
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
    fn run(&self, caller: &Arc<Caller>, routed: Routed) -> Exchange {
        let Routed { upstream, meter, tool, call } = routed;
        let method = call.method.clone();
        let inflight = self.gateway.inflight.enter(caller.principal.id, &self.gateway.metrics);
        let links = (!self.is_raw()).then(|| (self.gateway.clone(), name_of(&upstream)));
        let about_task = call.task != TaskWish::Never || matches!(method, Method::Task(_));
        let naming = about_task.then(|| self.naming(caller, &upstream));
        let name = upstream.name.clone();
        let watch = CallWatch::new(self, caller, &call, (meter, name.clone(), tool));
        let change = move |event| {
            let _counted = &inflight;
            match event {
                Event::Done(mut end) => {
                    if let (Ok(outcome), Some((gateway, server))) = (&mut end, &links) {
                        links::rewrite(&method, &mut outcome.result, &|uri| gateway.exposed_uri(server, uri));
                    }
                    if let (Ok(Outcome { task: Some(task), .. }), Some(naming)) = (&mut end, &naming) {
                        naming.restore(task);
                    }
                    Event::Done(end)
                }
                Event::Ask(ask) => Event::Ask(Ask { server: Some(name.clone()), ..ask }),
                other => other,
            }
        };
        Exchange::new(WatchedCall::new(upstream.begin_call(caller, call), watch, change))
    }

    /// Ends a call that never left the gateway.
    fn answer(&self, caller: &Caller, asked: Asked, end: Result<Outcome, Error>) -> Exchange {
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
                let uri = if self.is_raw() { None } else { self.gateway.exposed_uri(&server, &local) };
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

fn not_found(uri: &Text) -> Error {
    let data = Object::new().with("uri", Raw::string(uri));
    Error::new(Reason::UnknownResource, format!("Resource not found: {uri}")).with_data(data.raw())
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

impl Gateway {
    /// The exposed form of a server's own URI, if it differs; learns what stands in no list.
    pub(super) fn exposed_uri(&self, server: &Text, uri: &Text) -> Option<Text> {
        let snapshot = self.snapshot();
        if let Some(route) = snapshot.find_local(Kind::Resources, server, uri) {
            return (route.exposed != *uri).then(|| route.exposed.clone());
        }
        let template = snapshot.find_template(uri, None);
        let theirs = snapshot.find(Kind::Resources, uri).is_some()
            || template.is_some_and(|route| route.upstream.settings.name != server.as_str())
            || uris::looks_wrapped(uri);
        let plain = !theirs && (template.is_some() || self.learned.learn(uri, server));
        (!plain).then(|| Text::from(uris::wrap(server, uri)))
    }
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
            Scope::Server(upstream) => text(upstream),
            _ => merge::instructions(servers().map(|u| (u.settings.name.as_str(), text(u))), INSTRUCTIONS_MAX),
        };
        Face { info: revision::implementation(), instructions, features }
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
        match self.resolve(caller, call).and_then(resumable) {
            Ok(routed) => self.run(caller, routed),
            Err(error) => self.answer(caller, asked, Err(error)),
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

    fn tell(&self, caller: &Arc<Caller>, notice: Notice) {
        for upstream in self.now.servers.iter().filter(|u| self.includes(&u.settings.name)) {
            upstream.tell(caller, notice.clone());
        }
    }
}
