//! Handling of one POST of a session: requests become calls, responses go to the servers that wait
//! for them.
//!
//! Owns the start of a session's requests and the encoding of their results. Does not own the
//! session. Invariant: a disconnected client does not cancel its call.

use moongate_telemetry::{DroppedItem, Limit};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use crate::body::Body;
use crate::dialect::DownstreamState;
use crate::error_labels::count_local_answer;
use crate::http_response::{accepted_response, json_response};
use crate::legacy::downstream::refusal::LegacyRefusal;
use crate::legacy::downstream::response_encoder::LegacyEncoder;
use crate::legacy::downstream::resumable::{self, ResumableWriter};
use crate::legacy::downstream::task_augmentation::{self, TaskAugmentation};
use crate::legacy::downstream::{encode, gateway_tasks, session_methods};
use crate::legacy::profile::profile;
use crate::lookalike_members::reject_lookalikes;
use crate::request_checks::{malformed_error, take_meta};
use crate::respond::{self, ResponseEncoder, ResponseOptions};
use crate::{client_headers, trace_context};
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_jsonrpc::message::{MalformedMessage, RequestId, RpcMessage, RpcRequest};
use moongate_model::{
    Call, Caller, Error, Exchange, ExchangeEvent, McpErrorKind, McpMethod, McpServer, Outcome,
    TaskMethod, extends_protocol,
};
use moongate_session::{Session, SessionCallGuard};

/// Context of one POST.
pub(crate) struct SessionRequest<'a> {
    pub(crate) session: Arc<Session>,
    pub(crate) endpoint: Arc<dyn McpServer>,
    pub(crate) received: Instant,
    /// True if the client accepts event streams.
    pub(crate) stream: bool,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) state: &'a Arc<DownstreamState>,
}

