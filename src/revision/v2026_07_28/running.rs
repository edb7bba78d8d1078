//! One call on a stateless server, with as many rounds as the server needs.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio::task::coop;
use tokio::time::Instant;

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Id, Message, Notification, Response, to_bytes, write_request};
use crate::link::{Headers, Messages, Outgoing};
use crate::model::{
    Answers, Ask, AskState, CacheHint, Call, Caller, Error, Event, Exchange, LogWish, Method, Notice, Outcome, Reason,
    Resume, TaskMethod, TaskWish,
};
use crate::revision::attribution::Target;
use crate::revision::calls::{CallEntry, Logs};
use crate::revision::v2026_07_28::back::Inner;
use crate::revision::v2026_07_28::{SERVER_INFO, headers, meta, tasks};
use crate::revision::{fault, forwarded_headers, notices};

/// How often a server may ask in one call before it is taken to be asking for ever.
const ROUNDS_MAX: usize = 10;

/// A call on its way.
pub(super) struct Running {
    server: Arc<Inner>,
    entry: CallEntry,
    method: Method,
    /// The params without what a round adds.
    params: Object,
    /// What the client brought from an earlier round.
    resume: Option<Box<Resume>>,
    headers: Headers,
    logs: Logs,
    caller: Arc<Caller>,
    messages: Option<Messages>,
    deadline: Instant,
    /// Messages that its pipe had brought when the request was sent.
    heard: u64,
    rounds: usize,
    /// Whether the answer may be a task.
    may_task: bool,
    phase: Phase,
}

enum Phase {
    Unsent,
    Sent,
    /// The client was asked; its answers start the next round.
    Asked(oneshot::Receiver<Answers>, Option<Raw>),
    Over,
}

impl Running {
    /// The exchange of a call; nothing is sent before it is asked for its first event.
    pub(super) fn start(server: Arc<Inner>, caller: Arc<Caller>, call: Call) -> Exchange {
        let target = call.target();
        let Call { method, mut params, meta, progress, definition, resume, task, received, .. } = call;
        let may_task = task != TaskWish::Never || matches!(method, Method::Task(_));
        // "The server MUST NOT emit `notifications/message` for a request that does not include this field": none can be
        // about a call that did not ask (server/utilities/logging.mdx).
        let logs = if caller.log == LogWish::Nothing { Logs::Never } else { Logs::Wanted(caller.principal.id) };
        let entry = server.calls.open(&caller, logs, Target::default());
        let meta = meta::write(meta, &caller, &server.hello.info, progress.then_some(entry.id), may_task);
        params.set(Text::literal("_meta"), meta.raw());
        // What a client of another revision may have put here is no answer to this server.
        if matches!(method, Method::CallTool | Method::GetPrompt | Method::ReadResource) {
            params.remove("inputResponses");
            params.remove("requestState");
        }
        let mut headers = if server.link.is_pipe() {
            Headers::new()
        } else {
            headers::write(method.name(), target.as_deref(), definition.as_deref(), params.get("arguments"))
        };
        headers.extend(forwarded_headers(&caller));
        // What the call waited for its turn is part of its time.
        let deadline = received + server.hello.times.call();
        let running = Running {
            server,
            entry,
            method,
            params,
            resume,
            headers,
            logs,
            caller,
            messages: None,
            deadline,
            heard: 0,
            rounds: 0,
            may_task,
            phase: Phase::Unsent,
        };
        Exchange::new(stream::unfold(running, |mut running| async move {
            running.next().await.map(|event| (event, running))
        }))
    }

