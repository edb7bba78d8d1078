//! The end of a task, for a client that waits for it: looked for again and again, as often as the server allows.
//!
//! Owns the looking, and the cancellation that tells what came of it. Invariant: no question of a task is put twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::RpcError;
use crate::model::{
    Answers, Ask, AskState, Call, Caller, Error, Event, Exchange, Outcome, Reason, Task, TaskMethod, TaskStatus,
    TaskWish,
};
use crate::revision::driven::{self, Steps};
use crate::revision::fault;
use crate::revision::legacy::already;
use crate::revision::v2026_07_28::back::Inner;
use crate::revision::v2026_07_28::running::Running;
use crate::revision::v2026_07_28::tasks;

/// Longest time to wait for a task, and for a user's answer: a client may ask again.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Questions of one task that are put; it asks for ever otherwise.
const QUESTIONS_MAX: usize = 1000;
/// How long a cancelled task is looked at for its last state, and how often: somebody waits for the answer.
const SETTLE_MAX: Duration = Duration::from_secs(2);
const SETTLE_LOOK: Duration = Duration::from_millis(200);

/// A task that is waited for.
struct Awaited {
    server: Arc<Inner>,
    caller: Arc<Caller>,
    id: Text,
    asked: HashSet<Text>,
    answers: Option<oneshot::Receiver<Answers>>,
    /// When to look again.
    due: Instant,
    deadline: Instant,
    over: bool,
}

/// Waits for what the task comes to.
pub(super) fn end(server: Arc<Inner>, caller: Arc<Caller>, id: Text) -> Exchange {
    let now = Instant::now();
    let awaited = Awaited {
        server,
        caller,
        id,
        asked: HashSet::new(),
        answers: None,
        due: now,
        deadline: now + WAIT_MAX,
        over: false,
    };
    Exchange::new(stream::unfold(awaited, |mut awaited| async move {
        if awaited.over {
            return None;
        }
        let event = awaited.next().await;
        awaited.over = matches!(event, Event::Done(_));
        Some((event, awaited))
    }))
}

impl Awaited {
    async fn next(&mut self) -> Event {
        loop {
            if let Some(answers) = self.answers.take()
                && let Err(error) = self.answer(answers).await
            {
                return Event::Done(Err(error));
            }
            if self.due >= self.deadline {
                return Event::Done(Err(fault::timeout(&self.server.hello.server, WAIT_MAX)));
            }
            tokio::time::sleep_until(self.due).await;
            let task = match state(&self.server, &self.caller, &self.id).await {
                Ok(task) => task,
                Err(error) => return Event::Done(Err(error)),
            };
            self.due = Instant::now() + task.pause();
            if task.status.is_over() {
                return Event::Done(self.ended(task));
            }
            if let Some(ask) = self.ask(task) {
                return Event::Ask(ask);
            }
        }
    }

    /// "Clients SHOULD deduplicate `inputRequests` keys across consecutive polls".
    fn ask(&mut self, task: Task) -> Option<Ask> {
        let fresh = |key: &Text| !self.asked.contains(key);
        let requests: Vec<_> = task.questions.into_iter().filter(|(key, _)| fresh(key)).collect();
        if requests.is_empty() || self.asked.len() + requests.len() > QUESTIONS_MAX {
            return None;
        }
        self.asked.extend(requests.iter().map(|(key, _)| Text::from(key.as_str())));
        let (answer, answers) = oneshot::channel();
        self.answers = Some(answers);
        Some(Ask { requests, state: AskState::ServerWaits, server: None, answer })
    }

    async fn answer(&mut self, answers: oneshot::Receiver<Answers>) -> Result<(), Error> {
        let nobody = || Error::new(Reason::Cancelled, "The client did not answer what the server asked");
        let answers = timeout_at(self.deadline, answers).await.ok().and_then(Result::ok).ok_or_else(nobody)?;
        let mut responses = Object::new();
        for (key, answer) in answers {
            match answer {
                Ok(mut result) => {
                    crate::revision::legacy::unrelate(&mut result);
                    responses.set(key, result.raw());
                }
                // There is no word for a client's error; the call that waits ends with it.
                Err(error) => return Err(Error::answered(error)),
            }
        }
        let mut call = Call::of_task(TaskMethod::Answer, &self.id);
        call.params.set(Text::literal("inputResponses"), responses.raw());
        Running::start(self.server.clone(), self.caller.clone(), call).outcome().await.map(drop)
    }

