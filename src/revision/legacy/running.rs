//! One call on a legacy server, from its request to its answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio::task::coop;
use tokio::time::Instant;

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Id, Message, Notification, Request, Response, RpcError, code, to_bytes, write_request};
use crate::link::{Headers, LinkError, Messages};
use crate::model::{
    Again, Answers, Ask, AskKind, AskState, Call, Caller, Can, Error, Event, Exchange, LogWish, Method, Notice,
    Outcome, Principal, Question, TaskMethod, TaskWish,
};
use crate::revision::attribution::Target;
use crate::revision::calls::{Asking, CallEntry, Logs};
use crate::revision::legacy::back::LegacyServer;
use crate::revision::legacy::tasks;
use crate::revision::{connect, fault, forwarded_headers, notices, route};

/// A call on its way.
pub(super) struct Running {
    server: Arc<LegacyServer>,
    caller: Arc<Caller>,
    entry: CallEntry,
    method: Method,
    body: Bytes,
    forwarded: Headers,
    /// The request on its way, where something may come before its answer begins.
    sending: Option<BoxFuture<'static, Sent>>,
    messages: Option<Messages>,
    deadline: Instant,
    asks: Arc<Asks>,
    /// What progress notifications of this call name.
    token: u64,
    /// The task whose end is waited for.
    task: Option<Text>,
    /// Whether the call was sent as a task.
    as_task: bool,
    /// The session that the request was sent in, by its generation.
    sent_in: u64,
    /// Messages that its pipe had brought when the request was sent.
    heard: u64,
    phase: Phase,
}

#[derive(PartialEq)]
enum Phase {
    Unsent,
    Sent,
    Over,
}

impl Running {
    /// The exchange of a call, and what its progress is named by; nothing is sent before the first event is asked for.
    pub(super) fn start(server: Arc<LegacyServer>, caller: Arc<Caller>, call: Call) -> (Exchange, u64) {
        let running = Running::new(server, caller, call);
        let token = running.token;
        (running.exchange(), token)
    }

    /// Waits for what a task comes to, with the progress that is named by `token`.
    pub(super) fn end_of(server: Arc<LegacyServer>, caller: Arc<Caller>, id: &Text, token: u64) -> Exchange {
        let mut running = Running::new(server, caller, Call::of_task(TaskMethod::End, id));
        running.token = token;
        running.entry.attend(id.clone(), Some(token));
        running.exchange()
    }

    fn exchange(self) -> Exchange {
        Exchange::new(stream::unfold(
            self,
            |mut running| async move { running.next().await.map(|event| (event, running)) },
        ))
    }

    fn new(server: Arc<LegacyServer>, caller: Arc<Caller>, call: Call) -> Self {
        // A legacy server logs whether it was asked to or not: a message can be about any call of a client. It is not
        // about the gateway's own.
        let logs = match caller.log {
            _ if caller.principal.id == Principal::GATEWAY => Logs::Never,
            LogWish::Nothing => Logs::Unwanted(caller.principal.id),
            _ => Logs::Wanted(caller.principal.id),
        };
        let is_pipe = server.link.is_pipe();
        let target = if is_pipe && caller.can != Can::default() { Target::of(&call) } else { Target::default() };
        let entry = server.calls.open(&caller, logs, target);
        let task = if call.method == Method::Task(TaskMethod::End) { call.target() } else { None };
        if let Some(task) = &task {
            entry.attend(task.clone(), None);
        }
        let as_task = call.task != TaskWish::Never;
        let Call { method, params, meta, progress, received, .. } = call;
        let params = with_meta(params, meta, progress.then_some(entry.id));
        let body =
            to_bytes(params.size_hint(), |out| write_request(out, &Id::number(entry.id), method.name(), &params));
        let forwarded = forwarded_headers(&caller);
        // "It MUST block the response until the task reaches a terminal status": longer than a call may take.
        let wait = if task.is_some() { server.hello.times.ask() } else { Duration::ZERO };
        // What the call waited for its turn is part of its time.
        let deadline = received + server.hello.times.call() + wait;
        Running {
            token: entry.id,
            task,
            as_task,
            entry,
            method,
            body,
            forwarded,
            sending: None,
            messages: None,
            deadline,
            asks: Arc::default(),
            sent_in: 0,
            heard: 0,
            phase: Phase::Unsent,
            server,
            caller,
        }
    }

