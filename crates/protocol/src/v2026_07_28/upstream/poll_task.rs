//! Polling of a task on a stateless server, for a client that awaits its result.
//!
//! Owns the polls, and the cancellation that reports its outcome. Does not poll more often than the
//! server allows. Invariant: no input request of a task reaches the client twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::await_task::{self, TaskHooks};
use crate::call_error;
use crate::legacy::terminal_error;
use crate::v2026_07_28::tasks;
use crate::v2026_07_28::upstream::call::ModernCall;
use crate::v2026_07_28::upstream::connection::ModernConnection;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::RpcError;
use moongate_model::{
    Call, Caller, Error, Exchange, ExchangeEvent, InputRequired, InputResponses, McpErrorKind,
    Outcome, StateHolder, TaskMethod, TaskMode, TaskState, TaskStatus,
};

/// Time limit for a task and for a user's answer. The client may repeat its request.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Limit of input requests of one task. A server beyond it is taken to loop.
const INPUT_REQUESTS_MAX: usize = 1000;
/// Time for which a cancelled task is polled for its final state, and the interval. The client
/// waits meanwhile.
const SETTLE_MAX: Duration = Duration::from_secs(2);
// The server's own interval may be minutes, and the client waits for one response.
const SETTLE_POLL: Duration = Duration::from_millis(200);

/// Polling of one task.
struct TaskPoll {
    server: Arc<ModernConnection>,
    caller: Arc<Caller>,
    id: ByteString,
    seen_requests: HashSet<ByteString>,
    responses: Option<oneshot::Receiver<InputResponses>>,
    /// Time of the next poll.
    due: Instant,
    deadline: Instant,
    finished: bool,
}

/// Polls the task until its end.
pub(crate) fn poll_to_end(
    server: Arc<ModernConnection>,
    caller: Arc<Caller>,
    id: ByteString,
) -> Exchange {
    let now = Instant::now();
    let poll = TaskPoll {
        server,
        caller,
        id,
        seen_requests: HashSet::new(),
        responses: None,
        due: now,
        deadline: now + WAIT_MAX,
        finished: false,
    };
    Exchange::new(stream::unfold(poll, |mut poll| async move {
        if poll.finished {
            return None;
        }
        let event = poll.next().await;
        poll.finished = matches!(event, ExchangeEvent::Done(_));
        Some((event, poll))
    }))
}

impl TaskPoll {
    async fn next(&mut self) -> ExchangeEvent {
        loop {
            if let Some(responses) = self.responses.take()
                && let Err(error) = self.send_responses(responses).await
            {
                return ExchangeEvent::Done(Err(error));
            }
            // Checked before the wait: a server may ask for an interval that lasts beyond the
            // deadline.
            if self.due >= self.deadline {
                return ExchangeEvent::Done(Err(call_error::timeout_error(
                    &self.server.options.server,
                    WAIT_MAX,
                )));
            }
            tokio::time::sleep_until(self.due).await;
            let task = match read_state(&self.server, &self.caller, &self.id).await {
                Ok(task) => task,
                Err(error) => return ExchangeEvent::Done(Err(error)),
            };
            // The server's poll interval counts from its response.
            self.due = Instant::now() + task.poll_delay();
            if task.status.is_terminal() {
                return ExchangeEvent::Done(self.read_end(task));
            }
            if let Some(input) = self.new_input(task) {
                return ExchangeEvent::InputRequired(input);
            }
        }
    }

    /// Returns the input requests that are new.
    ///
    /// "Clients SHOULD deduplicate `inputRequests` keys across consecutive polls".
    fn new_input(&mut self, task: TaskState) -> Option<InputRequired> {
        let requests: Vec<_> = task
            .input_requests
            .into_iter()
            .filter(|(key, _)| !self.seen_requests.contains(key))
            .collect();
        // Beyond the limit nothing is asked any more. The polls continue until the deadline ends
        // them.
        if requests.is_empty() || self.seen_requests.len() + requests.len() > INPUT_REQUESTS_MAX {
            return None;
        }
        self.seen_requests.extend(
            requests
                .iter()
                .map(|(key, _)| ByteString::from(key.as_str())),
        );
        let (responder, responses) = oneshot::channel();
        self.responses = Some(responses);
        Some(InputRequired {
            requests,
            state_holder: StateHolder::Server,
            server: None,
            responder,
        })
    }

    async fn send_responses(
        &mut self,
        responses: oneshot::Receiver<InputResponses>,
    ) -> Result<(), Error> {
        // The answer counts into the same time limit: the task does nothing meanwhile.
        let responses = timeout_at(self.deadline, responses)
            .await
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| {
                Error::new(
                    McpErrorKind::Cancelled,
                    "The client did not answer the server's request",
                )
            })?;
        let mut input_responses = JsonObject::new();
        for (key, response) in responses {
            match response {
                Ok(mut result) => {
                    // The client's task id is local to its hop.
                    crate::legacy::untag_task(&mut result);
                    input_responses.set(key, result.to_raw());
                }
                // This revision has no form for a client's error, so the waiting call ends with it.
                Err(error) => return Err(Error::from_server(error)),
            }
        }
        let mut call = Call::for_task(TaskMethod::Update, &self.id);
        call.params.set(
            ByteString::literal("inputResponses"),
            input_responses.to_raw(),
        );
        ModernCall::start(self.server.clone(), self.caller.clone(), call)
            .outcome()
            .await
            .map(drop)
    }

    fn read_end(&self, task: TaskState) -> Result<Outcome, Error> {
        match (task.status, task.outcome) {
            (TaskStatus::Cancelled, _) => Err(Error::new(
                McpErrorKind::Cancelled,
                "The task was cancelled",
            )),
            (_, Some(Ok(result))) => match result.as_object() {
                Some(mut result) => {
                    // The mark belongs to the response that carried the task. The client's revision
                    // sets its own.
                    result.remove("resultType");
                    Ok(Outcome::from_result(result))
                }
                None => Err(self.protocol_error("the result of a task is not an object")),
            },
            (_, Some(Err(error))) => match rpc_error(&error) {
                Some(error) => Err(Error::from_server(error)),
                None => Err(self.protocol_error("the error of a task has no code or no message")),
            },
            (_, None) => Err(self.protocol_error("a task ended without a result")),
        }
    }

    fn protocol_error(&self, what: &str) -> Error {
        call_error::protocol_error(&self.server.options.server, what)
    }
}