    fn ended(&self, task: Task) -> Result<Outcome, Error> {
        let broken = |what| Err(fault::protocol(&self.server.hello.server, what));
        match (task.status, task.end) {
            (TaskStatus::Cancelled, _) => Err(Error::new(Reason::Cancelled, "The task was cancelled")),
            (_, Some(Ok(result))) => match result.as_object() {
                Some(mut result) => {
                    result.remove("resultType");
                    Ok(Outcome::of(result))
                }
                None => broken("the result of a task is no object"),
            },
            (_, Some(Err(error))) => match rpc_error(&error) {
                Some(error) => Err(Error::answered(error)),
                None => broken("the error of a task has no code or no message"),
            },
            (_, None) => broken("a task is over without a result"),
        }
    }
}

fn rpc_error(error: &Raw) -> Option<RpcError> {
    let error = error.as_object()?;
    let code = error.get("code")?.read().ok()?;
    Some(RpcError { code, message: error.text("message")?, data: error.get("data").cloned() })
}

/// The whole state of a task.
async fn state(server: &Arc<Inner>, caller: &Arc<Caller>, id: &Text) -> Result<Task, Error> {
    let call = Call { whole: true, ..Call::of_task(TaskMethod::State, id) };
    let outcome = Running::start(server.clone(), caller.clone(), call).outcome().await?;
    let missing = || fault::protocol(&server.hello.server, "the answer to tasks/get is no task");
    outcome.task.map(|task| *task).ok_or_else(missing)
}

/// Cancels a task and tells what became of it, for clients whose revision wants to know.
///
/// 2025-11-25/basic/utilities/tasks.mdx, Task Cancellation: "Receivers MUST reject cancellation requests for tasks
/// already in a terminal status", and "MUST transition the task to `cancelled` status before sending the response". In
/// this revision "eventual transition to `cancelled` is not guaranteed": after a while the state is told as it is.
pub(super) async fn cancel(server: Arc<Inner>, caller: Arc<Caller>, id: Text) -> Result<Outcome, Error> {
    let before = state(&server, &caller, &id).await?;
    if before.status.is_over() {
        return Err(already(before.status));
    }
    let call = Call::of_task(TaskMethod::Cancel, &id);
    Running::start(server.clone(), caller.clone(), call).outcome().await?;
    let until = Instant::now() + SETTLE_MAX;
    loop {
        let task = state(&server, &caller, &id).await?;
        let next = Instant::now() + task.pause().min(SETTLE_LOOK);
        if task.status.is_over() || next > until {
            let task = Task { questions: Vec::new(), end: None, ..task };
            return Ok(Outcome { task: Some(Box::new(task)), ..Outcome::default() });
        }
        tokio::time::sleep_until(next).await;
    }
}

/// A call of a client whose revision has no words for the extension: without it, unless the server cannot do without.
///
/// "If a server is unable to service a request to a client that does not declare this extension capability without
/// returning `CreateTaskResult`, the server MUST return an error with the code `-32021`": it never ran the call, so that
/// it may be sent again.
pub(super) fn undeclared(server: Arc<Inner>, caller: Arc<Caller>, call: Call) -> Exchange {
    let again = Call {
        meta: call.meta.clone(),
        progress: call.progress,
        definition: call.definition.clone(),
        task: TaskWish::May,
        ..Call::new(call.method.clone(), call.params.clone())
    };
    let first = Running::start(server.clone(), caller.clone(), call);
    let state = (first, Some((server, caller, again)), false);
    Exchange::new(stream::unfold(state, |(mut exchange, mut again, over)| async move {
        if over {
            return None;
        }
        loop {
            match exchange.next_event().await {
                Event::Done(Err(error)) if tasks::is_required(&error) && again.is_some() => {
                    let Some((server, caller, call)) = again.take() else { continue };
                    exchange = as_task(server, caller, call);
                }
                Event::Done(end) => return Some((Event::Done(end), (exchange, None, true))),
                event => return Some((event, (exchange, again, false))),
            }
        }
    }))
}

fn as_task(server: Arc<Inner>, caller: Arc<Caller>, call: Call) -> Exchange {
    let steps = Steps {
        end: Box::new({
            let (server, caller) = (server.clone(), caller.clone());
            move |id| end(server, caller, id.clone())
        }),
        cancel: Box::new({
            let (server, caller) = (server.clone(), caller.clone());
            move |id| {
                let Some(place) = server.hello.times.side().place() else { return };
                let call = Call::of_task(TaskMethod::Cancel, id);
                let cancelling = Running::start(server, caller, call).outcome();
                tokio::spawn(async move { drop((cancelling.await, place)) });
            }
        }),
        limit: server.hello.times.call(),
        late: fault::timeout(&server.hello.server, server.hello.times.call()),
    };
    driven::drive(Running::start(server, caller, call), steps)
}