    async fn next(&mut self) -> Option<Event> {
        if self.phase == Phase::Over {
            return None;
        }
        let event = self.next_event().await;
        if matches!(event, Event::Done(_)) {
            self.phase = Phase::Over;
        }
        Some(event)
    }

    async fn next_event(&mut self) -> Event {
        if self.phase == Phase::Unsent {
            self.server.lower_level(&self.caller).await;
            self.server.settle(&self.caller).await;
            self.heard = self.server.link.count_heard();
            self.phase = Phase::Sent;
            // Where something may come on another stream, it is heard while the server says nothing on the call's own:
            // it may wait for the answer before it even sends its status.
            let sending = self.send();
            if self.entry.injected.is_some() && !self.server.link.is_pipe() {
                self.sending = Some(Box::pin(sending));
            } else {
                match self.server.hello.times.alarms().within(self.deadline, sending).await {
                    Ok((Ok(messages), sent_in)) => (self.messages, self.sent_in) = (Some(messages), sent_in),
                    Ok((Err(error), _)) => return Event::Done(Err(error)),
                    Err(_) => return self.timed_out(),
                }
            }
        }
        loop {
            match self.receive().await {
                Received::Message(Ok(message)) => {
                    if !matches!(message, Message::Response(_)) {
                        if !self.has_time() {
                            return self.timed_out();
                        }
                        // However much it says, others have their turns.
                        coop::consume_budget().await;
                    }
                    if let Some(event) = self.take(message).await {
                        return event;
                    }
                }
                Received::Sent((Ok(messages), sent_in)) => {
                    (self.messages, self.sent_in, self.sending) = (Some(messages), sent_in, None);
                }
                Received::Sent((Err(error), _)) => return Event::Done(Err(error)),
                Received::Message(Err(error)) => return Event::Done(Err(self.fault(&error))),
                Received::End => {
                    let reason = "the stream ended without an answer";
                    return Event::Done(Err(fault::protocol(&self.server.hello.server, reason)));
                }
                Received::Late => match self.more_time() {
                    Some(deadline) => self.deadline = deadline,
                    None => return self.timed_out(),
                },
            }
        }
    }

    async fn receive(&mut self) -> Received {
        let (messages, sending) = (&mut self.messages, &mut self.sending);
        let (server, task) = (&self.server, &self.task);
        let own = async {
            match (messages, sending) {
                (Some(messages), _) => messages.next().await.map_or(Received::End, Received::Message),
                (None, Some(sending)) => Received::Sent(sending.await),
                (None, None) => Received::End,
            }
        };
        let injected = async {
            match &self.entry.injected {
                Some(injected) => injected.next().await,
                None => std::future::pending().await,
            }
        };
        // Before the wait began, or while it did, the server may have asked where nobody knew yet who waits.
        let kept = async {
            match task {
                Some(task) => server.attended.next_kept(task).await,
                None => std::future::pending().await,
            }
        };
        let received = server.hello.times.alarms().within(self.deadline, async {
            tokio::select! {
                biased;
                received = own => received,
                message = injected => Received::Message(Ok(message)),
                request = kept => Received::Message(Ok(Message::Request(request))),
            }
        });
        received.await.unwrap_or(Received::Late)
    }

    /// While the user is being asked, the call's own time stands still; after the answer it begins anew. How long a
    /// question may stay open, and how often a call may ask, is bounded.
    fn more_time(&self) -> Option<Instant> {
        let timeout = self.server.hello.times.call();
        if self.asks.open.load(Ordering::Acquire) > 0 {
            return Some(Instant::now() + timeout);
        }
        let answered = *self.asks.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.map(|answered| answered + timeout).filter(|deadline| *deadline > Instant::now())
    }

