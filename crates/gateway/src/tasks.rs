//! Tasks of all servers, under handles that lead back.
//!
//! Owns finding the server of a task, the lists of tasks, and notifications of their states. Does
//! not store tasks. Invariant: a handle that may not be used gets the same error as one that leads
//! nowhere.

use std::sync::Arc;

use futures_util::{Stream, stream};
use tokio::time::Instant;

use crate::call_route::{CallRoute, check_issuer};
use crate::endpoint::Endpoint;
use crate::permitted::Permitted;
use crate::running_server::{RunningServer, server_name};
use crate::start_call::begin_permitted;
use crate::templates::LookupBudget;
use crate::{rewrite_links, task_handles};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{
    Call, Caller, Error, Exchange, ExchangeEvent, McpErrorKind, McpMethod, Notification, Outcome,
    TaskCapabilities, TaskMethod, TaskMode, TaskState,
};
use moongate_upstream::Upstream;

/// Naming of one server's tasks for one caller.
pub(super) struct TaskNaming {
    endpoint: Endpoint,
    caller: Arc<Caller>,
    server: ByteString,
}

fn unknown_task(handle: &str) -> Error {
    Error::new(McpErrorKind::UnknownName, format!("Unknown task: {handle}"))
}

fn capabilities(upstream: &Upstream) -> Option<TaskCapabilities> {
    upstream.description()?.capabilities.tasks
}

/// Returns true if the server has tasks, or may have them.
fn may_have_tasks(upstream: &Upstream) -> bool {
    // An unavailable server keeps its last known capabilities. One that was never available gives
    // them when it is back.
    upstream
        .description()
        .is_none_or(|description| description.capabilities.tasks.is_some())
}

fn unknown_cursor() -> Error {
    Error::new(
        McpErrorKind::InvalidParams,
        "Invalid params: unknown cursor",
    )
}

impl Endpoint {
    /// Finds the server of a task by its handle, if the caller may use it.
    fn locate_task(
        &self,
        caller: &Caller,
        handle: &ByteString,
    ) -> Result<(Permitted<Arc<RunningServer>>, ByteString), Error> {
        let found = self
            .permit_task(caller, handle)
            .filter(|(server, _)| may_have_tasks(server));
        found.ok_or_else(|| unknown_task(handle))
    }

    /// Routes a call about a task.
    pub(super) fn route_task_call(
        &self,
        caller: &Caller,
        call: &mut Call,
    ) -> Result<Permitted<CallRoute>, Error> {
        let handle = call
            .params
            .get_string("taskId")
            .ok_or_else(|| Error::without_text(&call.params, "taskId"))?;
        let (server, local) = self.locate_task(caller, &handle)?;
        check_issuer(&server, call)?;
        if local != handle {
            call.params
                .set(ByteString::literal("taskId"), RawJson::string(&local));
        }
        let meter = self.method_meter(&call.method);
        let output = self
            .gateway
            .context()
            .task_outputs
            .output_of(&server.name, &local);
        Ok(server.route_result(meter, output))
    }

    /// Refuses a call whose client requires a task, if the tool's server has none. For a tool that
    /// isn't a task, "Servers SHOULD return a `-32601` (Method not found) error"
    /// (2025-11-25/basic/utilities/tasks.mdx).
    pub(super) fn check_task_mode(upstream: &Upstream, call: &Call) -> Result<(), Error> {
        if !matches!(call.task_mode, TaskMode::Required(_)) || may_have_tasks(upstream) {
            return Ok(());
        }
        let message = format!(
            "Server \"{}\" does not support tasks: call its tools without one",
            upstream.settings.name
        );
        Err(Error::new(McpErrorKind::UnknownMethod, message))
    }

    /// Returns the task capabilities of this endpoint.
    pub(super) fn task_capabilities(&self) -> Option<TaskCapabilities> {
        let all: Vec<TaskCapabilities> = self
            .servers()
            .filter_map(|upstream| capabilities(upstream))
            .collect();
        // "If a task is retrievable via `tasks/get` for a requestor, it MUST be retrievable via
        // `tasks/list`": where one server cannot list its tasks, or not those of one principal,
        // none are listed.
        let list = self.task_listing_servers().len() == all.len();
        let cancel = all.iter().any(|capabilities| capabilities.cancel);
        (!all.is_empty()).then_some(TaskCapabilities {
            list,
            cancel,
            any_tool: false,
        })
    }

