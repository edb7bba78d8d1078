//! Handling of one POST of a session: requests become calls, responses go to the servers that wait for them.
//!
//! Owns the start of a session's requests and the encoding of their results. Does not own the session. Invariant: a
//! disconnected client does not cancel its call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, stream};
use http::{HeaderMap, Response};
use tokio::time::Instant;

use crate::body::Body;
use crate::json::{JsonObject, RawJson};
use crate::jsonrpc::{MalformedMessage, RequestId, RpcError, RpcMessage, RpcRequest, code, encode_with, write_request};
use crate::model::{
    Call, Caller, Error, Exchange, ExchangeEvent, InputKind, InputRequired, LogFilter, McpErrorKind, McpMethod,
    Notification, Outcome, RequestState, Server, TaskMethod,
};
use crate::revision::legacy::downstream::{self, LegacyRefusal};
use crate::revision::legacy::resumable::{self, ResumableWriter};
use crate::revision::legacy::task_request::{self, TaskRequest};
use crate::revision::legacy::{capabilities, encode, profile};
use crate::revision::lookalikes::reject_lookalikes;
use crate::revision::respond::{self, InputAction, ResponseEncoder, ResponseOptions};
use crate::revision::{
    DownstreamState, count_local_answer, json_response, malformed_error, notifications, take_meta, trace_context,
};
use crate::session::{OpenCall, Session, Sessions};
use crate::sse;

/// Context of one POST.
pub(super) struct SessionRequest<'a> {
    pub(super) session: Arc<Session>,
    pub(super) server: Arc<dyn Server>,
    pub(super) received: Instant,
    /// True if the client accepts event streams.
    pub(super) stream: bool,
    pub(super) headers: &'a HeaderMap,
    pub(super) state: &'a Arc<DownstreamState>,
}