    /// Whether the call has time for something that is not its answer: a server that has something to say all the time
    /// must not make its call last for as long as it likes.
    fn has_time(&mut self) -> bool {
        Instant::now() < self.deadline || self.more_time().map(|deadline| self.deadline = deadline).is_some()
    }

    fn timed_out(&mut self) -> Event {
        if self.server.link.is_pipe() && self.server.link.count_heard() == self.heard {
            self.server.calls.note_silence();
        }
        self.cancel("the gateway's timeout passed");
        Event::Done(Err(fault::timeout(&self.server.hello.server, self.server.hello.times.call())))
    }

    fn fault(&self, error: &LinkError) -> Error {
        fault::of_link(&self.server.hello.server, error)
    }

    // === sending ===

    /// Sends the request; once more if the session turns out to be gone.
    fn send(&self) -> impl Future<Output = Sent> + Send + 'static {
        let (server, body, id) = (self.server.clone(), self.body.clone(), self.entry.id);
        let (forwarded, changes) = (self.forwarded.clone(), matches!(self.method, Method::CallTool));
        async move {
            let sent_in = server.generation();
            let fault = |error: &LinkError| fault::of_link(&server.hello.server, error);
            let error = match server.send(body.clone(), Some(id), &forwarded).await {
                Ok(reply) => return (Ok(reply.messages), sent_in),
                Err(error) => error,
            };
            let proof = session_lost(&error, server.has_session());
            if proof == Lost::No {
                return (Err(fault(&error)), sent_in);
            }
            if let Err(e) = server.renew(sent_in).await {
                let failed = match e {
                    connect::ConnectError::Link(e) => fault(&e),
                    e => fault::down(&server.hello.server, &e.to_string()),
                };
                return (Err(not_renewed(failed, &proof, changes)), sent_in);
            }
            // A 404 proves that the call never ran. Anything else does not: only what changes nothing is sent again.
            if proof == Lost::Maybe && changes {
                return (Err(fault(&error)), sent_in);
            }
            let sent_in = server.generation();
            let again = server.send(body, Some(id), &forwarded).await;
            (again.map(|reply| reply.messages).map_err(|e| fault(&e)), sent_in)
        }
    }

    // === receiving ===

    async fn take(&mut self, message: Message) -> Option<Event> {
        match message {
            Message::Response(response) => {
                self.entry.answered();
                self.asks.is_answered.store(true, Ordering::Release);
                Some(Event::Done(self.end(response).await))
            }
            Message::Notification(notification) => self.notified(notification),
            Message::Request(request) => {
                // A server that takes no answers holds up its call, but for no longer than the call may take.
                let (alarms, deadline) = (self.server.hello.times.alarms().clone(), self.deadline);
                alarms.within(deadline, self.asked(request)).await.unwrap_or(None)
            }
        }
    }

    async fn end(&mut self, response: Response) -> Result<Outcome, Error> {
        match response.outcome {
            Ok(mut result) => {
                // A member of a later revision: here it is no word of the server's, and must not become one.
                if result.get("resultType").is_some() {
                    result.remove("resultType");
                }
                self.read(result)
            }
            Err(error) => {
                // Some servers say with status 200 that they forgot the session: the next call shall find a new one.
                if self.server.has_session() && speaks_of_lost_session(&error) {
                    let alarms = self.server.hello.times.alarms();
                    let _ = alarms.within(self.deadline, self.server.renew(self.sent_in)).await;
                }
                Err(Error::answered(error))
            }
        }
    }

    /// A result, with the task that it is or holds.
    fn read(&self, mut result: Object) -> Result<Outcome, Error> {
        let task = match self.method {
            // A server that does not take the call for a task answers with what it came to.
            Method::CallTool if self.as_task => tasks::created(&mut result),
            Method::Task(TaskMethod::State | TaskMethod::Cancel) => {
                let task = tasks::state(&mut result);
                let wrong = || fault::protocol(&self.server.hello.server, "its task has no taskId or no known status");
                Some(task.ok_or_else(wrong)?)
            }
            Method::Task(TaskMethod::End) => {
                tasks::unrelate(&mut result);
                None
            }
            _ => None,
        };
        Ok(Outcome { task: task.map(Box::new), ..Outcome::of(result) })
    }

    fn notified(&self, mut notification: Notification) -> Option<Event> {
        if let Some(task) = tasks::told(&notification) {
            self.server.publish(Notice::Task(Box::new(task)));
            return None;
        }
        if self.task.is_some() {
            tasks::unrelate(&mut notification.params);
        }
        match notices::read(notification) {
            Notice::Progress(params) => {
                let own = params.get("progressToken").is_some_and(|t| *t == Raw::number(self.token));
                own.then_some(Event::Notify(Notice::Progress(params)))
            }
            notice @ Notice::Log(..) => Some(Event::Notify(notice)),
            // A change that is told on a call's stream is for everybody.
            notice => {
                self.server.publish(notice);
                None
            }
        }
    }

    async fn asked(&mut self, request: Request) -> Option<Event> {
        let about = tasks::related(&request.params);
        if about.is_some() && about != self.task {
            // Another task's question, which may be another client's.
            self.server.asked_by_task(about.unwrap_or(Text::literal("")), request).await;
            return None;
        }
        if &*request.method == "ping" {
            self.server.reply(&request.id, Ok(Object::new())).await;
            return None;
        }
        let kind = AskKind::of(&request.method, &request.params);
        if kind == AskKind::Other {
            self.server.reply(&request.id, Err(route::unknown(&request))).await;
            return None;
        }
        let Request { id, method, mut params } = request;
        tasks::unrelate(&mut params);
        if self.asks.asked.fetch_add(1, Ordering::Relaxed) >= ASKS_MAX {
            let message = format!("This call asked for input {ASKS_MAX} times already, and no more is allowed").into();
            self.server.reply(&id, Err(RpcError { code: code::INVALID_REQUEST, message, data: None })).await;
            return None;
        }
        let (answer, answers) = oneshot::channel();
        let guard = AskGuard::new(&self.asks, self.server.calls.asking(self.entry.id));
        // On a pipe, it may be a question of another call of the same client.
        let another = (about.is_none() && self.server.link.is_pipe())
            .then(|| (self.caller.clone(), Request { id: id.clone(), method: method.clone(), params: params.clone() }));
        tokio::spawn(reply(self.server.clone(), id, about, another, answers, guard));
        let key = Text::literal("request");
        let requests = vec![(key, Question { kind, method, params })];
        Some(Event::Ask(Ask { requests, state: AskState::ServerWaits, server: None, answer }))
    }

    fn cancel(&mut self, reason: &str) {
        if std::mem::replace(&mut self.phase, Phase::Over) == Phase::Sent {
            if self.server.link.is_pipe() {
                self.entry.give_up();
            }
            let params =
                Object::new().with("requestId", Raw::number(self.entry.id)).with("reason", Raw::string(reason));
            self.server.notify("notifications/cancelled", params);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            self.cancel("the client no longer waits for it");
        }
    }
}

