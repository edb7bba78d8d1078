//! Call on a legacy server, from its request to its response.
//!
//! Owns the deadline of one call, its input requests and its progress token. Does not own the session; that is
//! `LegacyConnection`. Invariant: a call that may have run and may change something is not sent twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio::task::coop;
use tokio::time::Instant;

use crate::correlation::{CallEntry, LogInterest};
use crate::http_message::forwarded_headers;
use crate::input_attribution::CallTarget;
use crate::legacy::tasks;
use crate::legacy::upstream::call_inputs::{CountedInputGuard, INPUT_REQUESTS_MAX, InputCounter, forward_responses};
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::session_loss::{SessionLoss, classify_loss, mentions_lost_session, renewal_error};
use crate::{connect_error, link_error, notifications, pipe_routes};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{
    RequestId, RpcError, RpcMessage, RpcNotification, RpcRequest, RpcResponse, code, encode_with, write_request,
};
use moongate_model::{
    Call, Caller, ClientCapabilities, Error, Exchange, ExchangeEvent, InputKind, InputRequest, InputRequired,
    LogFilter, McpMethod, Notification, Outcome, Principal, RequestState, TaskMethod, TaskMode,
};
use moongate_transport::{HeaderList, LinkError, MessageStream};

/// Call in progress.
pub(crate) struct LegacyCall {
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    entry: CallEntry,
    method: McpMethod,
    body: Bytes,
    forwarded: HeaderList,
    /// Request being sent, if messages may arrive on another stream before its response begins.
    sending: Option<BoxFuture<'static, SendResult>>,
    messages: Option<MessageStream>,
    deadline: Instant,
    inputs: Arc<InputCounter>,
    /// Progress token of this call.
    token: u64,
    /// Task whose result the call awaits.
    task: Option<ByteString>,
    /// True if the call was sent as a task.
    as_task: bool,
    /// Generation of the session in which the request was sent.
    sent_generation: u64,
    /// Number of messages that the pipe had delivered when the request was sent.
    received_before: u64,
    phase: SendPhase,
}

#[derive(PartialEq)]
enum SendPhase {
    NotSent,
    Sent,
    Finished,
}

impl LegacyCall {
    /// Creates the exchange of a call and its progress token. Sends nothing before the first event is polled.
    pub(crate) fn start(server: Arc<LegacyConnection>, caller: Arc<Caller>, call: Call) -> (Exchange, u64) {
        let running = LegacyCall::new(server, caller, call);
        let token = running.token;
        (running.into_exchange(), token)
    }

    /// Awaits the result of a task and forwards its progress under `token`.
    pub(crate) fn await_task_result(
        server: Arc<LegacyConnection>,
        caller: Arc<Caller>,
        id: &ByteString,
        token: u64,
    ) -> Exchange {
        let mut running = LegacyCall::new(server, caller, Call::for_task(TaskMethod::Result, id));
        running.token = token;
        running.entry.set_awaited_task(id.clone(), Some(token));
        running.into_exchange()
    }

    fn into_exchange(self) -> Exchange {
        Exchange::new(stream::unfold(
            self,
            |mut running| async move { running.next().await.map(|event| (event, running)) },
        ))
    }

    fn new(server: Arc<LegacyConnection>, caller: Arc<Caller>, call: Call) -> Self {
        // A legacy server logs whether a client requested it or not, so a message can be about any client call. It is
        // never about the gateway's own.
        let logs = match caller.log_filter {
            _ if caller.principal.id == Principal::GATEWAY => LogInterest::Never,
            LogFilter::Nothing => LogInterest::Unwanted(caller.principal.id),
            _ => LogInterest::Wanted(caller.principal.id),
        };
        let is_pipe = server.link.is_multiplexed();
        let target = if is_pipe && caller.capabilities != ClientCapabilities::default() {
            CallTarget::from_call(&call)
        } else {
            CallTarget::default()
        };
        let entry = server.calls.open(&caller, logs, target);
        let task = if call.method == McpMethod::Task(TaskMethod::Result) { call.target() } else { None };
        if let Some(task) = &task {
            entry.set_awaited_task(task.clone(), None);
        }
        let as_task = call.task_mode != TaskMode::Never;
        let Call { method, params, meta, progress, received, .. } = call;
        let params = with_meta(params, meta, progress.then_some(entry.id));
        let body = encode_with(params.size_hint(), |out| {
            write_request(out, &RequestId::number(entry.id), method.name(), &params)
        });
        let forwarded = forwarded_headers(&caller);
        // "It MUST block the response until the task reaches a terminal status": longer than a call may take.
        let wait = if task.is_some() { server.options.timeouts.input_timeout() } else { Duration::ZERO };
        // Time spent in the queue counts towards the call's timeout.
        let deadline = received + server.options.timeouts.call() + wait;
        LegacyCall {
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
            inputs: Arc::default(),
            sent_generation: 0,
            received_before: 0,
            phase: SendPhase::NotSent,
            server,
            caller,
        }
    }