    /// Returns the servers whose task lists the callers of this endpoint may read.
    fn task_listing_servers(&self) -> Vec<Permitted<Arc<RunningServer>>> {
        self.generation
            .servers
            .iter()
            .filter(|server| capabilities(server).is_some_and(|capabilities| capabilities.list))
            .filter_map(|server| self.permit_task_list(server))
            .collect()
    }

    /// Lists one page of one server's tasks. The cursor leads through the servers.
    pub(super) fn list_tasks(
        &self,
        caller: &Arc<Caller>,
        mut call: Call,
    ) -> Result<Exchange, Error> {
        let listers = self.task_listing_servers();
        if !self
            .task_capabilities()
            .is_some_and(|capabilities| capabilities.list)
        {
            return Err(Error::new(
                McpErrorKind::UnknownMethod,
                "Method not found: tasks/list",
            ));
        }
        let cursor = call.params.get("cursor").filter(|cursor| !cursor.is_null());
        let (index, local) = match cursor {
            None => (0, ByteString::literal("")),
            Some(cursor) => {
                let text = cursor.as_text().ok_or_else(unknown_cursor)?;
                // The cursor has the server, a colon, and that server's own cursor. Servers' names
                // have no colon.
                let (server, local) = text.split_once(':').ok_or_else(unknown_cursor)?;
                let index = listers
                    .iter()
                    .position(|u| u.settings.name == server)
                    .ok_or_else(unknown_cursor)?;
                (index, ByteString::from(local))
            }
        };
        call.params.remove("cursor");
        if !local.is_empty() {
            call.params
                .set(ByteString::literal("cursor"), RawJson::string(&local));
        }
        let server = listers
            .get(index)
            .cloned()
            .ok_or_else(|| Error::internal("no server lists tasks"))?;
        let next = listers
            .get(index + 1)
            .map(|upstream| format!("{}:", upstream.settings.name));
        let naming = self.task_naming(caller, &server);
        let route = server.route_call(self.method_meter(&call.method));
        Ok(
            self.start_metered(caller, route, call, move |event, _| match event {
                ExchangeEvent::Done(end) => {
                    ExchangeEvent::Done(naming.expose_page(end, next.as_deref()))
                }
                other => other,
            }),
        )
    }

    /// Returns the naming of a server's tasks for a caller. `None` in its fields keeps the server's
    /// own ids.
    pub(super) fn task_naming(&self, caller: &Arc<Caller>, upstream: &Upstream) -> TaskNaming {
        TaskNaming {
            endpoint: self.clone_endpoint(),
            caller: caller.clone(),
            server: server_name(upstream),
        }
    }

    /// Watches the states of tasks, for those handles that lead somewhere.
    ///
    /// The gateway polls as often as the servers allow, because not every server sends
    /// notifications. 2025-11-25: receivers "MAY" send notifications, and "Requestors MUST NOT rely
    /// on" them. Clients that are notified need not poll.
    pub(super) fn watch_tasks(
        &self,
        caller: &Arc<Caller>,
        wanted: &[ByteString],
    ) -> (
        Vec<ByteString>,
        Vec<impl Stream<Item = Notification> + Send + use<>>,
    ) {
        let mut acknowledged = Vec::new();
        let mut watches = Vec::new();
        for handle in wanted {
            let Ok((server, local)) = self.locate_task(caller, handle) else {
                continue;
            };
            acknowledged.push(handle.clone());
            let naming = self.task_naming(caller, &server);
            let route = server.route_call(self.method_meter(&McpMethod::Task(TaskMethod::Get)));
            let watch = TaskStatusWatch {
                naming,
                route,
                local,
                last_state: None,
                due: Instant::now(),
                finished: false,
            };
            watches.push(stream::unfold(Box::new(watch), |mut watch| async move {
                watch
                    .next()
                    .await
                    .map(|task| (Notification::TaskStatus(Box::new(task)), watch))
            }));
        }
        (acknowledged, watches)
    }
}

impl TaskNaming {
    fn handle(&self, local: &ByteString) -> Option<ByteString> {
        if self.endpoint.keeps_local_task_ids(&self.caller) {
            return None;
        }
        let secret = self.caller.principal.secret.as_ref();
        Some(ByteString::from(task_handles::make_handle(
            &self.server,
            local,
            secret,
        )))
    }