/// What came of sending, and the session that it was sent in.
type Sent = (Result<Messages, Error>, u64);

enum Received {
    Sent(Sent),
    Message(Result<Message, LinkError>),
    End,
    Late,
}

/// How often a server may ask in one call before it is taken to be asking for ever.
const ASKS_MAX: usize = 64;

/// What a call asked its user.
#[derive(Default)]
struct Asks {
    /// How often, all in all.
    asked: AtomicUsize,
    /// Questions without an answer.
    open: AtomicUsize,
    /// Whether the call was answered: what it still asks is another call's question.
    is_answered: AtomicBool,
    /// When the last answer was sent.
    answered: Mutex<Option<Instant>>,
}

/// One question that the user has not answered yet.
struct AskGuard {
    asks: Arc<Asks>,
    _asking: Asking,
}

impl AskGuard {
    fn new(asks: &Arc<Asks>, asking: Asking) -> Self {
        asks.open.fetch_add(1, Ordering::AcqRel);
        AskGuard { asks: asks.clone(), _asking: asking }
    }
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        *self.asks.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.asks.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for the client's answer and sends it to the server.
async fn reply(
    server: Arc<LegacyServer>,
    id: Id,
    task: Option<Text>,
    another: Option<(Arc<Caller>, Request)>,
    answers: oneshot::Receiver<Answers>,
    guard: AskGuard,
) {
    let answers = tokio::time::timeout(server.hello.times.ask(), answers).await;
    if let (Ok(Err(_)), Some((caller, request))) = (&answers, another)
        && guard.asks.is_answered.load(Ordering::Acquire)
        && server.calls.inject_again(&caller, request).is_ok()
    {
        return;
    }
    let mut outcome = match answers {
        Ok(Ok(mut answers)) if !answers.is_empty() => answers.swap_remove(0).1,
        _ => Err(RpcError { code: code::INTERNAL, message: "The client did not answer".into(), data: None }),
    };
    if let Ok(result) = &mut outcome {
        // What the client calls the task is no name for the server.
        tasks::unrelate(result);
        if let Some(task) = &task {
            tasks::relate(result, task);
        }
    }
    server.answer(&id, outcome).await;
    drop(guard);
}

/// The params with `_meta` as a legacy server takes it: the client's own, and our progress token.
fn with_meta(mut params: Object, mut meta: Object, token: Option<u64>) -> Object {
    if let Some(token) = token {
        meta.set(Text::literal("progressToken"), Raw::number(token));
    }
    if !meta.is_empty() {
        params.set(Text::literal("_meta"), meta.raw());
    }
    params
}

/// Whether the server forgot our session.
#[derive(PartialEq)]
enum Lost {
    No,
    /// It says something like it, but may have run the request.
    Maybe,
    /// It says so as the specification wants it said.
    Proven,
}

/// The error of a call whose session was lost and could not be renewed. Where the call may have run, it is not one that
/// was never sent, however little the server was there for its renewal.
fn not_renewed(failed: Error, proof: &Lost, changes: bool) -> Error {
    if *proof == Lost::Maybe && changes { failed.with_again(Again::No) } else { failed }
}

fn session_lost(error: &LinkError, had_session: bool) -> Lost {
    match error {
        LinkError::Status { status: 404, .. } if had_session => Lost::Proven,
        LinkError::Status { status: 400, message, .. } if had_session => match message.as_deref() {
            Some(Message::Response(Response { outcome: Err(error), .. }))
                if !error.message.to_lowercase().contains("session") =>
            {
                Lost::No
            }
            _ => Lost::Maybe,
        },
        _ => Lost::No,
    }
}

fn speaks_of_lost_session(error: &RpcError) -> bool {
    // These are about what was asked for, whose name may hold any word.
    if matches!(error.code, code::METHOD_NOT_FOUND | code::INVALID_PARAMS | super::RESOURCE_NOT_FOUND) {
        return false;
    }
    let text = error.message.to_lowercase();
    text.contains("session")
        && ["not found", "invalid", "expired", "unknown", "missing", "terminated"].iter().any(|w| text.contains(w))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;

    #[test]
    fn what_may_have_run_was_not_unsent() {
        let unreachable = || Error::new(Reason::ServerDown, "away").with_again(Again::Unsent);
        let again = |proof, changes| not_renewed(unreachable(), &proof, changes).again;
        assert_eq!(again(Lost::Maybe, true), Again::No);
        assert_eq!([again(Lost::Maybe, false), again(Lost::Proven, true)], [Again::Unsent; 2]);
    }
}