impl SessionRequest<'_> {
    /// Serves a single request.
    pub(super) async fn serve(&self, request: RpcRequest) -> Result<Response<Body>, LegacyRefusal> {
        let stream = self.may_stream();
        let (exchange, spell) = match self.start(request, stream) {
            LegacyStarted::Ready(parts) => return Ok(json_response(200, parts)),
            LegacyStarted::Running(exchange, spell) => (exchange, spell),
        };
        // The response must become a stream before that lifetime passes: only a stream can send the client away.
        let keep_alive = spell.stream_lifetime.map_or(self.state.keep_alive, |time| time.min(self.state.keep_alive));
        let (metrics, alarms) = (self.state.metrics.clone(), self.state.timers.clone());
        let writing = ResponseOptions { keep_alive, stream, metrics, timers: alarms };
        Ok(respond::respond(exchange, *spell, writing).await)
    }

    /// True if the response may become a stream: the client accepts streams, and the limit is not reached.
    fn may_stream(&self) -> bool {
        self.stream && self.state.metrics.streams.get() < i64::try_from(self.state.streams_max).unwrap_or(i64::MAX)
    }

    /// Accepts a notification or a response, which have no response themselves.
    pub(super) fn accept(&self, message: RpcMessage) {
        match message {
            RpcMessage::Notification(n) => downstream::on_notification(&self.session, &self.server, &n, self.state),
            RpcMessage::Response(response) => {
                let known = response.id.is_some_and(|id| self.session.deliver_response(&id, response.outcome));
                if !known {
                    self.state.metrics.dropped.with_label_values(&["client_answer"]).inc();
                }
            }
            RpcMessage::Request(_) => {}
        }
    }

    /// Serves a batch. Its responses go out as one array when all are complete.
    pub(super) async fn serve_batch(
        &self,
        items: Vec<Result<RpcMessage, MalformedMessage>>,
    ) -> Result<Response<Body>, LegacyRefusal> {
        Ok(match self.start_batch(items)? {
            Some(answers) => json_response(200, collect_array(answers).await),
            None => downstream::accepted_response(),
        })
    }

    /// Starts the requests of a batch. Returns `None` if no message in it needs a response.
    pub(super) fn start_batch(
        &self,
        items: Vec<Result<RpcMessage, MalformedMessage>>,
    ) -> Result<Option<Vec<LegacyStarted>>, Error> {
        let revision = self.session.caller.load().revision;
        if !profile(revision).is_some_and(|p| p.batches) {
            let message = format!("Invalid request: revision {revision} has no batches; send each message on its own");
            return Err(Error::new(McpErrorKind::InvalidRequest, message));
        }
        let mut answers = Vec::new();
        for item in items {
            match item {
                // The responses of a batch form one array, so there is no stream.
                Ok(RpcMessage::Request(request)) => answers.push(self.start(request, false)),
                Ok(other) => self.accept(other),
                Err(e) => {
                    let (id, error) = malformed_error(&e);
                    answers.push(LegacyStarted::Ready(vec![encode::encode_error(id.as_ref(), &error)]));
                }
            }
        }
        Ok((!answers.is_empty()).then_some(answers))
    }

    /// Starts one request. `stream` is true if other messages may precede its response.
    pub(super) fn start(&self, request: RpcRequest, stream: bool) -> LegacyStarted {
        let RpcRequest { id, method, mut params } = request;
        let now = |end: Result<JsonObject, Error>| {
            LegacyStarted::Ready(encode::encode_outcome(&id, &McpMethod::Complete, end.map(Outcome::from_result)))
        };
        // These methods never reach a server, so their metrics are counted here.
        let own = |method: &'static str, end: Result<JsonObject, Error>| {
            let (revision, took) = (self.session.caller.load().revision, self.received.elapsed());
            count_local_answer(&self.state.metrics, method, end.as_ref().err(), revision, took);
            now(end)
        };
        // Before any member is read: a checked name must be the only one that a server can read.
        if let Err(error) = reject_lookalikes(&method, &params) {
            return now(Err(error));
        }
        match &*method {
            "ping" => return own("ping", Ok(JsonObject::new())),
            "logging/setLevel" => return own("logging/setLevel", downstream::set_level(&self.session, &params)),
            "resources/subscribe" => {
                return match downstream::try_subscribe(self, &params) {
                    Some(subscribing) => self.start_subscribing(id, subscribing),
                    None => own("resources/subscribe", downstream::subscribe(&self.session, &self.server, &params)),
                };
            }
            "resources/unsubscribe" => {
                return own("resources/unsubscribe", downstream::unsubscribe(&self.session, &params));
            }
            _ => {}
        }
        let method = McpMethod::from_name(&method);
        if let McpMethod::Other(name) = &method {
            return own("_OTHER", Err(Error::new(McpErrorKind::UnknownMethod, format!("Method not found: {name}"))));
        }
        let caller = self.caller();
        let offered = || self.server.describe(&caller).features.tasks.is_some();
        let tasking = match task_request::read_task_request(caller.revision, &method, &mut params, offered) {
            Ok(tasking) => tasking,
            Err(error) => return now(Err(error)),
        };
        if let Some(end) =
            task_request::serve_gateway_task(&self.state.sessions.task_results, &caller.principal, &method, &params)
        {
            return now(end);
        }
        let mut meta = match take_meta(&mut params) {
            Ok(meta) => meta,
            Err(error) => return now(Err(error)),
        };
        trace_context::copy_headers(&mut meta, self.headers);
        let open = match self.begin_call(&id) {
            Ok(open) => open,
            Err(error) => return now(Err(error)),
        };
        // The client's token stays on this hop. The request to the server gets one of its own.
        let token = meta.remove("progressToken");
        let (task, whole) = (tasking.mode.clone(), method == McpMethod::Task(TaskMethod::Cancel));
        let progress = token.is_some();
        let call = Call {
            meta,
            progress,
            task_mode: task,
            detailed: whole,
            received: self.received,
            ..Call::new(method.clone(), params)
        };
        let exchange = self.server.call(&caller, call);
        let spell = self.spell(id, (method, tasking, token), caller, open, stream);
        LegacyStarted::Running(exchange, Box::new(spell))
    }

    /// Starts a subscription that waits for its server.
    fn start_subscribing(
        &self,
        id: RequestId,
        subscribing: BoxFuture<'static, Result<JsonObject, Error>>,
    ) -> LegacyStarted {
        let open = match self.begin_call(&id) {
            Ok(open) => open,
            Err(error) => return LegacyStarted::Ready(encode::encode_outcome(&id, &McpMethod::Complete, Err(error))),
        };
        let (caller, received, state) = (self.caller(), self.received, self.state.clone());
        let revision = caller.revision;
        let exchange = Exchange::new(stream::once(async move {
            let end = subscribing.await;
            count_local_answer(&state.metrics, "resources/subscribe", end.as_ref().err(), revision, received.elapsed());
            ExchangeEvent::Done(end.map(Outcome::from_result))
        }));
        let spell = self.spell(id, (McpMethod::Complete, TaskRequest::default(), None), caller, open, false);
        LegacyStarted::Running(exchange, Box::new(spell))
    }

    fn begin_call(&self, id: &RequestId) -> Result<OpenCall, Error> {
        self.session.begin_call(id).ok_or_else(|| {
            self.state.metrics.refused.with_label_values(&["session_calls"]).inc();
            Error::new(McpErrorKind::Overloaded, "The session has too many calls open; wait for some to end")
        })
    }

    fn spell(
        &self,
        id: RequestId,
        (method, tasking, token): (McpMethod, TaskRequest, Option<RawJson>),
        caller: Arc<Caller>,
        open: OpenCall,
        stream: bool,
    ) -> LegacyEncoder {
        // Without a stream there are no events to keep.
        let profile = profile(caller.revision).filter(|_| stream);
        LegacyEncoder {
            resumable: profile.and_then(|profile| ResumableWriter::new(profile, &self.session, &id, self.state)),
            stream_lifetime: profile.and_then(|profile| resumable::stream_lifetime(profile, &self.session, self.state)),
            id,
            method,
            task_request: tasking,
            sessions: self.state.sessions.clone(),
            token,
            log_filter: caller.log_filter,
            caller,
            open: Arc::new(open),
            stream,
            state: self.state.clone(),
        }
    }

    /// Returns the session's caller, with this request's headers if some server wants them.
    fn caller(&self) -> Arc<Caller> {
        let caller = self.session.caller.load_full();
        if self.state.forwarded_headers.is_empty() {
            return caller;
        }
        Arc::new(Caller {
            forwarded_headers: downstream::collect_forwarded(self.headers, self.state),
            ..(*caller).clone()
        })
    }
}

