//! One POST of a session: requests become calls, answers go to the servers that wait for them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, stream};
use http::{HeaderMap, Response};
use tokio::time::Instant;

use crate::body::Body;
use crate::json::{Object, Raw};
use crate::jsonrpc::{Id, Malformed, Message, Request, RpcError, code, to_bytes, write_request};
use crate::model::{
    Ask, AskKind, AskState, Call, Caller, Error, Event, Exchange, LogWish, Method, Notice, Outcome, Reason, Server,
    TaskMethod,
};
use crate::revision::answer::{self, Asked, Spell, Writing};
use crate::revision::legacy::front::{self, Refusal};
use crate::revision::legacy::record::{self, Recorder};
use crate::revision::legacy::tasking::{self, Tasking};
use crate::revision::legacy::{asks, profile, spell};
use crate::revision::lookalikes::refuse_lookalikes;
use crate::revision::{FrontState, count_own, json_response, malformed, notices, take_meta, trace_context};
use crate::session::{OpenCall, Session, Sessions};
use crate::sse;

/// What one POST is answered with.
pub(super) struct Turn<'a> {
    pub(super) session: Arc<Session>,
    pub(super) server: Arc<dyn Server>,
    pub(super) received: Instant,
    /// Whether the client takes event streams.
    pub(super) stream: bool,
    pub(super) headers: &'a HeaderMap,
    pub(super) state: &'a Arc<FrontState>,
}

