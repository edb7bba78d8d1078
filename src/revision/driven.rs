//! A call that its server runs as a task for a client that knows nothing of tasks: the gateway waits for the end.
//!
//! Owns the order: the call, then the task it became, then its end. Does not know how either is spelled. Invariant: a
//! client that goes away, or a time that passes, cancels the task.

use std::time::Duration;

use futures_util::stream;
use tokio::time::{Instant, timeout_at};

use crate::json::Text;
use crate::model::{Error, Event, Exchange};

/// Longest time for a user to answer what the task asks; the call's own time stands still meanwhile.
const ASK_TIME: Duration = Duration::from_secs(600);

/// Cancels a task.
type Cancel = Box<dyn FnOnce(&Text) + Send>;

/// What is done with the task that a call became.
pub(super) struct Steps {
    /// Waits for its end.
    pub(super) end: Box<dyn FnOnce(&Text) -> Exchange + Send>,
    /// Asks for its end before its time.
    pub(super) cancel: Cancel,
    /// Longest time for the task.
    pub(super) limit: Duration,
    /// What it means that the time passed.
    pub(super) late: Error,
}

struct Driven {
    exchange: Exchange,
    steps: Option<Steps>,
    /// The task, once there is one and for as long as it is not over.
    task: Option<(Text, Cancel, Error)>,
    limit: Duration,
    deadline: Option<Instant>,
    over: bool,
}

/// The exchange of a call, with its end where that is a task.
pub(super) fn drive(call: Exchange, steps: Steps) -> Exchange {
    let driven =
        Driven { exchange: call, limit: steps.limit, steps: Some(steps), task: None, deadline: None, over: false };
    Exchange::new(stream::unfold(driven, |mut driven| async move { driven.next().await.map(|event| (event, driven)) }))
}

impl Driven {
    async fn next(&mut self) -> Option<Event> {
        if self.over {
            return None;
        }
        loop {
            let event = match self.deadline {
                None => self.exchange.next_event().await,
                Some(deadline) => match timeout_at(deadline, self.exchange.next_event()).await {
                    Ok(event) => event,
                    Err(_) => return Some(self.late()),
                },
            };
            match event {
                Event::Done(Ok(outcome)) if outcome.task.is_some() && self.steps.is_some() => {
                    let (Some(task), Some(steps)) = (outcome.task, self.steps.take()) else { continue };
                    self.exchange = (steps.end)(&task.id);
                    self.task = Some((task.id, steps.cancel, steps.late));
                    self.deadline = Some(Instant::now() + self.limit);
                }
                Event::Done(end) => {
                    self.over = true;
                    self.task = None;
                    return Some(Event::Done(end));
                }
                Event::Ask(ask) => {
                    self.deadline = self.deadline.map(|_| Instant::now() + ASK_TIME + self.limit);
                    return Some(Event::Ask(ask));
                }
                notice @ Event::Notify(_) => return Some(notice),
            }
        }
    }

    fn late(&mut self) -> Event {
        self.over = true;
        let late = self.cancel().unwrap_or_else(|| Error::internal("a task was late before it was there"));
        Event::Done(Err(late))
    }

    fn cancel(&mut self) -> Option<Error> {
        let (id, cancel, late) = self.task.take()?;
        cancel(&id);
        Some(late)
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            self.cancel();
        }
    }
}