/// Collects the responses of a batch into one array.
pub(super) async fn collect_array(answers: Vec<LegacyStarted>) -> Vec<Bytes> {
    let finished = join_all(answers.into_iter().map(LegacyStarted::finish)).await;
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

/// Request that is complete, or runs.
pub(super) enum LegacyStarted {
    Ready(Vec<Bytes>),
    Running(Exchange, Box<LegacyEncoder>),
}

impl LegacyStarted {
    /// Waits for the response without a stream, so no notification or input request can precede it.
    async fn finish(self) -> Vec<Bytes> {
        match self {
            LegacyStarted::Ready(parts) => parts,
            LegacyStarted::Running(exchange, spell) => {
                BatchCall { exchange: Some(exchange), encoder: spell }.finish().await
            }
        }
    }
}

/// Unfinished call of a batch. It continues if its client disconnects.
struct BatchCall {
    exchange: Option<Exchange>,
    encoder: Box<LegacyEncoder>,
}

impl BatchCall {
    async fn finish(mut self) -> Vec<Bytes> {
        let token = self.encoder.open.token().clone();
        let end = loop {
            let Some(exchange) = &mut self.exchange else { return Vec::new() };
            // Other events cannot be sent before the array. A dropped input request tells the server that none will
            // come.
            tokio::select! {
                event = exchange.next_event() => if let ExchangeEvent::Done(end) = event { break end },
                () = token.cancelled() => break Err(Error::new(McpErrorKind::Cancelled, "Cancelled by the client")),
            }
        };
        self.exchange = None;
        self.encoder.encode_outcome(end)
    }
}

impl Drop for BatchCall {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.encoder.on_client_gone(exchange);
        }
    }
}