impl SessionRequest<'_> {
    /// Serves a single request.
    pub(crate) fn serve(&self, request: RpcRequest) -> BoxFuture<'static, Response<Body>> {
        let stream = self.may_stream();
        let (exchange, encoder) = match self.start(request, stream) {
            LegacyStarted::Ready(parts) => {
                return std::future::ready(json_response(200, parts)).boxed();
            }
            LegacyStarted::Running(exchange, encoder) => (exchange, encoder),
        };
        // The response must become a stream before that lifetime passes: only a stream can send the
        // client away.
        let keep_alive = encoder
            .stream_lifetime
            .map_or(self.state.keep_alive, |time| {
                time.min(self.state.keep_alive)
            });
        let metrics = self.state.metrics.clone();
        let timers = self.state.timers.clone();
        let options = ResponseOptions {
            keep_alive,
            stream,
            metrics,
            timers,
        };
        respond::respond(exchange, *encoder, options).boxed()
    }

    /// True if the response may become a stream: the client accepts streams, and the limit is not
    /// reached.
    fn may_stream(&self) -> bool {
        self.stream
            && self.state.metrics.clients.streams.get()
                < i64::try_from(self.state.streams_max).unwrap_or(i64::MAX)
    }

    /// Accepts a notification or a response, which have no response themselves.
    pub(crate) fn accept(&self, message: RpcMessage) {
        match message {
            RpcMessage::Notification(n) => {
                session_methods::on_notification(&self.session, &self.endpoint, &n, self.state)
            }
            RpcMessage::Response(response) => {
                let known = response.id.is_some_and(|id| {
                    self.session
                        .client_requests
                        .deliver_response(&id, response.outcome)
                });
                if !known {
                    self.state
                        .metrics
                        .calls
                        .dropped
                        .inc(DroppedItem::ClientResponse);
                }
            }
            RpcMessage::Request(_) => {}
        }
    }

    /// Serves a batch. Its responses go out as one array when all are complete.
    pub(crate) fn serve_batch(
        &self,
        items: Vec<Result<RpcMessage, MalformedMessage>>,
    ) -> Result<BoxFuture<'static, Response<Body>>, LegacyRefusal> {
        Ok(match self.start_batch(items)? {
            Some(answers) => async { json_response(200, collect_array(answers).await) }.boxed(),
            None => std::future::ready(accepted_response()).boxed(),
        })
    }

    /// Starts the requests of a batch. Returns `None` if no message in it needs a response.
    pub(crate) fn start_batch(
        &self,
        items: Vec<Result<RpcMessage, MalformedMessage>>,
    ) -> Result<Option<Vec<LegacyStarted>>, Error> {
        let revision = self.session.identity.revision();
        if !profile(revision).is_some_and(|p| p.batches) {
            let message = format!(
                "Invalid request: revision {revision} has no batches; send each message by itself"
            );
            return Err(Error::new(McpErrorKind::InvalidRequest, message));
        }
        let mut answers = Vec::new();
        for item in items {
            match item {
                // The responses of a batch form one array, so they need no stream.
                Ok(RpcMessage::Request(request)) => answers.push(self.start(request, false)),
                Ok(other) => self.accept(other),
                Err(e) => {
                    let (id, error) = malformed_error(&e);
                    answers.push(LegacyStarted::Ready(vec![encode::encode_error(
                        id.as_ref(),
                        &error,
                    )]));
                }
            }
        }
        Ok((!answers.is_empty()).then_some(answers))
    }

    /// Starts one request. `stream` is true if other messages may precede its response.
    pub(crate) fn start(&self, request: RpcRequest, stream: bool) -> LegacyStarted {
        let RpcRequest { id, method, params } = request;
        // Once for all below: each view of the name as text checks its encoding.
        let method: &str = &method;
        // Before any member is read: a checked name must be the only one that a server can read.
        if let Err(error) = reject_lookalikes(method, &params) {
            return end_request(&id, Err(error));
        }
        if let Some(started) = self.start_session_method(&id, method, &params) {
            return started;
        }
        let method = McpMethod::from_name(method);
        // Not forwarded: some spelling of a method that has rules.
        if let McpMethod::Other(name) = &method
            && !extends_protocol(name)
        {
            let error = Error::new(
                McpErrorKind::UnknownMethod,
                format!("Method not found: {name}"),
            );
            return self.end_counted(&id, "_OTHER", Err(error));
        }
        self.start_forwarded(id, method, params, stream)
    }

    /// Starts a method of the session. Returns `None` for all others.
    fn start_session_method(
        &self,
        id: &RequestId,
        method: &str,
        params: &JsonObject,
    ) -> Option<LegacyStarted> {
        let (method, end) = match method {
            // Answered here: a ping tests the connection of this hop.
            "ping" => ("ping", Ok(JsonObject::new())),
            "logging/setLevel" => (
                "logging/setLevel",
                session_methods::set_level(&self.session, params),
            ),
            "resources/subscribe" => {
                match session_methods::subscribe(&self.session, &self.endpoint, params) {
                    Ok(subscribing) => {
                        return Some(self.start_subscribing(id.clone(), subscribing));
                    }
                    Err(error) => ("resources/subscribe", Err(error)),
                }
            }
            "resources/unsubscribe" => (
                "resources/unsubscribe",
                session_methods::unsubscribe(&self.session, params),
            ),
            _ => return None,
        };
        Some(self.end_counted(id, method, end))
    }

    /// Ends a request of a method that never reaches a server, and counts it, since no server does.
    fn end_counted(
        &self,
        id: &RequestId,
        method: &'static str,
        end: Result<JsonObject, Error>,
    ) -> LegacyStarted {
        let revision = self.session.identity.revision();
        let took = self.received.elapsed();
        count_local_answer(
            &self.state.metrics,
            method,
            end.as_ref().err(),
            revision,
            took,
        );
        end_request(id, end)
    }

    /// Starts a request that becomes a call, unless it is about a task of the gateway.
    fn start_forwarded(
        &self,
        id: RequestId,
        method: McpMethod,
        mut params: JsonObject,
        stream: bool,
    ) -> LegacyStarted {
        let caller = self.caller();
        let task_augmentation = match task_augmentation::take_augmentation(
            caller.revision,
            &method,
            &mut params,
            || self.endpoint.describe(&caller).capabilities.tasks.is_some(),
        ) {
            Ok(task_augmentation) => task_augmentation,
            Err(error) => return end_request(&id, Err(error)),
        };
        if let Some(end) = gateway_tasks::serve_task_method(
            &self.state.sessions.task_results,
            &caller.principal,
            &method,
            &params,
        ) {
            return end_request(&id, end);
        }
        let mut meta = match take_meta(&mut params) {
            Ok(meta) => meta,
            Err(error) => return end_request(&id, Err(error)),
        };
        trace_context::copy_headers(&mut meta, self.headers);
        let call_guard = match self.begin_call(&id) {
            Ok(call_guard) => call_guard,
            Err(error) => return end_request(&id, Err(error)),
        };
        // The client's token stays on this hop, and the request to the server gets its own.
        let token = meta.remove("progressToken");
        let call = Call {
            meta,
            progress: token.is_some(),
            task_mode: task_augmentation.mode.clone(),
            detailed: method == McpMethod::Task(TaskMethod::Cancel),
            cancel_reason: Some(call_guard.cancel_reason().clone()),
            received: self.received,
            ..Call::new(method.clone(), params)
        };
        let exchange = self.start_call(&caller, call);
        let encoder = self.encoder(
            id,
            (method, task_augmentation, token),
            caller,
            call_guard,
            stream,
        );
        LegacyStarted::Running(exchange, Box::new(encoder))
    }

    /// Starts a subscription that waits for its server.
    fn start_subscribing(
        &self,
        id: RequestId,
        subscribing: session_methods::Subscribing,
    ) -> LegacyStarted {
        let call_guard = match self.begin_call(&id) {
            Ok(call_guard) => call_guard,
            Err(error) => return end_request(&id, Err(error)),
        };
        let caller = self.caller();
        let received = self.received;
        let state = self.state.clone();
        let revision = caller.revision;
        let exchange = Exchange::new(stream::once(async move {
            let end = subscribing.await;
            count_local_answer(
                &state.metrics,
                "resources/subscribe",
                end.as_ref().err(),
                revision,
                received.elapsed(),
            );
            ExchangeEvent::Done(end.map(Outcome::from_result))
        }));
        let encoder = self.encoder(
            id,
            (McpMethod::Complete, TaskAugmentation::default(), None),
            caller,
            call_guard,
            false,
        );
        LegacyStarted::Running(exchange, Box::new(encoder))
    }

    fn start_call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        // Before the server can ask: a connection of the session is opened by one of its calls.
        self.session
            .extension_check
            .get_or_init(|| self.endpoint.extension_check(caller));
        self.endpoint.call(caller, call)
    }

    fn begin_call(&self, id: &RequestId) -> Result<SessionCallGuard, Error> {
        self.session.begin_call(id).ok_or_else(|| {
            self.state.metrics.calls.refused.inc(Limit::SessionCalls);
            Error::new(
                McpErrorKind::Overloaded,
                "The session has too many calls open; wait for some to end",
            )
        })
    }

    fn encoder(
        &self,
        id: RequestId,
        (method, task_augmentation, token): (McpMethod, TaskAugmentation, Option<RawJson>),
        caller: Arc<Caller>,
        call_guard: SessionCallGuard,
        stream: bool,
    ) -> LegacyEncoder {
        // Without a stream there are no events to keep, and without a session nobody comes back for
        // them.
        let is_kept = stream && !self.session.identity.is_transient();
        let profile = profile(caller.revision).filter(|_| is_kept);
        LegacyEncoder {
            resumable: profile
                .and_then(|profile| ResumableWriter::new(profile, &self.session, &id, self.state)),
            stream_lifetime: profile
                .and_then(|profile| resumable::stream_lifetime(profile, &self.session, self.state)),
            id,
            method,
            task_augmentation,
            sessions: self.state.sessions.clone(),
            token,
            log_filter: caller.log_filter,
            caller,
            call_guard: Arc::new(call_guard),
            stream,
            asked: Vec::new(),
            state: self.state.clone(),
        }
    }

    /// Returns the session's caller, with this request's headers if some server needs them.
    fn caller(&self) -> Arc<Caller> {
        let caller = self.session.identity.shared_caller();
        if self.state.forwarded_headers.is_empty() {
            return caller;
        }
        Arc::new(Caller {
            forwarded_headers: client_headers::collect_headers(self.headers, self.state),
            ..(*caller).clone()
        })
    }
}

