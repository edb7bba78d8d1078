//! Tasks of all servers, under handles that lead back.
//!
//! Owns finding the server of a task, the lists of tasks, and telling of their states. Keeps nothing. Invariant: a
//! handle that may not be used gives the same answer as one that leads nowhere.

use std::sync::Arc;

use futures_util::{Stream, stream};
use tokio::time::Instant;

use crate::gateway::catalog::name_of;
use crate::gateway::generation::Member;
use crate::gateway::templates::LookupBudget;
use crate::gateway::view::{Routed, Scope, View};
use crate::gateway::watched::{CallWatch, WatchedCall};
use crate::gateway::{handles, links};
use crate::json::{Object, Raw, Text};
use crate::model::{
    Call, Caller, Error, Event, Exchange, Method, Notice, Outcome, Reason, Task, TaskFeatures, TaskMethod, TaskWish,
};
use crate::upstream::{Share, Upstream};

/// How the handles of one server's tasks are made for one caller.
pub(super) struct Naming {
    view: View,
    caller: Arc<Caller>,
    server: Text,
}

fn unknown(handle: &str) -> Error {
    Error::new(Reason::UnknownName, format!("Unknown task: {handle}"))
}

fn features(upstream: &Upstream) -> Option<TaskFeatures> {
    upstream.face()?.features.tasks
}

impl View {
    /// Whether tasks keep their servers' own names: on one server's own endpoint, where nobody can be told apart.
    fn is_plain(&self, caller: &Caller) -> bool {
        matches!(self.scope, Scope::Server(_)) && self.now.access.secret(&caller.principal).is_none()
    }

    /// The task that a client names, if there can be one of this name that it may use.
    fn locate_task(&self, caller: &Caller, handle: &Text) -> Result<(Arc<Member>, Text), Error> {
        let secret = self.now.access.secret(&caller.principal);
        let found = match &self.scope {
            Scope::Server(only) if secret.is_none() => Some((only.clone(), handle.clone())),
            _ => handles::open(handle, secret).and_then(|(server, local)| {
                let upstream = self.now.servers.iter().find(|u| u.settings.name == server)?;
                self.includes(server).then(|| (upstream.clone(), Text::from(local)))
            }),
        };
        // What is known of a server that is away was true when it was there; it may have tasks still.
        let possible = |upstream: &Upstream| upstream.face().is_none_or(|face| face.features.tasks.is_some());
        found.filter(|(upstream, _)| possible(upstream)).ok_or_else(|| unknown(handle))
    }

    /// Where a call about a task goes.
    pub(super) fn task(&self, caller: &Caller, mut call: Call) -> Result<Routed, Error> {
        let wrong = || Error::new(Reason::InvalidParams, "Invalid params: taskId must be a string");
        let handle = call.params.text("taskId").ok_or_else(wrong)?;
        let (upstream, local) = self.locate_task(caller, &handle)?;
        if local != handle {
            call.params.set(Text::literal("taskId"), Raw::string(&local));
        }
        Ok(Routed { meter: self.unrouted(&call.method), upstream, tool: Text::literal(""), call })
    }

    /// Refuses a call whose client insists on a task, where the tool's server has none: for a tool that is no task,
    /// "Servers SHOULD return a `-32601` (Method not found) error" (2025-11-25/basic/utilities/tasks.mdx).
    pub(super) fn check_wish(upstream: &Upstream, call: &Call) -> Result<(), Error> {
        // A server that is away says what it can do when it is back.
        let possible = || upstream.face().is_none_or(|face| face.features.tasks.is_some());
        if !matches!(call.task, TaskWish::Must(_)) || possible() {
            return Ok(());
        }
        let message = format!("Server \"{}\" has no tasks: call its tools without one", upstream.settings.name);
        Err(Error::new(Reason::UnknownMethod, message))
    }