    async fn next(&mut self) -> Option<ExchangeEvent> {
        if self.phase == SendPhase::Finished {
            return None;
        }
        let event = self.next_event().await;
        if matches!(event, ExchangeEvent::Done(_)) {
            self.phase = SendPhase::Finished;
        }
        Some(event)
    }

    async fn next_event(&mut self) -> ExchangeEvent {
        if self.phase == SendPhase::NotSent {
            self.server.ensure_log_level(&self.caller).await;
            self.server.settle_cancellations(&self.caller).await;
            self.received_before = self.server.link.received_count();
            self.phase = SendPhase::Sent;
            // Some servers wait for an input response before they send even the status of the call's response. So the
            // side queue is read while the request is still being sent.
            let sending = self.send();
            if self.entry.side_queue.is_some() && !self.server.link.is_multiplexed() {
                self.sending = Some(Box::pin(sending));
            } else {
                match self.server.options.timeouts.timers().timeout_at(self.deadline, sending).await {
                    Ok((Ok(messages), sent_in)) => (self.messages, self.sent_generation) = (Some(messages), sent_in),
                    Ok((Err(error), _)) => return ExchangeEvent::Done(Err(error)),
                    Err(_) => return self.timed_out(),
                }
            }
        }
        loop {
            match self.receive().await {
                IncomingItem::Message(Ok(message)) => {
                    if !matches!(message, RpcMessage::Response(_)) {
                        if !self.has_time() {
                            return self.timed_out();
                        }
                        // A chatty server must not keep other tasks from running.
                        coop::consume_budget().await;
                    }
                    if let Some(event) = self.on_message(message).await {
                        return event;
                    }
                }
                IncomingItem::Sent((Ok(messages), sent_in)) => {
                    (self.messages, self.sent_generation, self.sending) = (Some(messages), sent_in, None);
                }
                IncomingItem::Sent((Err(error), _)) => return ExchangeEvent::Done(Err(error)),
                IncomingItem::Message(Err(error)) => return ExchangeEvent::Done(Err(self.link_error(&error))),
                IncomingItem::End => {
                    let reason = "the stream ended without an answer";
                    return ExchangeEvent::Done(Err(link_error::protocol_error(&self.server.options.server, reason)));
                }
                IncomingItem::TimedOut => match self.extended_deadline() {
                    Some(deadline) => self.deadline = deadline,
                    None => return self.timed_out(),
                },
            }
        }
    }

    async fn receive(&mut self) -> IncomingItem {
        let (messages, sending) = (&mut self.messages, &mut self.sending);
        let (server, task) = (&self.server, &self.task);
        let own = async {
            match (messages, sending) {
                (Some(messages), _) => messages.next().await.map_or(IncomingItem::End, IncomingItem::Message),
                (None, Some(sending)) => IncomingItem::Sent(sending.await),
                (None, None) => IncomingItem::End,
            }
        };
        let injected = async {
            match &self.entry.side_queue {
                Some(injected) => injected.next().await,
                None => std::future::pending().await,
            }
        };
        // The server may have sent requests of the task before this wait began, or on another stream.
        let kept = async {
            match task {
                Some(task) => server.task_inputs.next_held(task).await,
                None => std::future::pending().await,
            }
        };
        let received = server.options.timeouts.timers().timeout_at(self.deadline, async {
            // `biased`: the call's own stream goes first, since a response there makes the other sources irrelevant.
            tokio::select! {
                biased;
                received = own => received,
                message = injected => IncomingItem::Message(Ok(message)),
                request = kept => IncomingItem::Message(Ok(RpcMessage::Request(request))),
            }
        });
        received.await.unwrap_or(IncomingItem::TimedOut)
    }

    /// Returns a later deadline if input requests extend the call.
    ///
    /// The call's timeout stands still while a user is answering and starts again after the response. The time and the
    /// number of input requests are bounded.
    fn extended_deadline(&self) -> Option<Instant> {
        let timeout = self.server.options.timeouts.call();
        if self.inputs.open.load(Ordering::Acquire) > 0 {
            return Some(Instant::now() + timeout);
        }
        let answered = *self.inputs.last_answered.lock();
        answered.map(|answered| answered + timeout).filter(|deadline| *deadline > Instant::now())
    }