/// Encoder of one exchange for a legacy client.
pub(super) struct LegacyEncoder {
    id: RequestId,
    method: McpMethod,
    task_request: TaskRequest,
    sessions: Arc<Sessions>,
    token: Option<RawJson>,
    log_filter: LogFilter,
    caller: Arc<Caller>,
    open: Arc<OpenCall>,
    stream: bool,
    /// Writer that keeps the events for a client that reconnects.
    resumable: Option<ResumableWriter>,
    /// Time after which the client is disconnected, to reconnect for the rest.
    stream_lifetime: Option<Duration>,
    state: Arc<DownstreamState>,
}

impl ResponseEncoder for LegacyEncoder {
    fn notification(&mut self, notice: Notification) -> Option<Bytes> {
        match notice {
            // 2025-11-25/basic/utilities/progress.mdx: only for tokens "that were provided in an active request".
            Notification::Progress(params) => {
                self.token.as_ref().map(|token| notifications::encode_progress(params, token))
            }
            Notification::Log(level, _) if !self.log_filter.allows(level) => None,
            other => notifications::encode(&other)
                .map(|(method, params)| notifications::encode_notification(method, &params)),
        }
    }

    fn input_required(&mut self, ask: InputRequired) -> InputAction {
        let InputRequired { requests, state, responder: answer, .. } = ask;
        if let (RequestState::CarriedByClient(_), Some((_, question))) =
            (&state, requests.iter().find(|(_, q)| !self.caller.capabilities.supports(q.kind)))
        {
            let missing = question.kind.capability();
            let error = Error::new(
                McpErrorKind::MissingCapability,
                format!("The server asks for {missing}, which this client did not declare"),
            );
            return InputAction::End(200, self.result(Err(error)).1);
        }
        let mut messages = Vec::new();
        let mut waiting = Vec::new();
        for (key, question) in requests {
            let question = self.task_request.tag_request(question);
            let (outcome, kind) = self.send_input_request(&question, &mut messages);
            self.state.metrics.asks.with_label_values(&[question.kind.capability(), kind]).inc();
            waiting.push(async move { (key, outcome.wait().await) });
        }
        // A session with an open input request must not expire.
        let session = self.open.session().begin_activity();
        let cancelled = self.open.token().clone();
        let limit = self.state.input_timeout;
        tokio::spawn(async move {
            let _session = session;
            let answers = tokio::time::timeout(limit, join_all(waiting));
            // Dropping `answer` tells the server that no responses will come.
            tokio::select! {
                answers = answers => drop(answers.map(|answers| answer.send(answers))),
                () = cancelled.cancelled() => {}
            }
        });
        InputAction::Send(messages)
    }

    fn frame(&mut self, message: &[u8], last: bool) -> Bytes {
        match &mut self.resumable {
            Some(record) => record.frame(message, last),
            None => self
                .open
                .session()
                .shared_stream
                .as_ref()
                .map_or(sse::encode_event as fn(&[u8]) -> Bytes, |pipe| pipe.frame)(message),
        }
    }

    fn priming_event(&mut self) -> Option<Bytes> {
        self.resumable.as_mut()?.priming_event()
    }