    async fn next(&mut self) -> Option<Event> {
        let event = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Over => return None,
            Phase::Asked(answers, state) => match answers.await {
                Ok(answers) => self.retry(&answers, state).await,
                Err(_) => Err(Error::new(Reason::Cancelled, "The client did not answer what the server asked")),
            },
            Phase::Unsent => match self.resume.take() {
                Some(resume) => self.send(&with_round(self.params.clone(), resume.answers, resume.state)).await,
                None => {
                    let params = std::mem::take(&mut self.params);
                    let sent = self.send(&params).await;
                    self.params = params;
                    sent
                }
            },
            Phase::Sent => {
                self.phase = Phase::Sent;
                Ok(())
            }
        };
        let event = match event {
            Ok(()) => self.receive().await,
            Err(error) => Event::Done(Err(error)),
        };
        if matches!(event, Event::Done(_)) {
            self.phase = Phase::Over;
        }
        Some(event)
    }

    async fn send(&mut self, params: &Object) -> Result<(), Error> {
        let id = self.entry.id;
        let body = to_bytes(params.size_hint(), |out| write_request(out, &Id::number(id), self.method.name(), params));
        let outgoing = Outgoing { body, id: Some(id), headers: self.headers.clone() };
        self.phase = Phase::Sent;
        self.heard = self.server.link.count_heard();
        let name = &self.server.hello.server;
        let alarms = self.server.hello.times.alarms();
        match alarms.within(self.deadline, self.server.link.send(outgoing)).await {
            Ok(Ok(reply)) => {
                self.messages = Some(reply.messages);
                Ok(())
            }
            Ok(Err(e)) => Err(fault::of_link(name, &e)),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// basic/patterns/mrtr.mdx: the retry carries the answers and the server's state, under another id.
    async fn retry(&mut self, answers: &Answers, state: Option<Raw>) -> Result<(), Error> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            let reason = format!("it asked for input more than {ROUNDS_MAX} times in one call");
            return Err(fault::protocol(&self.server.hello.server, &reason));
        }
        let mut responses = Object::new();
        for (key, answer) in answers {
            match answer {
                Ok(result) => responses.set(key.clone(), result.raw()),
                // This revision has no word for a client's error; a refusal is the answer nearest to it.
                Err(error) => return Err(Error::answered(error.clone())),
            }
        }
        let responses = (!responses.is_empty()).then(|| responses.raw());
        let params = with_round(self.params.clone(), responses, state);
        self.entry = self.server.calls.open(&self.caller, self.logs, Target::default());
        self.deadline = Instant::now() + self.server.hello.times.call();
        self.send(&params).await
    }

    async fn receive(&mut self) -> Event {
        let name = self.server.hello.server.clone();
        loop {
            let Some(messages) = &mut self.messages else {
                return Event::Done(Err(Error::internal("a call was read before it was sent")));
            };
            match self.server.hello.times.alarms().within(self.deadline, messages.next()).await {
                Ok(Some(Ok(Message::Response(response)))) => {
                    self.entry.answered();
                    return self.end(response);
                }
                // One that is late does not become less late by what its server has to say.
                Ok(Some(Ok(Message::Notification(_) | Message::Request(_)))) if Instant::now() >= self.deadline => {
                    return Event::Done(Err(self.timed_out()));
                }
                Ok(Some(Ok(Message::Notification(notification)))) => {
                    coop::consume_budget().await;
                    if let Some(event) = self.notified(notification) {
                        return event;
                    }
                }
                // basic/transports/stdio.mdx: "The server MUST NOT write JSON-RPC requests to `stdout`."
                Ok(Some(Ok(Message::Request(_)))) => {
                    self.server.hello.metrics.dropped.with_label_values(&["server_request"]).inc()
                }
                Ok(Some(Err(e))) => return Event::Done(Err(fault::of_link(&name, &e))),
                Ok(None) => return Event::Done(Err(fault::protocol(&name, "the stream ended without an answer"))),
                Err(_) => return Event::Done(Err(self.timed_out())),
            }
        }
    }

    fn notified(&self, notification: Notification) -> Option<Event> {
        match notices::read(notification) {
            Notice::Progress(params) => {
                let own = params.get("progressToken").is_some_and(|t| *t == Raw::number(self.token()));
                own.then_some(Event::Notify(Notice::Progress(params)))
            }
            notice @ Notice::Log(..) => Some(Event::Notify(notice)),
            Notice::Changed(kind) => {
                self.server.changes.tell(kind);
                None
            }
            _ => None,
        }
    }

    /// The token is the first round's id: later rounds send the same `_meta`.
    fn token(&self) -> u64 {
        let meta = self.params.object("_meta");
        let token = meta.and_then(|meta| meta.get("progressToken").cloned());
        token.and_then(|t| t.read().ok()).unwrap_or(self.entry.id)
    }

    fn end(&mut self, response: Response) -> Event {
        let mut result = match response.outcome {
            Ok(result) => result,
            Err(error) => return Event::Done(Err(Error::answered(error))),
        };
        match result.text("resultType").as_deref() {
            Some("input_required") => self.asked(&result),
            Some("complete") => {
                result.remove("resultType");
                Event::Done(match self.method {
                    Method::Task(TaskMethod::State) => self.task(result),
                    _ => Ok(outcome(result)),
                })
            }
            Some("task") => {
                result.remove("resultType");
                Event::Done(self.task(result))
            }
            // An earlier revision's shape, or an extension's: not ours to judge.
            _ => Event::Done(Ok(outcome(result))),
        }
    }

    /// SEP-2663: "A server MUST NOT return `CreateTaskResult` to a client that did not include the extension capability
    /// on its request", and one "in response to an unsupported request type" is "an invalid response".
    fn task(&self, mut result: Object) -> Result<Outcome, Error> {
        let wrong = |what: &str| fault::protocol(&self.server.hello.server, what);
        if !self.may_task || !matches!(self.method, Method::CallTool | Method::Task(TaskMethod::State)) {
            return Err(wrong("it answered with a task where none may be"));
        }
        // The task first: its `ttlMs` is no hint for caches.
        let task = tasks::read(&mut result).map_err(|what| wrong(&format!("its task cannot be read: {what}")))?;
        Ok(Outcome { task: Some(Box::new(task)), ..outcome(result) })
    }

    fn asked(&mut self, result: &Object) -> Event {
        let state = result.get("requestState").cloned();
        let wrong = |what: &str| Event::Done(Err(fault::protocol(&self.server.hello.server, what)));
        let requests = match result.get("inputRequests").map(tasks::questions) {
            None => Vec::new(),
            Some(Ok(requests)) => requests,
            Some(Err(what)) => return wrong(what),
        };
        // "Servers MUST include at least one of `inputRequests` or `requestState`".
        if requests.is_empty() && state.is_none() {
            return wrong("it asks for input without saying which");
        }
        let (answer, answers) = oneshot::channel();
        self.phase = Phase::Asked(answers, state.clone());
        self.messages = None;
        Event::Ask(Ask { requests, state: AskState::ServerForgot(state), server: None, answer })
    }

    fn timed_out(&mut self) -> Error {
        if self.server.link.is_pipe() && self.server.link.count_heard() == self.heard {
            self.server.calls.note_silence();
        }
        self.cancel("the gateway's timeout passed");
        fault::timeout(&self.server.hello.server, self.server.hello.times.call())
    }

    /// On HTTP, closing the stream is the cancellation; on a pipe it must be said.
    fn cancel(&mut self, reason: &str) {
        let sent = matches!(std::mem::replace(&mut self.phase, Phase::Over), Phase::Sent);
        self.messages = None;
        if sent && self.server.link.is_pipe() {
            self.entry.give_up();
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

/// The params of one round.
fn with_round(mut params: Object, answers: Option<Raw>, state: Option<Raw>) -> Object {
    if let Some(answers) = answers {
        params.set(Text::literal("inputResponses"), answers);
    }
    if let Some(state) = state {
        params.set(Text::literal("requestState"), state);
    }
    params
}

/// A result without what this revision adds: who answered, and how long it may be kept.
fn outcome(mut result: Object) -> Outcome {
    let ttl = result.get("ttlMs").and_then(|raw| raw.read::<f64>().ok());
    let cache = ttl.map(|ttl| CacheHint {
        // "If `ttlMs` is negative, clients SHOULD ignore it and treat it as `0`."
        ttl_ms: if ttl.is_finite() && ttl > 0.0 { ttl as u64 } else { 0 },
        public: result.text("cacheScope").as_deref() == Some("public"),
    });
    if cache.is_some() {
        result.remove("ttlMs");
        result.remove("cacheScope");
    }
    if let Some(mut meta) = result.object("_meta")
        && meta.remove(SERVER_INFO).is_some()
    {
        if meta.is_empty() {
            result.remove("_meta");
        } else {
            result.set(Text::literal("_meta"), meta.raw());
        }
    }
    Outcome { result, cache, task: None }
}