impl Turn<'_> {
    /// A request.
    pub(super) async fn request(&self, request: Request) -> Result<Response<Body>, Refusal> {
        let stream = self.may_stream();
        let (exchange, spell) = match self.start(request, stream) {
            Started::Now(parts) => return Ok(json_response(200, parts)),
            Started::Running(exchange, spell) => (exchange, spell),
        };
        let keep_alive = spell.patience.map_or(self.state.keep_alive, |time| time.min(self.state.keep_alive));
        let (metrics, alarms) = (self.state.metrics.clone(), self.state.alarms.clone());
        let writing = Writing { keep_alive, stream, metrics, alarms };
        Ok(answer::answer(exchange, *spell, writing).await)
    }

    /// Whether the answer may become a stream: the client takes them, and there are not too many.
    fn may_stream(&self) -> bool {
        self.stream && self.state.metrics.streams.get() < i64::try_from(self.state.streams_max).unwrap_or(i64::MAX)
    }

    /// A notification or an answer: nothing comes back.
    pub(super) fn other(&self, message: Message) {
        match message {
            Message::Notification(n) => front::notified(&self.session, &self.server, &n, self.state),
            Message::Response(response) => {
                let known = response.id.is_some_and(|id| self.session.answered(&id, response.outcome));
                if !known {
                    self.state.metrics.dropped.with_label_values(&["client_answer"]).inc();
                }
            }
            Message::Request(_) => {}
        }
    }

    /// Several messages: their answers come back as one array, when all are there.
    pub(super) async fn batch(&self, items: Vec<Result<Message, Malformed>>) -> Result<Response<Body>, Refusal> {
        Ok(match self.start_batch(items)? {
            Some(answers) => json_response(200, array(answers).await),
            None => front::accepted(),
        })
    }

    /// Starts what is in a batch; nothing where nothing in it is to be answered.
    pub(super) fn start_batch(&self, items: Vec<Result<Message, Malformed>>) -> Result<Option<Vec<Started>>, Error> {
        let revision = self.session.caller.load().revision;
        if !profile(revision).is_some_and(|p| p.batches) {
            let message = format!("Invalid request: revision {revision} has no batches; send each message on its own");
            return Err(Error::new(Reason::InvalidRequest, message));
        }
        let mut answers = Vec::new();
        for item in items {
            match item {
                Ok(Message::Request(request)) => answers.push(self.start(request, false)),
                Ok(other) => self.other(other),
                Err(e) => {
                    let (id, error) = malformed(&e);
                    answers.push(Started::Now(vec![spell::failure(id.as_ref(), &error)]));
                }
            }
        }
        Ok((!answers.is_empty()).then_some(answers))
    }

    /// Starts one request; `stream`: whether it can be answered with more than its answer.
    pub(super) fn start(&self, request: Request, stream: bool) -> Started {
        let Request { id, method, mut params } = request;
        let now =
            |end: Result<Object, Error>| Started::Now(spell::answer(&id, &Method::Complete, end.map(Outcome::of)));
        // Answered here: counted here, too.
        let own = |method: &'static str, end: Result<Object, Error>| {
            let (revision, took) = (self.session.caller.load().revision, self.received.elapsed());
            count_own(&self.state.metrics, method, end.as_ref().err(), revision, took);
            now(end)
        };
        if let Err(error) = refuse_lookalikes(&method, &params) {
            return now(Err(error));
        }
        match &*method {
            "ping" => return own("ping", Ok(Object::new())),
            "logging/setLevel" => return own("logging/setLevel", front::set_level(&self.session, &params)),
            "resources/subscribe" => {
                return match front::try_subscribe(self, &params) {
                    Some(subscribing) => self.start_subscribing(id, subscribing),
                    None => own("resources/subscribe", front::subscribe(&self.session, &self.server, &params)),
                };
            }
            "resources/unsubscribe" => {
                return own("resources/unsubscribe", front::unsubscribe(&self.session, &params));
            }
            _ => {}
        }
        let method = Method::from_name(&method);
        if let Method::Other(name) = &method {
            return own("_OTHER", Err(Error::new(Reason::UnknownMethod, format!("Method not found: {name}"))));
        }
        let caller = self.caller();
        let offered = || self.server.describe(&caller).features.tasks.is_some();
        let tasking = match tasking::read(caller.revision, &method, &mut params, offered) {
            Ok(tasking) => tasking,
            Err(error) => return now(Err(error)),
        };
        if let Some(end) = tasking::kept(&self.state.sessions.finished, &caller.principal, &method, &params) {
            return now(end);
        }
        let mut meta = match take_meta(&mut params) {
            Ok(meta) => meta,
            Err(error) => return now(Err(error)),
        };
        trace_context::adopt(&mut meta, self.headers);
        let open = match self.begin_call(&id) {
            Ok(open) => open,
            Err(error) => return now(Err(error)),
        };
        let token = meta.remove("progressToken");
        let (task, whole) = (tasking.wish.clone(), method == Method::Task(TaskMethod::Cancel));
        let progress = token.is_some();
        let call = Call { meta, progress, task, whole, received: self.received, ..Call::new(method.clone(), params) };
        let exchange = self.server.call(&caller, call);
        let spell = self.spell(id, (method, tasking, token), caller, open, stream);
        Started::Running(exchange, Box::new(spell))
    }

    /// Starts a subscription that waits for its server.
    fn start_subscribing(&self, id: Id, subscribing: BoxFuture<'static, Result<Object, Error>>) -> Started {
        let open = match self.begin_call(&id) {
            Ok(open) => open,
            Err(error) => return Started::Now(spell::answer(&id, &Method::Complete, Err(error))),
        };
        let (caller, received, state) = (self.caller(), self.received, self.state.clone());
        let revision = caller.revision;
        let exchange = Exchange::new(stream::once(async move {
            let end = subscribing.await;
            count_own(&state.metrics, "resources/subscribe", end.as_ref().err(), revision, received.elapsed());
            Event::Done(end.map(Outcome::of))
        }));
        let spell = self.spell(id, (Method::Complete, Tasking::default(), None), caller, open, false);
        Started::Running(exchange, Box::new(spell))
    }

    fn begin_call(&self, id: &Id) -> Result<OpenCall, Error> {
        self.session.begin_call(id).ok_or_else(|| {
            self.state.metrics.refused.with_label_values(&["session_calls"]).inc();
            Error::new(Reason::Overloaded, "The session has too many calls open; wait for some to end")
        })
    }

    fn spell(
        &self,
        id: Id,
        (method, tasking, token): (Method, Tasking, Option<Raw>),
        caller: Arc<Caller>,
        open: OpenCall,
        stream: bool,
    ) -> LegacySpell {
        let profile = profile(caller.revision).filter(|_| stream);
        LegacySpell {
            record: profile.and_then(|profile| Recorder::new(profile, &self.session, &id, self.state)),
            patience: profile.and_then(|profile| record::stream_time(profile, &self.session, self.state)),
            id,
            method,
            tasking,
            sessions: self.state.sessions.clone(),
            token,
            log: caller.log,
            caller,
            open: Arc::new(open),
            stream,
            state: self.state.clone(),
        }
    }

    /// The session's caller, with the headers of this request where some server wants them.
    fn caller(&self) -> Arc<Caller> {
        let caller = self.session.caller.load_full();
        if self.state.forwarded.is_empty() {
            return caller;
        }
        Arc::new(Caller { headers: front::forwarded(self.headers, self.state), ..(*caller).clone() })
    }
}