    fn disconnect(&mut self) -> BoxFuture<'static, ()> {
        self.resumable.as_mut().map_or_else(|| std::future::pending().boxed(), ResumableWriter::wait_disconnect)
    }

    fn result(&mut self, end: Result<Outcome, Error>) -> (u16, Vec<Bytes>) {
        if let Err(Error { kind: McpErrorKind::ServerError(error), .. }) = &end {
            for mut page in capabilities::url_elicitations(error).into_iter().flatten() {
                if let Some(id) = capabilities::ensure_elicitation_id(&mut page) {
                    self.open.session().elicitation_opened(&id);
                }
            }
        }
        (200, self.encode_outcome(end))
    }

    fn wait_cancelled(&mut self) -> impl Future<Output = ()> + Send {
        self.open.token().clone().cancelled_owned()
    }

    // 2025-11-25/basic/utilities/cancellation.mdx omits the response only for requests named in
    // `notifications/cancelled`. A client that did not send one waits for its response.
    fn cancellation_error(&self) -> Option<Error> {
        let ended = self.open.session().caller.load().ended.is_cancelled();
        ended.then(|| Error::new(McpErrorKind::UnknownSession, "The session ended before the call did"))
    }

    // 2025-11-25/basic/transports.mdx, Sending Messages to the Server: "Disconnection SHOULD NOT be interpreted as
    // the client cancelling its request." The call continues until its timeout. A client that has an event id may come
    // back for the rest.
    fn on_client_gone(&mut self, exchange: Exchange) {
        let forgotten = self.resumable.as_ref().and_then(ResumableWriter::wait_abandoned);
        let record = self.resumable.take();
        if let Some(forgotten) = forgotten {
            let spell = LegacyEncoder {
                id: self.id.clone(),
                method: self.method.clone(),
                task_request: self.task_request.clone(),
                sessions: self.sessions.clone(),
                token: self.token.clone(),
                log_filter: self.log_filter,
                caller: self.caller.clone(),
                open: self.open.clone(),
                stream: self.stream,
                resumable: record,
                stream_lifetime: None,
                state: self.state.clone(),
            };
            tokio::spawn(respond::run_detached(exchange, spell, forgotten));
            return;
        }
        // The call stays cancellable by its id for as long as it runs.
        let open = self.open.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = exchange.outcome() => {}
                () = open.token().cancelled() => {}
            }
        });
    }
}

/// Source of the response to one input request.
enum ResponseSource {
    Client(tokio::sync::oneshot::Receiver<Result<JsonObject, RpcError>>),
    Refused(RpcError),
}

impl ResponseSource {
    async fn wait(self) -> Result<JsonObject, RpcError> {
        let gone = || RpcError { code: code::INTERNAL, message: "The client's session ended".into(), data: None };
        match self {
            ResponseSource::Client(receiver) => receiver.await.unwrap_or_else(|_| Err(gone())),
            ResponseSource::Refused(error) => Err(error),
        }
    }
}

impl LegacyEncoder {
    fn encode_outcome(&self, end: Result<Outcome, Error>) -> Vec<Bytes> {
        // Before the client learns of the task: from now on, the server's status notifications go to this session.
        if let (McpMethod::CallTool, Ok(Outcome { task: Some(task), .. })) = (&self.method, &end) {
            self.open.session().record_task(&task.id);
        }
        let keep = |result| self.sessions.task_results.store(&self.caller.principal, result);
        let end = self.task_request.finish(&self.method, end, keep);
        encode::encode_outcome(&self.id, &self.task_request.error_method(&self.method), end)
    }

    /// Sends one input request to the client. If that is not possible, returns the refusal and its metric label.
    fn send_input_request(
        &self,
        question: &crate::model::InputRequest,
        messages: &mut Vec<Bytes>,
    ) -> (ResponseSource, &'static str) {
        let refused = |message: String, why| {
            (
                ResponseSource::Refused(RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None }),
                why,
            )
        };
        if !self.caller.capabilities.supports(question.kind) {
            let missing = question.kind.capability();
            return refused(format!("The client did not declare {missing}"), "not_declared");
        }
        if !self.stream {
            return refused(
                "The client does not accept event streams, on which it could be asked".to_owned(),
                "no_stream",
            );
        }
        match self.open.session().expect_response() {
            None => refused("Too many requests wait for this client's answers".to_owned(), "too_many"),
            Some((id, receiver)) => {
                let mut params = question.params.clone();
                if question.kind == InputKind::ElicitUrl
                    && let Some(page) = capabilities::ensure_elicitation_id(&mut params)
                {
                    self.open.session().elicitation_opened(&page);
                }
                let hint = params.size_hint();
                messages.push(encode_with(hint, |out| write_request(out, &id, &question.method, &params)));
                (ResponseSource::Client(receiver), "asked")
            }
        }
    }
}
