//! Modes of a call on a legacy server: plain, as a task, or about a task.
//!
//! Owns the choice of the mode. Does not send requests (`call.rs`). Invariant: a client without
//! tasks gets the plain result, even from a tool that runs only as a task.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream;

use crate::await_task::{self, TaskHooks};
use crate::call_error;
use crate::legacy::upstream::call::LegacyCall;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::translate_task_methods;
use crate::tasks::{TaskSupport, task_support};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{Call, Caller, Error, Exchange, ExchangeEvent, Outcome, TaskMethod, TaskMode};

/// Calls a tool in the mode that client and tool share.
///
/// The call becomes a task if the client allows tasks and the tool supports them. If the tool runs
/// only as a task, the gateway awaits the task for the client.
pub(crate) fn call_tool(
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    mut call: Call,
) -> Exchange {
    // The client's opt-in is a `TaskMode` by now. A `task` member that is left does not belong to
    // its revision.
    if call.params.get("task").is_some() {
        call.params.remove("task");
    }
    // 2025-11-25/basic/utilities/tasks.mdx, Capability Negotiation: "If `capabilities.tasks` is not
    // defined, the peer SHOULD NOT attempt to create tasks during requests."
    if server
        .session
        .negotiated()
        .description
        .capabilities
        .tasks
        .is_none()
    {
        call.task_mode = TaskMode::Never;
        return LegacyCall::start(server, caller, call).0;
    }
    let task_params = match (&call.task_mode, task_support(call.definition.as_deref())) {
        // The client's own wish passes even against the tool's mark: the server answers to that.
        (TaskMode::Required(task_params), _) => task_params.clone(),
        (TaskMode::Allowed, TaskSupport::Optional | TaskSupport::Required) => JsonObject::new(),
        (TaskMode::Never, TaskSupport::Required) => {
            call.params
                .set(ByteString::literal("task"), RawJson::literal("{}"));
            call.task_mode = TaskMode::Allowed;
            return run_as_task(server, caller, call);
        }
        _ => {
            call.task_mode = TaskMode::Never;
            return LegacyCall::start(server, caller, call).0;
        }
    };
    call.params
        .set(ByteString::literal("task"), task_params.to_raw());
    LegacyCall::start(server, caller, call).0
}

/// Runs a tool as a task for a client that has no tasks.
///
/// "If `execution.taskSupport` is `"required"`, clients MUST invoke the tool as a task"
/// (2025-11-25/basic/utilities/tasks.mdx, Tool-Level Negotiation).
fn run_as_task(server: Arc<LegacyConnection>, caller: Arc<Caller>, call: Call) -> Exchange {
    let (created, token) = LegacyCall::start(server.clone(), caller.clone(), call);
    let hooks = TaskHooks {
        wait: Box::new({
            let server = server.clone();
            let caller = caller.clone();
            // "The `progressToken` provided in the initial request remains valid throughout the
            // task lifetime."
            move |id| LegacyCall::await_task_result(server, caller, id, token)
        }),
        cancel: Box::new({
            let server = server.clone();
            let caller = caller.clone();
            move |id| {
                // Without a permit the cancellation is dropped: it is advisory, and must not pile
                // up.
                let Some(permit) = server.options.timeouts.background_sender().try_acquire() else {
                    return;
                };
                let cancelling =
                    LegacyCall::start(server, caller, Call::for_task(TaskMethod::Cancel, id))
                        .0
                        .outcome();
                tokio::spawn(async move { drop((cancelling.await, permit)) });
            }
        }),
        timeout: server.options.timeouts.call(),
        timeout_error: call_error::timeout_error(
            &server.options.server,
            server.options.timeouts.call(),
        ),
    };
    await_task::await_task(created, hooks)
}

pub(crate) fn call_task_method(
    method: TaskMethod,
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    call: Call,
) -> Exchange {
    match method {
        TaskMethod::Get if call.detailed => {
            let id = call.target().unwrap_or(ByteString::literal(""));
            single_event(Box::pin(translate_task_methods::read_detailed(
                server, caller, id,
            )))
        }
        TaskMethod::Update => single_event(Box::pin(translate_task_methods::deliver_responses(
            server, caller, call,
        ))),
        TaskMethod::Cancel => single_event(Box::pin(translate_task_methods::cancel_task(
            server, caller, call,
        ))),
        _ => LegacyCall::start(server, caller, call).0,
    }
}

/// Wraps the end of a call that has no other events.
fn single_event(end: BoxFuture<'static, Result<Outcome, Error>>) -> Exchange {
    Exchange::new(stream::once(async move { ExchangeEvent::Done(end.await) }))
}