    /// True if the call has time left for a message other than its response.
    ///
    /// Without this check, a server that always sends something could extend its call without end.
    fn has_time(&mut self) -> bool {
        Instant::now() < self.deadline || self.extended_deadline().map(|deadline| self.deadline = deadline).is_some()
    }

    fn timed_out(&mut self) -> ExchangeEvent {
        // Silence on a shared pipe hints that the server hangs. Over HTTP, each call has a stream of its own.
        if self.server.link.is_multiplexed() && self.server.link.received_count() == self.received_before {
            self.server.calls.report_silence();
        }
        self.cancel("the gateway's timeout passed");
        ExchangeEvent::Done(Err(link_error::timeout_error(
            &self.server.options.server,
            self.server.options.timeouts.call(),
        )))
    }

    fn link_error(&self, error: &LinkError) -> Error {
        link_error::from_link(&self.server.options.server, error)
    }

    // === sending ===

    /// Sends the request, and sends it again if the session turns out to be lost.
    fn send(&self) -> impl Future<Output = SendResult> + Send + 'static {
        let (server, body, id) = (self.server.clone(), self.body.clone(), self.entry.id);
        let (forwarded, changes) = (self.forwarded.clone(), matches!(self.method, McpMethod::CallTool));
        async move {
            let sent_in = server.session_generation();
            match server.send(body.clone(), Some(id), &forwarded).await {
                Ok(reply) => (Ok(reply.messages), sent_in),
                // Boxed: no call that succeeds has room for this.
                Err(error) => Box::pin(send_again(server, (body, id, forwarded), changes, (sent_in, error))).await,
            }
        }
    }

    // === receiving ===

    async fn on_message(&mut self, message: RpcMessage) -> Option<ExchangeEvent> {
        match message {
            RpcMessage::Response(response) => {
                self.entry.mark_answered();
                self.inputs.is_answered.store(true, Ordering::Release);
                Some(ExchangeEvent::Done(self.on_response(response).await))
            }
            RpcMessage::Notification(notification) => self.on_notification(notification),
            RpcMessage::Request(request) => {
                // A server that does not read responses holds up its own call, but only until the call's deadline.
                let (alarms, deadline) = (self.server.options.timeouts.timers().clone(), self.deadline);
                // Boxed, since most calls have no request and all would have its room.
                alarms.timeout_at(deadline, Box::pin(self.on_request(request))).await.unwrap_or(None)
            }
        }
    }

    async fn on_response(&mut self, response: RpcResponse) -> Result<Outcome, Error> {
        match response.outcome {
            Ok(mut result) => {
                // `resultType` belongs to a later revision. A legacy server does not mean it, so it must not reach such
                // a client.
                if result.get("resultType").is_some() {
                    result.remove("resultType");
                }
                self.read_result(result)
            }
            Err(error) => {
                // Some servers report a lost session with status 200. The next call shall find a new session.
                if self.server.has_session() && mentions_lost_session(&error) {
                    let alarms = self.server.options.timeouts.timers();
                    let renewal = Box::pin(self.server.renew_session(self.sent_generation));
                    let _ = alarms.timeout_at(self.deadline, renewal).await;
                }
                Err(Error::from_server(error))
            }
        }
    }

    /// Reads a result, with the task that it is or contains.
    fn read_result(&self, mut result: JsonObject) -> Result<Outcome, Error> {
        let task = match self.method {
            // A server that ignores the task parameter answers with the plain result.
            McpMethod::CallTool if self.as_task => tasks::read_created(&mut result),
            McpMethod::Task(TaskMethod::Get | TaskMethod::Cancel) => {
                let task = tasks::read_state(&mut result);
                let wrong = || {
                    link_error::protocol_error(&self.server.options.server, "its task has no taskId or no known status")
                };
                Some(task.ok_or_else(wrong)?)
            }
            McpMethod::Task(TaskMethod::Result) => {
                tasks::untag_task(&mut result);
                None
            }
            _ => None,
        };
        Ok(Outcome { task: task.map(Box::new), ..Outcome::from_result(result) })
    }

    fn on_notification(&self, mut notification: RpcNotification) -> Option<ExchangeEvent> {
        if let Some(task) = tasks::read_status(&notification) {
            self.server.publish(Notification::TaskStatus(Box::new(task)));
            return None;
        }
        if self.task.is_some() {
            tasks::untag_task(&mut notification.params);
        }
        match notifications::decode(notification) {
            Notification::Progress(params) => {
                let own = params.get("progressToken").is_some_and(|t| *t == RawJson::number(self.token));
                own.then_some(ExchangeEvent::Notification(Notification::Progress(params)))
            }
            notification @ Notification::Log(..) => Some(ExchangeEvent::Notification(notification)),
            // Other notifications concern all clients, even if they arrive on a call's stream.
            notification => {
                self.server.publish(notification);
                None
            }
        }
    }

    async fn on_request(&mut self, request: RpcRequest) -> Option<ExchangeEvent> {
        let about = tasks::task_of(&request.params);
        if about.is_some() && about != self.task {
            // The request belongs to another task, which may be another client's.
            self.server.on_task_request(about.unwrap_or(ByteString::literal("")), request).await;
            return None;
        }
        if &*request.method == "ping" {
            self.server.send_reply(&request.id, Ok(JsonObject::new())).await;
            return None;
        }
        let kind = InputKind::classify(&request.method, &request.params);
        if kind == InputKind::Other {
            self.server.send_reply(&request.id, Err(pipe_routes::unsupported_request(&request))).await;
            return None;
        }
        let RpcRequest { id, method, mut params } = request;
        tasks::untag_task(&mut params);
        if self.inputs.total.fetch_add(1, Ordering::Relaxed) >= INPUT_REQUESTS_MAX {
            let message =
                format!("This call asked for input {INPUT_REQUESTS_MAX} times already, and no more is allowed").into();
            self.server.send_reply(&id, Err(RpcError { code: code::INVALID_REQUEST, message, data: None })).await;
            return None;
        }
        let (answer, answers) = oneshot::channel();
        let guard = CountedInputGuard::new(&self.inputs, self.server.calls.begin_input(self.entry.id));
        // On a shared pipe, the request may belong to another call of the same client.
        let another = (about.is_none() && self.server.link.is_multiplexed()).then(|| {
            (self.caller.clone(), RpcRequest { id: id.clone(), method: method.clone(), params: params.clone() })
        });
        tokio::spawn(forward_responses(self.server.clone(), id, about, another, answers, guard));
        let key = ByteString::literal("request");
        let requests = vec![(key, InputRequest { kind, method, params })];
        Some(ExchangeEvent::InputRequired(InputRequired {
            requests,
            state: RequestState::HeldByServer,
            server: None,
            responder: answer,
        }))
    }

    fn cancel(&mut self, reason: &str) {
        if std::mem::replace(&mut self.phase, SendPhase::Finished) == SendPhase::Sent {
            if self.server.link.is_multiplexed() {
                self.entry.mark_cancelled();
            }
            let params = JsonObject::new()
                .with("requestId", RawJson::number(self.entry.id))
                .with("reason", RawJson::string(reason));
            self.server.send_notification("notifications/cancelled", params);
        }
    }
}