    /// Exposes a task under the client's handle, and rewrites the links of its result.
    pub(super) fn expose_task(&self, task: &mut TaskState) {
        if let Some(handle) = self.handle(&task.id) {
            task.id = handle;
        }
        let Some(Ok(end)) = &task.outcome else { return };
        if self.endpoint.keeps_local_names() {
            return;
        }
        if let Some(mut result) = end.as_object() {
            let gateway = &self.endpoint.gateway;
            let budget = LookupBudget::new();
            rewrite_links::rewrite(&McpMethod::CallTool, &mut result, &|uri| {
                gateway.exposed_uri(&self.server, uri, &budget)
            });
            task.outcome = Some(Ok(result.to_raw()));
        }
    }

    /// Exposes a page of tasks, with a cursor that leads on to the next server.
    fn expose_page(
        &self,
        end: Result<Outcome, Error>,
        next: Option<&str>,
    ) -> Result<Outcome, Error> {
        let mut result = match (end, next) {
            (Ok(outcome), _) => outcome.result,
            // One unavailable server must not hide the tasks of others.
            (Err(error), Some(_)) if error.is_server_failure() => JsonObject::new(),
            (Err(error), _) => return Err(error),
        };
        let tasks = result
            .get("tasks")
            .and_then(RawJson::as_array)
            .unwrap_or_default();
        let tasks: Vec<RawJson> = tasks
            .iter()
            .filter_map(RawJson::as_object)
            .filter_map(|task| self.expose_listed(task))
            .collect();
        result.set(ByteString::literal("tasks"), RawJson::array(tasks.iter()));
        // The next server's first page follows this server's last one.
        let more = result
            .remove("nextCursor")
            .and_then(|cursor| cursor.as_text())
            .filter(|cursor| !cursor.is_empty());
        let cursor = more
            .map(|cursor| format!("{}:{cursor}", self.server))
            .or_else(|| next.map(str::to_owned));
        if let Some(cursor) = cursor {
            result.set(ByteString::literal("nextCursor"), RawJson::string(&cursor));
        }
        Ok(Outcome::from_result(result))
    }

    fn expose_listed(&self, mut task: JsonObject) -> Option<RawJson> {
        if let Some(handle) = self.handle(&task.get_string("taskId")?) {
            task.set(ByteString::literal("taskId"), RawJson::string(&handle));
        }
        Some(task.to_raw())
    }
}

/// Watched task.
struct TaskStatusWatch {
    naming: TaskNaming,
    route: Permitted<CallRoute>,
    local: ByteString,
    /// State in the last notification.
    last_state: Option<LastTaskState>,
    due: Instant,
    finished: bool,
}

#[derive(PartialEq)]
struct LastTaskState(moongate_model::TaskStatus, JsonObject, Vec<ByteString>);

impl TaskStatusWatch {
    async fn next(&mut self) -> Option<TaskState> {
        loop {
            if self.finished {
                return None;
            }
            tokio::time::sleep_until(self.due).await;
            let call = Call {
                detailed: true,
                task_mode: TaskMode::Allowed,
                ..Call::for_task(TaskMethod::Get, &self.local)
            };
            let mut task =
                match Exchange::new(begin_permitted(&self.route, &self.naming.caller, call))
                    .outcome()
                    .await
                {
                    Ok(Outcome {
                        task: Some(task), ..
                    }) => *task,
                    // An unavailable server may come back with its tasks.
                    Err(error) if error.is_server_failure() => {
                        self.due = Instant::now() + UNAVAILABLE_DELAY;
                        continue;
                    }
                    Ok(_) | Err(_) => return None,
                };
            // The server decides how often it may be polled.
            self.due = Instant::now() + task.poll_delay();
            self.finished = task.status.is_terminal();
            let requests = task
                .input_requests
                .iter()
                .map(|(key, _)| key.clone())
                .collect();
            let seen = LastTaskState(task.status, task.other_members.clone(), requests);
            if self.last_state.as_ref() == Some(&seen) {
                continue;
            }
            self.last_state = Some(seen);
            self.naming.expose_task(&mut task);
            return Some(task);
        }
    }
}

/// Time before the next poll of an unavailable server.
const UNAVAILABLE_DELAY: std::time::Duration = std::time::Duration::from_secs(5);