/// The answers to a batch, as one array.
pub(super) async fn array(answers: Vec<Started>) -> Vec<Bytes> {
    let finished = join_all(answers.into_iter().map(Started::finish)).await;
    let mut body = vec![Bytes::from_static(b"[")];
    for (n, parts) in finished.into_iter().enumerate() {
        if n > 0 {
            body.push(Bytes::from_static(b","));
        }
        body.extend(parts);
    }
    body.push(Bytes::from_static(b"]"));
    body
}

/// A request that was answered at once, or runs.
pub(super) enum Started {
    Now(Vec<Bytes>),
    Running(Exchange, Box<LegacySpell>),
}

impl Started {
    /// Waits for the answer, without a stream: nothing can be said or asked before it.
    async fn finish(self) -> Vec<Bytes> {
        match self {
            Started::Now(parts) => parts,
            Started::Running(exchange, spell) => Unanswered { exchange: Some(exchange), spell }.finish().await,
        }
    }
}

/// A call of a batch that is not answered yet; it goes on where its client breaks off.
struct Unanswered {
    exchange: Option<Exchange>,
    spell: Box<LegacySpell>,
}

impl Unanswered {
    async fn finish(mut self) -> Vec<Bytes> {
        let token = self.spell.open.token().clone();
        let end = loop {
            let Some(exchange) = &mut self.exchange else { return Vec::new() };
            // Whatever else comes cannot be told before the answers: a question is refused by being dropped.
            tokio::select! {
                event = exchange.next_event() => if let Event::Done(end) = event { break end },
                () = token.cancelled() => break Err(Error::new(Reason::Cancelled, "Cancelled by the client")),
            }
        };
        self.exchange = None;
        self.spell.answer(end)
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.spell.abandoned(exchange);
        }
    }
}

/// How an exchange is written to a legacy client.
pub(super) struct LegacySpell {
    id: Id,
    method: Method,
    tasking: Tasking,
    sessions: Arc<Sessions>,
    token: Option<Raw>,
    log: LogWish,
    caller: Arc<Caller>,
    open: Arc<OpenCall>,
    stream: bool,
    /// Keeps the events for a client that comes back.
    record: Option<Recorder>,
    /// Silence after which the client is let go, to come back for the answer.
    patience: Option<Duration>,
    state: Arc<FrontState>,
}

impl Spell for LegacySpell {
    fn notice(&mut self, notice: Notice) -> Option<Bytes> {
        match notice {
            // 2025-11-25/basic/utilities/progress.mdx: only for tokens "that were provided in an active request".
            Notice::Progress(params) => self.token.as_ref().map(|token| notices::progress(params, token)),
            Notice::Log(level, _) if !self.log.wants(level) => None,
            other => notices::write(&other).map(|(method, params)| notices::notification(method, &params)),
        }
    }

    fn ask(&mut self, ask: Ask) -> Asked {
        let Ask { requests, state, answer, .. } = ask;
        if let (AskState::ServerForgot(_), Some((_, question))) =
            (&state, requests.iter().find(|(_, q)| !self.caller.can.answer(q.kind)))
        {
            let missing = question.kind.capability();
            let error = Error::new(
                Reason::MissingCapability,
                format!("The server asks for {missing}, which this client did not declare"),
            );
            return Asked::End(200, self.done(Err(error)).1);
        }
        let mut messages = Vec::new();
        let mut waiting = Vec::new();
        for (key, question) in requests {
            let question = self.tasking.question(question);
            let (outcome, kind) = self.put(&question, &mut messages);
            self.state.metrics.asks.with_label_values(&[question.kind.capability(), kind]).inc();
            waiting.push(async move { (key, outcome.wait().await) });
        }
        let session = self.open.session().busy();
        let cancelled = self.open.token().clone();
        let limit = self.state.ask_timeout;
        tokio::spawn(async move {
            let _session = session;
            let answers = tokio::time::timeout(limit, join_all(waiting));
            // Dropping `answer` tells the server's side that none will come.
            tokio::select! {
                answers = answers => drop(answers.map(|answers| answer.send(answers))),
                () = cancelled.cancelled() => {}
            }
        });
        Asked::Send(messages)
    }

    fn event(&mut self, message: &[u8], last: bool) -> Bytes {
        match &mut self.record {
            Some(record) => record.event(message, last),
            None => {
                self.open.session().pipe.as_ref().map_or(sse::frame as fn(&[u8]) -> Bytes, |pipe| pipe.frame)(message)
            }
        }
    }

    fn prime(&mut self) -> Option<Bytes> {
        self.record.as_mut()?.prime()
    }