/// Ends a request that becomes no call.
fn end_request(id: &RequestId, end: Result<JsonObject, Error>) -> LegacyStarted {
    LegacyStarted::Ready(encode::encode_outcome(
        id,
        &McpMethod::Complete,
        end.map(Outcome::from_result),
    ))
}

/// Collects the responses of a batch into one array.
pub(crate) async fn collect_array(answers: Vec<LegacyStarted>) -> Vec<Bytes> {
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
pub(crate) enum LegacyStarted {
    Ready(Vec<Bytes>),
    Running(Exchange, Box<LegacyEncoder>),
}

impl LegacyStarted {
    /// Waits for the response without a stream, so no notification or input request can precede it.
    async fn finish(self) -> Vec<Bytes> {
        match self {
            LegacyStarted::Ready(parts) => parts,
            LegacyStarted::Running(exchange, encoder) => {
                BatchCall {
                    exchange: Some(exchange),
                    encoder,
                }
                .finish()
                .await
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
        let token = self.encoder.call_guard.token().clone();
        let end = loop {
            let Some(exchange) = &mut self.exchange else {
                return Vec::new();
            };
            // Other events cannot be sent before the array. A dropped input request shows the
            // server that none will come.
            tokio::select! {
                event = exchange.next_event() => if let ExchangeEvent::Done(end) = event {
                    break end },
                () = token.cancelled() => break Err(Error::new(McpErrorKind::Cancelled,
                    "Cancelled by the client")),
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