    /// What this endpoint can do with tasks.
    pub(super) fn task_features(&self) -> Option<TaskFeatures> {
        let all: Vec<TaskFeatures> = self.members().filter_map(|upstream| features(upstream)).collect();
        // "If a task is retrievable via `tasks/get` for a requestor, it MUST be retrievable via `tasks/list`": where one
        // server cannot list its tasks, or not those of one principal, none are listed.
        let list = self.listers().len() == all.len();
        let cancel = all.iter().any(|features| features.cancel);
        (!all.is_empty()).then_some(TaskFeatures { list, cancel, any_tool: false })
    }

    fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.now.servers.iter().filter(|u| self.includes(&u.settings.name))
    }

    /// The servers whose lists of tasks hold one principal's only.
    fn listers(&self) -> Vec<Arc<Member>> {
        let alone = self.now.access.principals() <= 1;
        let own = |upstream: &Upstream| alone || upstream.settings.share != Share::Auto;
        let lists = |upstream: &&Arc<Member>| own(upstream) && features(upstream).is_some_and(|f| f.list);
        self.members().filter(lists).cloned().collect()
    }

    /// One page of one server's tasks; the cursor leads through the servers.
    pub(super) fn list_tasks(&self, caller: &Arc<Caller>, mut call: Call) -> Result<Exchange, Error> {
        let listers = self.listers();
        if !self.task_features().is_some_and(|features| features.list) {
            return Err(Error::new(Reason::UnknownMethod, "Method not found: tasks/list"));
        }
        let cursor = call.params.get("cursor").filter(|cursor| !cursor.is_null());
        let (at, local) = match cursor {
            None => (0, Text::literal("")),
            Some(cursor) => {
                let lost = || Error::new(Reason::InvalidParams, "Invalid params: unknown cursor");
                let text = cursor.as_text().ok_or_else(lost)?;
                let (server, local) = text.split_once(':').ok_or_else(lost)?;
                let at = listers.iter().position(|u| u.settings.name == server).ok_or_else(lost)?;
                (at, Text::from(local))
            }
        };
        call.params.remove("cursor");
        if !local.is_empty() {
            call.params.set(Text::literal("cursor"), Raw::string(&local));
        }
        let upstream = listers.get(at).cloned().ok_or_else(|| Error::internal("no server lists tasks"))?;
        let next = listers.get(at + 1).map(|upstream| format!("{}:", upstream.settings.name));
        let (naming, meter) = (self.naming(caller, &upstream), self.unrouted(&call.method));
        let watch = CallWatch::new(self, caller, &call, (meter, upstream.name.clone(), Text::literal("")));
        let change = move |event| match event {
            Event::Done(end) => Event::Done(naming.page(end, next.as_deref())),
            other => other,
        };
        Ok(Exchange::new(WatchedCall::new(upstream.begin_call(caller, call), watch, change)))
    }

    /// How tasks of a server are named for a caller; `None` in them means: as the server names them.
    pub(super) fn naming(&self, caller: &Arc<Caller>, upstream: &Upstream) -> Naming {
        Naming { view: self.again(), caller: caller.clone(), server: name_of(upstream) }
    }

    /// The states of tasks, whenever they change, for those handles that lead somewhere.
    ///
    /// The gateway looks at them as often as their servers allow: not every server tells of them (2025-11-25: receivers
    /// "MAY" send notifications, and "Requestors MUST NOT rely on" them), and clients that are told need not look.
    pub(super) fn watch(
        &self,
        caller: &Arc<Caller>,
        wanted: &[Text],
    ) -> (Vec<Text>, Vec<impl Stream<Item = Notice> + Send + use<>>) {
        let mut known = Vec::new();
        let mut watches = Vec::new();
        for handle in wanted {
            let Ok((upstream, local)) = self.locate_task(caller, handle) else { continue };
            known.push(handle.clone());
            let naming = self.naming(caller, &upstream);
            let watch = Watch { naming, upstream, local, seen: None, due: Instant::now(), over: false };
            watches.push(stream::unfold(Box::new(watch), |mut watch| async move {
                watch.next().await.map(|task| (Notice::Task(Box::new(task)), watch))
            }));
        }
        (known, watches)
    }
}

