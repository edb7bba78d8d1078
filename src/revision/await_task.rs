//! A call that its server runs as a task for a client that knows nothing of tasks: the gateway waits for the end.
//!
//! Owns the order: the call, then the task it became, then its end. Does not know how either is spelled. Invariant: a
//! client that goes away, or a time that passes, cancels the task.

use std::time::Duration;

use futures_util::stream;
use tokio::time::{Instant, timeout_at};

use crate::json::ByteString;
use crate::model::{Error, Exchange, ExchangeEvent};

/// Longest time for a user to answer what the task asks; the call's own time stands still meanwhile.
const INPUT_TIME_MAX: Duration = Duration::from_secs(600);

/// Cancels a task.
type CancelTask = Box<dyn FnOnce(&ByteString) + Send>;

/// What is done with the task that a call became.
pub(super) struct TaskHooks {
    /// Waits for its end.
    pub(super) wait: Box<dyn FnOnce(&ByteString) -> Exchange + Send>,
    /// Asks for its end before its time.
    pub(super) cancel: CancelTask,
    /// Longest time for the task.
    pub(super) timeout: Duration,
    /// What it means that the time passed.
    pub(super) timeout_error: Error,
}

struct TaskAsCall {
    exchange: Exchange,
    hooks: Option<TaskHooks>,
    /// The task, once there is one and for as long as it is not over.
    task: Option<(ByteString, CancelTask, Error)>,
    timeout: Duration,
    deadline: Option<Instant>,
    finished: bool,
}

/// The exchange of a call, with its end where that is a task.
pub(super) fn await_task(call: Exchange, steps: TaskHooks) -> Exchange {
    let driven = TaskAsCall {
        exchange: call,
        timeout: steps.timeout,
        hooks: Some(steps),
        task: None,
        deadline: None,
        finished: false,
    };
    Exchange::new(stream::unfold(driven, |mut driven| async move { driven.next().await.map(|event| (event, driven)) }))
}

impl TaskAsCall {
    async fn next(&mut self) -> Option<ExchangeEvent> {
        if self.finished {
            return None;
        }
        loop {
            let event = match self.deadline {
                None => self.exchange.next_event().await,
                Some(deadline) => match timeout_at(deadline, self.exchange.next_event()).await {
                    Ok(event) => event,
                    Err(_) => return Some(self.time_out()),
                },
            };
            match event {
                ExchangeEvent::Done(Ok(outcome)) if outcome.task.is_some() && self.hooks.is_some() => {
                    let (Some(task), Some(steps)) = (outcome.task, self.hooks.take()) else { continue };
                    self.exchange = (steps.wait)(&task.id);
                    self.task = Some((task.id, steps.cancel, steps.timeout_error));
                    self.deadline = Some(Instant::now() + self.timeout);
                }
                ExchangeEvent::Done(end) => {
                    self.finished = true;
                    self.task = None;
                    return Some(ExchangeEvent::Done(end));
                }
                ExchangeEvent::InputRequired(ask) => {
                    self.deadline = self.deadline.map(|_| Instant::now() + INPUT_TIME_MAX + self.timeout);
                    return Some(ExchangeEvent::InputRequired(ask));
                }
                notice @ ExchangeEvent::Notification(_) => return Some(notice),
            }
        }
    }

    fn time_out(&mut self) -> ExchangeEvent {
        self.finished = true;
        let late = self.cancel().unwrap_or_else(|| Error::internal("a task was late before it was there"));
        ExchangeEvent::Done(Err(late))
    }

    fn cancel(&mut self) -> Option<Error> {
        let (id, cancel, late) = self.task.take()?;
        cancel(&id);
        Some(late)
    }
}

impl Drop for TaskAsCall {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            self.cancel();
        }
    }
}