    fn let_go(&mut self) -> BoxFuture<'static, ()> {
        self.record.as_mut().map_or_else(|| std::future::pending().boxed(), Recorder::let_go)
    }

    fn done(&mut self, end: Result<Outcome, Error>) -> (u16, Vec<Bytes>) {
        if let Err(Error { reason: Reason::Answered(error), .. }) = &end {
            for mut page in asks::url_elicitations(error).into_iter().flatten() {
                if let Some(id) = asks::page_id(&mut page) {
                    self.open.session().sent_to_page(&id);
                }
            }
        }
        (200, self.answer(end))
    }

    fn cancelled(&mut self) -> impl Future<Output = ()> + Send {
        self.open.token().clone().cancelled_owned()
    }

    /// 2025-11-25/basic/utilities/cancellation.mdx has no answer only for what `notifications/cancelled` names: whoever did
    /// not send that waits for one.
    fn withdrawn(&self) -> Option<Error> {
        let ended = self.open.session().caller.load().ended.is_cancelled();
        ended.then(|| Error::new(Reason::UnknownSession, "The session ended before the call did"))
    }

    /// 2025-11-25/basic/transports.mdx, Sending Messages to the Server: "Disconnection SHOULD NOT be interpreted as
    /// the client cancelling its request." The call goes on; its timeout bounds it. A client that has an event's id
    /// may come back for the rest.
    fn abandoned(&mut self, exchange: Exchange) {
        let forgotten = self.record.as_ref().and_then(Recorder::left);
        let record = self.record.take();
        if let Some(forgotten) = forgotten {
            let spell = LegacySpell {
                id: self.id.clone(),
                method: self.method.clone(),
                tasking: self.tasking.clone(),
                sessions: self.sessions.clone(),
                token: self.token.clone(),
                log: self.log,
                caller: self.caller.clone(),
                open: self.open.clone(),
                stream: self.stream,
                record,
                patience: None,
                state: self.state.clone(),
            };
            tokio::spawn(answer::go_on(exchange, spell, forgotten));
            return;
        }
        // It stays cancellable by its id for as long as it runs.
        let open = self.open.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = exchange.outcome() => {}
                () = open.token().cancelled() => {}
            }
        });
    }
}

/// Where the answer to one question comes from.
enum Expected {
    Client(tokio::sync::oneshot::Receiver<Result<Object, RpcError>>),
    Refused(RpcError),
}

impl Expected {
    async fn wait(self) -> Result<Object, RpcError> {
        let gone = || RpcError { code: code::INTERNAL, message: "The client's session ended".into(), data: None };
        match self {
            Expected::Client(receiver) => receiver.await.unwrap_or_else(|_| Err(gone())),
            Expected::Refused(error) => Err(error),
        }
    }
}

impl LegacySpell {
    fn answer(&self, end: Result<Outcome, Error>) -> Vec<Bytes> {
        // Before the client knows of it: what the server tells of the task from now on is for this session.
        if let (Method::CallTool, Ok(Outcome { task: Some(task), .. })) = (&self.method, &end) {
            self.open.session().made_task(&task.id);
        }
        let keep = |result| self.sessions.finished.keep(&self.caller.principal, result);
        let end = self.tasking.end(&self.method, end, keep);
        spell::answer(&self.id, &self.tasking.fails_as(&self.method), end)
    }

    /// Puts one question to the client, or says why it cannot be put.
    fn put(&self, question: &crate::model::Question, messages: &mut Vec<Bytes>) -> (Expected, &'static str) {
        let refused = |message: String, why| {
            (Expected::Refused(RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None }), why)
        };
        if !self.caller.can.answer(question.kind) {
            let missing = question.kind.capability();
            return refused(format!("The client did not declare {missing}"), "not_declared");
        }
        if !self.stream {
            return refused(
                "The client does not accept event streams, on which it could be asked".to_owned(),
                "no_stream",
            );
        }
        match self.open.session().expect_answer() {
            None => refused("Too many requests wait for this client's answers".to_owned(), "too_many"),
            Some((id, receiver)) => {
                let mut params = question.params.clone();
                if question.kind == AskKind::ElicitUrl
                    && let Some(page) = asks::page_id(&mut params)
                {
                    self.open.session().sent_to_page(&page);
                }
                let hint = params.size_hint();
                messages.push(to_bytes(hint, |out| write_request(out, &id, &question.method, &params)));
                (Expected::Client(receiver), "asked")
            }
        }
    }
}
