//! One endpoint: everything, a view, or a single server with its own names.
//!
//! Owns the path of a call: resolve, check, start, restore. Invariant: a name that may not be used gives the same
//! answer as one that does not exist.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::gateway::catalog::{Listed, Route, name_of};
use crate::gateway::generation::{Generation, Member};
use crate::gateway::hub::{Happened, Subscription, URI_MAX};
use crate::gateway::{Gateway, Snapshot, ViewRules, links, merge, unrouted_label, uris};
use crate::json::{Object, Raw, Text};
use crate::model::{
    Ask, Call, Caller, Error, Event, Exchange, Face, Features, Filter, Kind, Method, Notice, Notices, Outcome,
    Principal, Reason, Server, TaskMethod, TaskWish,
};
use crate::policy::ANYBODY;
use crate::revision;
use crate::telemetry::Meter;
use crate::upstream::{Ear, Upstream};

/// Longest instructions; clients cut at about this.
const INSTRUCTIONS_MAX: usize = 2048;

/// What an endpoint is over.
#[derive(Clone)]
pub(super) enum Scope {
    All,
    Server(Arc<Member>),
    View(Arc<ViewRules>),
}

/// An endpoint, as a server.
pub struct View {
    pub(super) gateway: Arc<Gateway>,
    /// The servers and the rules that it is made of.
    pub(super) now: Arc<Generation>,
    pub(super) scope: Scope,
    name: Text,
}

/// Where a call goes.
pub(super) struct Routed {
    pub(super) upstream: Arc<Member>,
    pub(super) meter: Arc<Meter>,
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
            Scope::View(view) => view.servers.as_ref().is_none_or(|names| names.iter().any(|n| n == server)),
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
            _ => true,
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
    fn listed(&self, caller: &Caller, kind: Kind, with_tasks: bool) -> Listed {
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
        Ok(Routed { upstream: route.upstream.clone(), meter: route.meter.clone(), call })
    }

    fn resource(&self, snapshot: &Snapshot, caller: &Caller, mut call: Call) -> Result<Routed, Error> {
        let wrong = || Error::new(Reason::InvalidParams, "Invalid params: uri must be a string");
        let uri = call.params.text("uri").ok_or_else(wrong)?;
        let (upstream, local) = self.locate(snapshot, caller, &uri)?;
        if local != uri {
            call.params.set(Text::literal("uri"), Raw::string(&local));
        }
        Ok(Routed { meter: self.unrouted(&Method::ReadResource), upstream, call })
    }

    /// Whose a URI is, and what that server calls it.
    fn locate(&self, snapshot: &Snapshot, caller: &Caller, uri: &Text) -> Result<(Arc<Member>, Text), Error> {
        if let Scope::Server(upstream) = &self.scope {
            let exists = upstream.settings.resources.exists(uri);
            return if exists { Ok((upstream.clone(), uri.clone())) } else { Err(not_found(uri)) };
        }
        if let Some(route) = self.find(snapshot, caller, Kind::Resources, uri) {
            return Ok((route.upstream.clone(), route.local.clone()));
        }
        let unknown = || not_found(uri);
        let (server, local) = match uris::unwrap(uri) {
            Some((server, local)) => (server.to_owned(), Text::from(&*local)),
            None => {
                let by_template = snapshot.find_template(uri, None).map(|route| route.upstream.settings.name.clone());
                let known = by_template.or_else(|| self.gateway.learned.find(uri).map(|t| t.to_string()));
                (known.or_else(|| self.only_server(snapshot)).ok_or_else(unknown)?, uri.clone())
            }
        };
        let upstream = self.now.servers.iter().find(|u| u.settings.name == server && self.includes(&server));
        let upstream = upstream.filter(|u| u.settings.resources.exists(&local)).ok_or_else(unknown)?;
        Ok((upstream.clone(), local))
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
        Ok(Routed { meter: self.unrouted(&Method::Complete), upstream, call })
    }

    pub(super) fn unrouted(&self, method: &Method) -> Arc<Meter> {
        let meters = &self.gateway.unrouted;
        let meter = meters.get(unrouted_label(method)).or_else(|| meters.get("_OTHER"));
        meter.cloned().expect("there is a meter for every method, and one for the others")
    }

