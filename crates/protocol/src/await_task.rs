//! Call that its server runs as a task, for a client without tasks: the gateway awaits the result.
//!
//! Owns the order: the call, then its task, then the result. Does not know the wire form of either.
//! Invariant: a client that disconnects, or a timeout, cancels the task.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::input_clock::InputClock;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{
    Error, Exchange, ExchangeEvent, InputRequired, InputResponses, Outcome, Retryable,
};

/// Time limit for a user to answer a task's input request. The call's own time is on hold
/// meanwhile.
const INPUT_TIME_MAX: Duration = Duration::from_secs(600);

/// Function that cancels a task.
type CancelTask = Box<dyn FnOnce(&ByteString) + Send>;

/// Functions for the task that a call became.
pub(super) struct TaskHooks {
    /// Awaits the task's result.
    pub(super) wait: Box<dyn FnOnce(&ByteString) -> Exchange + Send>,
    /// Cancels the task before its end.
    pub(super) cancel: CancelTask,
    /// Time limit for the task.
    pub(super) timeout: Duration,
    /// Error after that time.
    pub(super) timeout_error: Error,
}

struct TaskAsCall {
    exchange: Exchange,
    hooks: Option<TaskHooks>,
    /// Running task with its cancellation and its timeout error. `None` before it exists and after
    /// its end.
    task: Option<(ByteString, CancelTask, Error)>,
    timeout: Duration,
    /// Deadline of the task, apart from the time of its input requests.
    deadline: Option<Instant>,
    inputs: Arc<InputClock>,
    finished: bool,
}

/// Wraps a call's exchange: if its result is a task, the exchange continues to the task's result.
pub(super) fn await_task(call: Exchange, hooks: TaskHooks) -> Exchange {
    let task_call = TaskAsCall {
        exchange: call,
        timeout: hooks.timeout,
        hooks: Some(hooks),
        task: None,
        deadline: None,
        inputs: Arc::default(),
        finished: false,
    };
    Exchange::new(stream::unfold(task_call, |mut task_call| async move {
        task_call.next().await.map(|event| (event, task_call))
    }))
}

impl TaskAsCall {
    async fn next(&mut self) -> Option<ExchangeEvent> {
        if self.finished {
            return None;
        }
        loop {
            let event = match self.deadline {
                None => self.exchange.next_event().await,
                Some(base) => {
                    let deadline = self.inputs.extend(base, self.timeout);
                    match timeout_at(deadline, self.exchange.next_event()).await {
                        Ok(event) => event,
                        // It may have moved meanwhile.
                        Err(_) if self.inputs.extend(base, self.timeout) > Instant::now() => {
                            continue;
                        }
                        Err(_) => return Some(self.time_out()),
                    }
                }
            };
            match event {
                ExchangeEvent::Done(Ok(outcome))
                    if outcome.task.is_some() && self.hooks.is_some() =>
                {
                    let (Some(task), Some(hooks)) = (outcome.task, self.hooks.take()) else {
                        continue;
                    };
                    // The call's exchange ends here. The same stream continues with the task's
                    // events.
                    self.exchange = (hooks.wait)(&task.id);
                    self.task = Some((task.id, hooks.cancel, hooks.timeout_error));
                    // The time starts again: until here the call's own timeout held.
                    self.deadline = Some(Instant::now() + self.timeout);
                }
                ExchangeEvent::Done(end) => {
                    self.finished = true;
                    // Its end is known, so dropping this exchange must not cancel it.
                    self.task = None;
                    return Some(ExchangeEvent::Done(self.with_sent_call(end)));
                }
                ExchangeEvent::InputRequired(input) => {
                    // Only a task has a deadline here. The call before it bounds its own time.
                    let input = if self.deadline.is_some() {
                        self.watch_input(input)
                    } else {
                        input
                    };
                    return Some(ExchangeEvent::InputRequired(input));
                }
                event @ ExchangeEvent::Notification(_) => return Some(event),
            }
        }
    }

    /// Takes back that the call was not sent if it became a task: an error of the wait is about a
    /// later request.
    fn with_sent_call(&self, end: Result<Outcome, Error>) -> Result<Outcome, Error> {
        match end {
            // Without this a retry would make a second task.
            Err(error) if self.deadline.is_some() && error.retryable == Retryable::NotSent => {
                Err(error.with_retryable(Retryable::No))
            }
            end => end,
        }
    }

    /// Puts the task's time on hold until the responses pass, or the request is refused.
    fn watch_input(&self, input: InputRequired) -> InputRequired {
        let (watched, responses) = oneshot::channel::<InputResponses>();
        let InputRequired {
            requests,
            state_holder,
            server,
            responder,
        } = input;
        let inputs = self.inputs.clone();
        inputs.begin();
        tokio::spawn(async move {
            let responses = timeout(INPUT_TIME_MAX, responses)
                .await
                .ok()
                .and_then(Result::ok);
            // Errors are refusals, mostly the gateway's own: nobody was asked.
            inputs.end(
                responses
                    .iter()
                    .flatten()
                    .any(|(_, response)| response.is_ok()),
            );
            // Dropping the responder signals that no responses will come.
            responses.map(|responses| responder.send(responses))
        });
        InputRequired {
            requests,
            state_holder,
            server,
            responder: watched,
        }
    }

    fn time_out(&mut self) -> ExchangeEvent {
        self.finished = true;
        let error = self
            .cancel()
            .unwrap_or_else(|| Error::internal("a task was late before it was there"));
        ExchangeEvent::Done(Err(error))
    }

    fn cancel(&mut self) -> Option<Error> {
        let (id, cancel, error) = self.task.take()?;
        cancel(&id);
        Some(error)
    }
}

impl Drop for TaskAsCall {
    fn drop(&mut self) {
        // Without a runtime the process is ending, and nothing could send the cancellation.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::JsonObject;
    use moongate_model::{McpErrorKind, TaskState, TaskStatus};

    fn unsent() -> Error {
        Error::new(McpErrorKind::ServerDown, "away").with_retryable(Retryable::NotSent)
    }

    /// Returns hooks whose wait fails before it is sent.
    fn hooks() -> TaskHooks {
        TaskHooks {
            wait: Box::new(|_| Exchange::ready(Err(unsent()))),
            cancel: Box::new(|_| ()),
            timeout: Duration::from_secs(60),
            timeout_error: Error::internal("late"),
        }
    }

    #[tokio::test]
    async fn a_failed_wait_for_a_task_does_not_repeat_its_call() {
        let task = TaskState {
            id: ByteString::literal("t"),
            status: TaskStatus::Working,
            ttl: None,
            poll_interval: None,
            other_members: JsonObject::new(),
            input_requests: Vec::new(),
            outcome: None,
        };
        let task = Outcome {
            task: Some(Box::new(task)),
            ..Outcome::default()
        };
        let lost = await_task(Exchange::ready(Ok(task)), hooks())
            .outcome()
            .await
            .unwrap_err();
        assert_eq!(lost.retryable, Retryable::No, "its server runs the task");
        let unmade = await_task(Exchange::ready(Err(unsent())), hooks())
            .outcome()
            .await
            .unwrap_err();
        assert_eq!(unmade.retryable, Retryable::NotSent);
    }
}