impl Drop for LegacyCall {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            self.cancel("the client no longer waits for it");
        }
    }
}

/// Sends a request again if its session was lost. `changes`: the request may change something.
async fn send_again(
    server: Arc<LegacyConnection>,
    (body, id, forwarded): (Bytes, u64, HeaderList),
    changes: bool,
    (sent_in, error): (u64, LinkError),
) -> SendResult {
    let fault = |error: &LinkError| link_error::from_link(&server.options.server, error);
    let proof = classify_loss(&error, server.has_session());
    if proof == SessionLoss::No {
        return (Err(fault(&error)), sent_in);
    }
    if let Err(e) = server.renew_session(sent_in).await {
        let failed = match e {
            connect_error::ConnectError::Link(e) => fault(&e),
            e => link_error::server_down(&server.options.server, &e.to_string()),
        };
        return (Err(renewal_error(failed, &proof, changes)), sent_in);
    }
    // Only a 404 proves that the call never ran. After other errors, only calls that change nothing are sent again.
    if proof == SessionLoss::Maybe && changes {
        return (Err(fault(&error)), sent_in);
    }
    let sent_in = server.session_generation();
    let again = server.send(body, Some(id), &forwarded).await;
    (again.map(|reply| reply.messages).map_err(|e| fault(&e)), sent_in)
}

/// Result of sending, and the generation of the session it was sent in.
type SendResult = (Result<MessageStream, Error>, u64);

enum IncomingItem {
    Sent(SendResult),
    Message(Result<RpcMessage, LinkError>),
    End,
    TimedOut,
}

/// Adds `_meta` as a legacy server expects it: the client's members and the gateway's progress token.
fn with_meta(mut params: JsonObject, mut meta: JsonObject, token: Option<u64>) -> JsonObject {
    if let Some(token) = token {
        meta.set(ByteString::literal("progressToken"), RawJson::number(token));
    }
    if !meta.is_empty() {
        params.set(ByteString::literal("_meta"), meta.to_raw());
    }
    params
}