    /// Starts a routed call and watches it: its time, its links.
    fn run(&self, caller: &Arc<Caller>, routed: Routed) -> Exchange {
        let Routed { upstream, meter, call } = routed;
        let (method, received, revision) = (call.method.clone(), call.received, caller.revision);
        let inflight = self.gateway.inflight.enter(caller.principal.id, &self.gateway.metrics);
        let links = (!self.is_raw()).then(|| (self.gateway.clone(), name_of(&upstream)));
        let about_task = call.task != TaskWish::Never || matches!(method, Method::Task(_));
        let naming = about_task.then(|| self.naming(caller, &upstream));
        let sent = Instant::now();
        let name = upstream.name.clone();
        upstream.call(caller, call).map(move |event| {
            let _counted = &inflight;
            match event {
                Event::Done(mut end) => {
                    let now = Instant::now();
                    let error = end.as_ref().err().map(Error::label);
                    meter.record(revision, error, now - received, Some(now - sent));
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
        })
    }

    /// Ends a call that never left the gateway.
    fn answer(&self, caller: &Caller, method: &Method, received: Instant, end: Result<Outcome, Error>) -> Exchange {
        let error = end.as_ref().err().map(Error::label);
        self.unrouted(method).record(caller.revision, error, received.elapsed(), None);
        Exchange::done(end)
    }

    // === news ===

    /// What a listener on this endpoint hears of something that happened.
    fn heard(&self, caller: &Arc<Caller>, happened: Happened) -> Option<Notice> {
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
        let (method, received) = (call.method.clone(), call.received);
        if let Method::List(kind) = method {
            return self.answer(
                caller,
                &method,
                received,
                self.list(caller, kind, &call.params, call.task != TaskWish::Never),
            );
        }
        if method == Method::Task(TaskMethod::List) {
            let listed = self.list_tasks(caller, call);
            return listed.unwrap_or_else(|error| self.answer(caller, &method, received, Err(error)));
        }
        match self.resolve(caller, call).and_then(resumable) {
            Ok(routed) => self.run(caller, routed),
            Err(error) => self.answer(caller, &method, received, Err(error)),
        }
    }

    fn listen(&self, caller: &Arc<Caller>, filter: Filter) -> Notices {
        // First listen, then subscribe: nothing is missed in between. Nor is a change of the rules: either it is in what
        // holds now, or it is heard of.
        let receiver = self.gateway.hub.listen();
        let Some(view) = self.gateway.view(&self.name, &caller.principal) else { return Notices::over() };
        let (subscriptions, uris, full) = view.subscribe(caller, &filter.uris);
        let mut honoured = Filter { uris, full, ..filter.clone() };
        let listening = Listening {
            seen: view.digests(caller, &filter),
            view: view.again(),
            caller: caller.clone(),
            filter: honoured.clone(),
            wanted: filter.uris.clone(),
            receiver,
            owed: Vec::new(),
            _ear: view.ear(caller, &filter, &subscriptions),
            _subscriptions: subscriptions,
        };
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

impl View {
    /// Subscribes to those resources that there are here.
    ///
    /// Also says which limit kept others out, if one did.
    fn subscribe(&self, caller: &Arc<Caller>, uris: &[Text]) -> (Vec<Subscription>, Vec<Text>, Option<Text>) {
        let snapshot = self.now.snapshot.load();
        let (mut subscriptions, mut honoured, mut full) = (Vec::new(), Vec::new(), None);
        for uri in uris {
            let Ok((member, local)) = self.locate(&snapshot, caller, uri) else { continue };
            if member.face().is_some_and(|face| !face.features.subscribe) || local.len() > URI_MAX {
                continue;
            }
            match self.gateway.hub.subscribe(&member.upstream, &local) {
                Some(subscription) => {
                    subscriptions.push(subscription);
                    honoured.push(uri.clone());
                }
                None => {
                    self.gateway.metrics.refused.with_label_values(&["max_subscriptions"]).inc();
                    full = Some(Text::from(format!("servers.{}.max_subscriptions", member.settings.name)));
                }
            }
        }
        (subscriptions, honoured, full)
    }

    /// Has connections that are the client's own listen to what it listens to.
    fn ear(&self, caller: &Caller, filter: &Filter, subscriptions: &[Subscription]) -> Ear {
        let lists = filter.tools || filter.prompts || filter.resources || filter.logs;
        self.gateway.shared.ears.listen(caller, lists, subscriptions.iter().map(Subscription::place).collect())
    }

    /// What tells each list that is listened to from another; those that are not are all the same.
    fn digests(&self, caller: &Caller, filter: &Filter) -> [u64; 4] {
        Kind::ALL.map(|kind| match filter.wants(&Notice::Changed(kind)) {
            true => self.listed(caller, kind, false).digest,
            false => 0,
        })
    }
}

/// One listener.
struct Listening {
    view: View,
    caller: Arc<Caller>,
    filter: Filter,
    /// The resources that it asked for, also those that are not there.
    wanted: Vec<Text>,
    /// What it could list when it was told last.
    seen: [u64; 4],
    receiver: broadcast::Receiver<Happened>,
    /// What it is still to be told.
    owed: Vec<Notice>,
    _subscriptions: Vec<Subscription>,
    /// What connections of its client's own listen to for it.
    _ear: Ear,
}

impl Listening {
    async fn next(&mut self) -> Option<Notice> {
        loop {
            if let Some(notice) = self.owed.pop() {
                return Some(notice);
            }
            match self.receiver.recv().await {
                Ok(Happened::Changed(server, kind)) => {
                    if self.view.includes(&server) && self.filter.wants(&Notice::Changed(kind)) {
                        self.compare();
                    }
                }
                Ok(Happened::Reloaded) => {
                    self.follow()?;
                    self.compare();
                }
                Ok(happened) => {
                    let heard = self.view.heard(&self.caller, happened);
                    match heard.filter(|notice| self.filter.wants(notice)) {
                        // Its own connection says so: told whether or not what everybody lists differs, and once.
                        Some(Notice::Changed(kind)) => {
                            self.compare();
                            self.owe(kind);
                        }
                        Some(notice) => return Some(notice),
                        None => {}
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    // It cannot know what it missed, nor can we.
                    self.follow()?;
                    self.compare();
                    let lists = [Kind::Tools, Kind::Prompts, Kind::Resources].map(Notice::Changed);
                    let lists = lists.into_iter().filter(|notice| self.filter.wants(notice));
                    self.owed = lists.chain(self.filter.updates()).collect();
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Goes on with the endpoint as it is now; `None`: it is no longer there for this principal.
    fn follow(&mut self) -> Option<()> {
        self.view = self.view.gateway.view(&self.view.name, &self.caller.principal)?.again();
        if !self.wanted.is_empty() {
            // The new ones are there before the old ones go.
            (self._subscriptions, self.filter.uris, _) = self.view.subscribe(&self.caller, &self.wanted);
            self._ear = self.view.ear(&self.caller, &self.filter, &self._subscriptions);
        }
        Some(())
    }

    /// Owes it news of the lists that are no longer as it saw them.
    fn compare(&mut self) {
        let now = self.view.digests(&self.caller, &self.filter);
        let seen = std::mem::replace(&mut self.seen, now);
        for kind in Kind::ALL.into_iter().filter(|kind| now[*kind as usize] != seen[*kind as usize]) {
            self.owe(kind);
        }
    }

    /// Owes it the news of a list, once.
    fn owe(&mut self, kind: Kind) {
        // Templates have no notification of their own.
        let kind = if kind == Kind::Templates { Kind::Resources } else { kind };
        if !self.owed.iter().any(|owed| matches!(owed, Notice::Changed(other) if *other == kind)) {
            self.owed.push(Notice::Changed(kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use super::*;
    use crate::gateway::{GatewaySettings, NameRules};
    use crate::link::guard::Guard;
    use crate::model::testing;
    use crate::policy::AccessTable;
    use crate::telemetry::Metrics;
    use crate::upstream::{Connect, ServerSettings, Shared};

    fn gateway() -> Arc<Gateway> {
        let connect = Connect::Stdio { command: "none".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
        let settings = GatewaySettings {
            names: NameRules { separator: "__".to_owned(), max_length: 64 },
            servers: vec![ServerSettings::new("a", connect)],
            disabled: Vec::new(),
            views: Vec::new(),
            access: AccessTable::default(),
            drain: Duration::ZERO,
        };
        Gateway::new(settings, Arc::new(Shared::new(Arc::new(Metrics::new()), Guard::none())))
    }

    #[tokio::test]
    async fn a_listener_that_falls_behind_is_told_of_what_it_may_have_missed() {
        let (gateway, caller) = (gateway(), testing::caller(ANYBODY, None));
        let view = gateway.endpoints().find("a", &caller.principal).unwrap();
        let filter = Filter { tools: true, uris: vec![Text::from("x:1"), Text::from("x:2")], ..Filter::default() };
        let mut notices = view.listen(&caller, filter);
        for _ in 0..2000 {
            gateway.hub.publish(Happened::Logged(Text::from("a"), None, Object::new()));
        }
        let next = || unconstrained(notices.stream.next()).now_or_never().flatten();
        let mut told: Vec<String> = std::iter::from_fn(next)
            .map(|notice| match notice {
                Notice::Updated(uri, params) => {
                    assert_eq!(params.text("uri").as_ref(), Some(&uri));
                    uri.to_string()
                }
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(told.pop().as_deref(), Some("Changed(Tools)"), "lists are looked at last");
        told.sort();
        assert_eq!(told, ["x:1", "x:2"]);
    }
}