impl Naming {
    fn handle(&self, local: &Text) -> Option<Text> {
        if self.view.is_plain(&self.caller) {
            return None;
        }
        let secret = self.view.now.access.secret(&self.caller.principal);
        Some(Text::from(handles::make(&self.server, local, secret)))
    }

    /// Names a task for the client, and makes the links of its result lead back.
    pub(super) fn restore(&self, task: &mut Task) {
        if let Some(handle) = self.handle(&task.id) {
            task.id = handle;
        }
        let Some(Ok(end)) = &task.end else { return };
        if self.view.is_raw() {
            return;
        }
        if let Some(mut result) = end.as_object() {
            let gateway = &self.view.gateway;
            let budget = LookupBudget::new();
            links::rewrite(&Method::CallTool, &mut result, &|uri| gateway.exposed_uri(&self.server, uri, &budget));
            task.end = Some(Ok(result.raw()));
        }
    }

    /// A page with the tasks named for the client, and a cursor that leads on to the next server.
    fn page(&self, end: Result<Outcome, Error>, next: Option<&str>) -> Result<Outcome, Error> {
        let mut result = match (end, next) {
            (Ok(outcome), _) => outcome.result,
            // One server that is away hides no other's tasks.
            (Err(error), Some(_)) if error.is_server_fault() => Object::new(),
            (Err(error), _) => return Err(error),
        };
        let tasks = result.get("tasks").and_then(Raw::as_array).unwrap_or_default();
        let tasks: Vec<Raw> = tasks.iter().filter_map(Raw::as_object).filter_map(|task| self.listed(task)).collect();
        result.set(Text::literal("tasks"), Raw::array(tasks.iter()));
        let more = result.remove("nextCursor").and_then(|cursor| cursor.as_text()).filter(|cursor| !cursor.is_empty());
        let cursor = more.map(|cursor| format!("{}:{cursor}", self.server)).or_else(|| next.map(str::to_owned));
        if let Some(cursor) = cursor {
            result.set(Text::literal("nextCursor"), Raw::string(&cursor));
        }
        Ok(Outcome::of(result))
    }

    fn listed(&self, mut task: Object) -> Option<Raw> {
        if let Some(handle) = self.handle(&task.text("taskId")?) {
            task.set(Text::literal("taskId"), Raw::string(&handle));
        }
        Some(task.raw())
    }
}

/// One task that somebody wants to hear of.
struct Watch {
    naming: Naming,
    upstream: Arc<Member>,
    local: Text,
    /// What was told last.
    seen: Option<Seen>,
    due: Instant,
    over: bool,
}

#[derive(PartialEq)]
struct Seen(crate::model::TaskStatus, Object, Vec<Text>);

impl Watch {
    async fn next(&mut self) -> Option<Task> {
        loop {
            if self.over {
                return None;
            }
            tokio::time::sleep_until(self.due).await;
            let call = Call { whole: true, task: TaskWish::May, ..Call::of_task(TaskMethod::State, &self.local) };
            let task = match self.upstream.call(&self.naming.caller, call).outcome().await {
                Ok(Outcome { task: Some(task), .. }) => *task,
                // A server that is away may come back with its tasks.
                Err(error) if error.is_server_fault() => {
                    self.due = Instant::now() + AWAY;
                    continue;
                }
                Ok(_) | Err(_) => return None,
            };
            self.due = Instant::now() + task.pause();
            self.over = task.status.is_over();
            let asked = task.questions.iter().map(|(key, _)| key.clone()).collect();
            let seen = Seen(task.status, task.rest.clone(), asked);
            if self.seen.as_ref() == Some(&seen) {
                continue;
            }
            self.seen = Some(seen);
            let mut task = task;
            self.naming.restore(&mut task);
            return Some(task);
        }
    }
}

/// How long a server that is away is left alone.
const AWAY: std::time::Duration = std::time::Duration::from_secs(5);
