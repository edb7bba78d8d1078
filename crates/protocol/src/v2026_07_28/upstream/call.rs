//! Call on a stateless server, with as many rounds as the server needs.
//!
//! Owns the deadline and the cancellation of one call. Does not talk to the client, and does not
//! count the rounds (`request_rounds.rs`). Invariant: a call that is not finished is cancelled when
//! it is dropped.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio::task::coop;
use tokio::time::Instant;

use crate::client_headers;
use crate::correlation::{CallEntry, LogInterest};
use crate::input_recipient::CallTarget;
use crate::v2026_07_28::meta_keys::SERVER_INFO;
use crate::v2026_07_28::upstream::connection::ModernConnection;
use crate::v2026_07_28::upstream::request_rounds::RequestRounds;
use crate::v2026_07_28::{REVISION, meta, mirrored_headers, tasks};
use crate::{call_error, notifications};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{
    RequestId, RpcMessage, RpcNotification, RpcResponse, echoed_number, encode_with, write_request,
};
use moongate_model::{
    CacheHint, Call, Caller, CancelReason, Error, Exchange, ExchangeEvent, InputRequired,
    InputResponses, LogFilter, McpErrorKind, McpMethod, Notification, Outcome, StateHolder,
    TaskMethod, TaskMode,
};
use moongate_transport::{HeaderList, LinkError, MessageStream, OutgoingMessage};

/// Call in progress.
pub(crate) struct ModernCall {
    server: Arc<ModernConnection>,
    entry: CallEntry,
    method: McpMethod,
    rounds: RequestRounds,
    headers: HeaderList,
    logs: LogInterest,
    caller: Arc<Caller>,
    messages: Option<MessageStream>,
    deadline: Instant,
    /// True if the result may be a task.
    may_task: bool,
    /// True if the client may use the server's extensions.
    extensions: bool,
    /// Reason of the client's cancellation.
    cancel_reason: Option<CancelReason>,
    phase: RoundPhase,
}

enum RoundPhase {
    NotSent,
    Sent {
        /// Number of messages that the pipe had delivered before.
        received_before: u64,
    },
    /// The client received the input requests; its responses start the next round.
    AwaitingInput(oneshot::Receiver<InputResponses>, Option<RawJson>),
    Finished,
}

impl ModernCall {
    /// Creates the exchange of a call. Sends nothing before the first event is polled.
    pub(crate) fn start(
        server: Arc<ModernConnection>,
        caller: Arc<Caller>,
        call: Call,
    ) -> Exchange {
        let target = call.target();
        let Call {
            method,
            mut params,
            meta,
            progress,
            definition,
            continuation: resume,
            task_mode: task,
            extensions,
            cancel_reason,
            received,
            ..
        } = call;
        let may_task = task != TaskMode::Never || matches!(method, McpMethod::Task(_));
        // "The server MUST NOT emit `notifications/message` for a request that does not include
        // this field": so no log message can be about a call without a log level
        // (server/utilities/logging.mdx).
        let logs = if caller.log_filter == LogFilter::Nothing {
            LogInterest::Never
        } else {
            LogInterest::Wanted(caller.principal.id)
        };
        let entry = server.calls.open(&caller, logs, CallTarget::default());
        // 2026-07-28/basic/patterns/progress.mdx: tokens "MUST be unique across all active
        // requests". The client's own is unique only among its requests, so the id of the call
        // takes its place.
        let meta = meta::write_meta(
            meta,
            &caller,
            &server.options.client_info,
            progress.then_some(entry.id),
            may_task,
        );
        params.set(ByteString::literal("_meta"), meta.to_raw());
        // Such members from a client of another revision aren't input responses for this server.
        if matches!(
            method,
            McpMethod::CallTool | McpMethod::GetPrompt | McpMethod::ReadResource
        ) {
            params.remove("inputResponses");
            params.remove("requestState");
        }
        let mut headers = if server.link.is_multiplexed() {
            HeaderList::new()
        } else {
            mirrored_headers::write_headers(
                method.name(),
                target.as_deref(),
                definition.as_deref(),
                params.get("arguments"),
            )
        };
        headers.extend(client_headers::header_list(&caller));
        // Time spent in the queue counts towards the call's timeout.
        let deadline = received + server.options.timeouts.call();
        let running = ModernCall {
            server,
            entry,
            method,
            rounds: RequestRounds::new(params, resume),
            headers,
            logs,
            caller,
            messages: None,
            deadline,
            may_task,
            extensions,
            cancel_reason,
            phase: RoundPhase::NotSent,
        };
        Exchange::new(stream::unfold(running, |mut running| async move {
            running.next().await.map(|event| (event, running))
        }))
    }