fn rpc_error(error: &RawJson) -> Option<RpcError> {
    let error = error.as_object()?;
    let code = error.get("code")?.parse_as().ok()?;
    Some(RpcError {
        code,
        message: error.get_string("message")?,
        data: error.get("data").cloned(),
    })
}

/// Reads the detailed state of a task.
async fn read_state(
    server: &Arc<ModernConnection>,
    caller: &Arc<Caller>,
    id: &ByteString,
) -> Result<TaskState, Error> {
    let call = Call {
        detailed: true,
        ..Call::for_task(TaskMethod::Get, id)
    };
    let outcome = ModernCall::start(server.clone(), caller.clone(), call)
        .outcome()
        .await?;
    match outcome.task {
        Some(task) => Ok(*task),
        None => Err(call_error::protocol_error(
            &server.options.server,
            "the answer to tasks/get is not a task",
        )),
    }
}

/// Cancels a task and returns its state, which the client's revision requires.
///
/// 2025-11-25/basic/utilities/tasks.mdx, Task Cancellation: "Receivers MUST reject cancellation
/// requests for tasks already in a terminal status", and "MUST transition the task to `cancelled`
/// status before sending the response". In this revision "eventual transition to `cancelled` is not
/// guaranteed": after a while the state is returned as it is.
pub(crate) async fn cancel_task(
    server: Arc<ModernConnection>,
    caller: Arc<Caller>,
    id: ByteString,
) -> Result<Outcome, Error> {
    let before = read_state(&server, &caller, &id).await?;
    // Asked beforehand: this revision acknowledges the cancellation of a finished task, too.
    if before.status.is_terminal() {
        return Err(terminal_error(before.status));
    }
    let call = Call::for_task(TaskMethod::Cancel, &id);
    ModernCall::start(server.clone(), caller.clone(), call)
        .outcome()
        .await?;
    let until = Instant::now() + SETTLE_MAX;
    loop {
        let task = read_state(&server, &caller, &id).await?;
        let next = Instant::now() + task.poll_delay().min(SETTLE_POLL);
        if task.status.is_terminal() || next > until {
            // The client asked for the state alone. The parts of a detailed task don't exist in its
            // revision.
            let task = TaskState {
                input_requests: Vec::new(),
                outcome: None,
                ..task
            };
            return Ok(Outcome {
                task: Some(Box::new(task)),
                ..Outcome::default()
            });
        }
        tokio::time::sleep_until(next).await;
    }
}

/// Calls a tool for a client without tasks, and falls back to a task if the server demands one.
///
/// "If a server is unable to service a request to a client that does not declare this extension
/// capability without returning `CreateTaskResult`, the server MUST return an error with the code
/// `-32021`": it never ran the call, so that the call may be sent again.
pub(crate) fn call_without_tasks(
    server: Arc<ModernConnection>,
    caller: Arc<Caller>,
    call: Call,
) -> Exchange {
    // A copy for the second attempt, since the first one consumes the call.
    let retry = Call {
        meta: call.meta.clone(),
        progress: call.progress,
        definition: call.definition.clone(),
        task_mode: TaskMode::Allowed,
        ..Call::new(call.method.clone(), call.params.clone())
    };
    let first = ModernCall::start(server.clone(), caller.clone(), call);
    let state = (first, Some((server, caller, retry)), false);
    Exchange::new(stream::unfold(
        state,
        |(mut exchange, mut retry, finished)| async move {
            if finished {
                return None;
            }
            loop {
                match exchange.next_event().await {
                    ExchangeEvent::Done(Err(error))
                        if tasks::is_required(&error) && retry.is_some() =>
                    {
                        let Some((server, caller, call)) = retry.take() else {
                            continue;
                        };
                        exchange = call_as_task(server, caller, call);
                    }
                    ExchangeEvent::Done(end) => {
                        return Some((ExchangeEvent::Done(end), (exchange, None, true)));
                    }
                    event => return Some((event, (exchange, retry, false))),
                }
            }
        },
    ))
}

fn call_as_task(server: Arc<ModernConnection>, caller: Arc<Caller>, call: Call) -> Exchange {
    let hooks = TaskHooks {
        wait: Box::new({
            let server = server.clone();
            let caller = caller.clone();
            move |id| poll_to_end(server, caller, id.clone())
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
                let call = Call::for_task(TaskMethod::Cancel, id);
                let cancelling = ModernCall::start(server, caller, call).outcome();
                tokio::spawn(async move { drop((cancelling.await, permit)) });
            }
        }),
        timeout: server.options.timeouts.call(),
        timeout_error: call_error::timeout_error(
            &server.options.server,
            server.options.timeouts.call(),
        ),
    };
    await_task::await_task(ModernCall::start(server, caller, call), hooks)
}