    async fn next(&mut self) -> Option<ExchangeEvent> {
        let event = match std::mem::replace(&mut self.phase, RoundPhase::Finished) {
            RoundPhase::Finished => return None,
            RoundPhase::AwaitingInput(responses, state) => match responses.await {
                // Boxed, since most calls have one round and all would have its room.
                Ok(responses) => Box::pin(self.retry(&responses, state)).await,
                Err(_) => Err(Error::new(
                    McpErrorKind::Cancelled,
                    "The client did not answer the server's request",
                )),
            },
            RoundPhase::NotSent => {
                let continued = self.rounds.take_continued();
                self.send(continued.as_ref()).await
            }
            sent @ RoundPhase::Sent { .. } => {
                self.phase = sent;
                Ok(())
            }
        };
        let event = match event {
            Ok(()) => self.receive().await,
            Err(error) => ExchangeEvent::Done(Err(error)),
        };
        if matches!(event, ExchangeEvent::Done(_)) {
            self.phase = RoundPhase::Finished;
        }
        Some(event)
    }

    /// Sends a round with `params`, or the first one with those of the call.
    async fn send(&mut self, params: Option<&JsonObject>) -> Result<(), Error> {
        let id = self.entry.id;
        let params = params.unwrap_or(self.rounds.params());
        let body = encode_with(params.size_hint(), |out| {
            write_request(out, &RequestId::number(id), self.method.name(), params)
        });
        let outgoing = OutgoingMessage {
            body,
            id: Some(id),
            headers: self.headers.clone(),
        };
        self.phase = RoundPhase::Sent {
            received_before: self.server.link.received_count(),
        };
        let options = &self.server.options;
        let timers = self.server.options.timeouts.timers();
        match timers
            .timeout_at(self.deadline, self.server.link.send(outgoing))
            .await
        {
            Ok(Ok(reply)) => {
                self.messages = Some(reply.messages);
                Ok(())
            }
            Ok(Err(e)) => Err(call_error::from_connection(options, &e).answered_in(REVISION)),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Sends the next round, with the responses and the server's state under a new id
    /// (basic/patterns/mrtr.mdx).
    async fn retry(
        &mut self,
        responses: &InputResponses,
        state: Option<RawJson>,
    ) -> Result<(), Error> {
        let params = self
            .rounds
            .next_round(responses, state, &self.server.options.server)?;
        // Each round is a request with its own id (basic/patterns/mrtr.mdx).
        self.entry = self
            .server
            .calls
            .open(&self.caller, self.logs, CallTarget::default());
        // The user's time does not count, so each round has the full timeout. A round that asked
        // nobody is the server's own time.
        if !responses.is_empty() {
            self.deadline = Instant::now() + self.server.options.timeouts.call();
        }
        self.send(Some(&params)).await
    }

    async fn receive(&mut self) -> ExchangeEvent {
        loop {
            let Some(messages) = &mut self.messages else {
                return ExchangeEvent::Done(Err(Error::internal(
                    "a call was read before it was sent",
                )));
            };
            match self
                .server
                .options
                .timeouts
                .timers()
                .timeout_at(self.deadline, messages.next())
                .await
            {
                Ok(Some(Ok(RpcMessage::Response(response)))) => {
                    self.entry.mark_answered();
                    return self.on_response(response);
                }
                // A server that keeps sending notifications cannot extend its deadline.
                Ok(Some(Ok(RpcMessage::Notification(_) | RpcMessage::Request(_))))
                    if Instant::now() >= self.deadline =>
                {
                    return ExchangeEvent::Done(Err(self.timed_out()));
                }
                Ok(Some(Ok(RpcMessage::Notification(notification)))) => {
                    // A chatty server must not keep other tasks from running.
                    coop::consume_budget().await;
                    if let Some(event) = self.on_notification(notification) {
                        return event;
                    }
                }
                Ok(Some(Ok(RpcMessage::Request(request)))) => {
                    let options = &self.server.options;
                    // Boxed, since most calls have no request and all would have its room.
                    let refusing = Box::pin(self.server.refuse_request(&request));
                    // At the deadline, the next turn of the loop ends the call.
                    let _ = options
                        .timeouts
                        .timers()
                        .timeout_at(self.deadline, refusing)
                        .await;
                }
                Ok(Some(Err(e))) => return ExchangeEvent::Done(Err(self.link_error(&e))),
                Ok(None) => {
                    let reason = "the stream ended without an answer";
                    return ExchangeEvent::Done(Err(call_error::protocol_error(
                        &self.server.options.server,
                        reason,
                    )));
                }
                Err(_) => return ExchangeEvent::Done(Err(self.timed_out())),
            }
        }
    }

    fn link_error(&self, error: &LinkError) -> Error {
        call_error::from_connection(&self.server.options, error).answered_in(REVISION)
    }

    fn on_notification(&self, notification: RpcNotification) -> Option<ExchangeEvent> {
        match notifications::decode(notification) {
            Notification::Progress(params) => {
                let token = params
                    .get("progressToken")
                    .and_then(|token| echoed_number(token.bytes()));
                let own = token == Some(self.rounds.progress_token().unwrap_or(self.entry.id));
                own.then_some(ExchangeEvent::Notification(Notification::Progress(params)))
            }
            notice @ Notification::Log(..) => Some(ExchangeEvent::Notification(notice)),
            notice @ Notification::Extension(..) if self.extensions => {
                Some(ExchangeEvent::Notification(notice))
            }
            Notification::ListChanged(kind) => {
                self.server.stray_list_changes.report(kind);
                None
            }
            _ => None,
        }
    }

    fn on_response(&mut self, response: RpcResponse) -> ExchangeEvent {
        let mut result = match response.outcome {
            Ok(result) => result,
            Err(error) => {
                return ExchangeEvent::Done(Err(Error::from_server(error).answered_in(REVISION)));
            }
        };
        match result.get_string("resultType").as_deref() {
            Some("input_required") => self.on_input_required(&result),
            Some("complete") => {
                result.remove("resultType");
                ExchangeEvent::Done(match self.method {
                    McpMethod::Task(TaskMethod::Get) => self.read_task(result),
                    // Such members are the extension's own.
                    McpMethod::Other(_) => Ok(Outcome::from_result(without_server_info(result))),
                    _ => Ok(read_outcome(result)),
                })
            }
            Some("task") => {
                result.remove("resultType");
                ExchangeEvent::Done(self.read_task(result))
            }
            _ if matches!(self.method, McpMethod::Other(_)) => {
                ExchangeEvent::Done(Ok(Outcome::from_result(without_server_info(result))))
            }
            // Results of an earlier revision or of an extension pass unchanged.
            // 2026-07-28/basic/index.mdx, Result Responses: "clients MUST treat an absent
            // `resultType` as" complete.
            _ => ExchangeEvent::Done(Ok(read_outcome(result))),
        }
    }

    /// Reads a result that is a task.
    ///
    /// SEP-2663: "A server MUST NOT return `CreateTaskResult` to a client that did not include the
    /// extension capability on its request", and one "in response to an unsupported request type"
    /// is "an invalid response".
    fn read_task(&self, mut result: JsonObject) -> Result<Outcome, Error> {
        if !self.may_task
            || !matches!(
                self.method,
                McpMethod::CallTool | McpMethod::Task(TaskMethod::Get)
            )
        {
            return Err(self.protocol_error("it answered with a task where none is allowed"));
        }
        // The task first: its `ttlMs` isn't a cache hint.
        let task = tasks::read_task(&mut result)
            .map_err(|what| self.protocol_error(&format!("its task cannot be read: {what}")))?;
        Ok(Outcome {
            task: Some(Box::new(task)),
            ..read_outcome(result)
        })
    }

    fn on_input_required(&mut self, result: &JsonObject) -> ExchangeEvent {
        let state = result.get("requestState").cloned();
        let requests = match result.get("inputRequests").map(tasks::read_input_requests) {
            None => Vec::new(),
            Some(Ok(requests)) => requests,
            Some(Err(what)) => return ExchangeEvent::Done(Err(self.protocol_error(what))),
        };
        // "Servers MUST include at least one of `inputRequests` or `requestState`".
        if requests.is_empty() && state.is_none() {
            let error = self.protocol_error("it asks for input without saying which");
            return ExchangeEvent::Done(Err(error));
        }
        let (responder, responses) = oneshot::channel();
        self.phase = RoundPhase::AwaitingInput(responses, state.clone());
        self.messages = None;
        ExchangeEvent::InputRequired(InputRequired {
            requests,
            state_holder: StateHolder::Client(state),
            server: None,
            responder,
        })
    }

    fn protocol_error(&self, what: &str) -> Error {
        call_error::protocol_error(&self.server.options.server, what)
    }

    fn timed_out(&mut self) -> Error {
        if let RoundPhase::Sent { received_before } = self.phase
            && self.server.link.is_multiplexed()
            && self.server.link.received_count() == received_before
        {
            self.server.calls.report_silence();
        }
        // 2026-07-28/basic/patterns/cancellation.mdx, Timeouts: "the sender SHOULD cancel the
        // request and stop waiting for a response".
        self.cancel("the gateway's timeout passed");
        call_error::timeout_error(
            &self.server.options.server,
            self.server.options.timeouts.call(),
        )
    }

    /// Cancels the call. On HTTP, closing the stream is the cancellation; a pipe needs a
    /// notification.
    fn cancel(&mut self, own_reason: &str) {
        let sent = matches!(
            std::mem::replace(&mut self.phase, RoundPhase::Finished),
            RoundPhase::Sent { .. }
        );
        self.messages = None;
        // 2026-07-28/basic/patterns/cancellation.mdx: on stdio "There is no per-request stream to
        // close."
        if sent && self.server.link.is_multiplexed() {
            self.entry.mark_cancelled();
            let reason = self.cancel_reason.as_ref().and_then(CancelReason::get);
            let params = JsonObject::new()
                .with("requestId", RawJson::number(self.entry.id))
                .with(
                    "reason",
                    reason.unwrap_or_else(|| RawJson::string(own_reason)),
                );
            self.server
                .send_notification(ByteString::literal("notifications/cancelled"), params);
        }
    }
}

impl Drop for ModernCall {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            self.cancel("the client no longer waits for it");
        }
    }
}

/// Reads a result and removes this revision's additions: the server's info and the cache hints.
fn read_outcome(mut result: JsonObject) -> Outcome {
    let ttl = result
        .get("ttlMs")
        .and_then(|raw| raw.parse_as::<f64>().ok());
    let cache = ttl.map(|ttl| CacheHint {
        // "If `ttlMs` is negative, clients SHOULD ignore it and treat it as `0`."
        ttl_ms: if ttl.is_finite() && ttl > 0.0 {
            ttl as u64
        } else {
            0
        },
        public: result.get_string("cacheScope").as_deref() == Some("public"),
    });
    if cache.is_some() {
        result.remove("ttlMs");
        result.remove("cacheScope");
    }
    Outcome {
        cache_hint: cache,
        ..Outcome::from_result(without_server_info(result))
    }
}

/// Removes the server's info, which the gateway's own replaces.
fn without_server_info(mut result: JsonObject) -> JsonObject {
    if let Some(mut meta) = result.get_object("_meta")
        && meta.remove(SERVER_INFO).is_some()
    {
        if meta.is_empty() {
            result.remove("_meta");
        } else {
            result.set(ByteString::literal("_meta"), meta.to_raw());
        }
    }
    result
}
