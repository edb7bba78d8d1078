//! Encoder of one exchange for a legacy client.
//!
//! Owns the wire form of its events and the client's part in input requests. Does not start calls
//! (`session_request.rs`). Invariant: a disconnected client does not cancel its call.

use moongate_telemetry::{InputKindName, InputOutcome};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use crate::dialect::DownstreamState;
use crate::legacy::downstream::encode;
use crate::legacy::downstream::resumable::ResumableWriter;
use crate::legacy::downstream::task_augmentation::TaskAugmentation;
use crate::legacy::{tool_output, url_elicitations};
use crate::notifications;
use crate::respond::{self, InputAction, ResponseEncoder};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{RequestId, RpcError, code, encode_with, write_request};
use moongate_jsonrpc::sse;
use moongate_model::{
    Caller, Error, Exchange, InputKind, InputRequired, InputResponses, LogFilter, McpErrorKind,
    McpMethod, Notification, Outcome, StateHolder,
};
use moongate_session::{Session, SessionActivityGuard, SessionCallGuard, Sessions};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Encoder of one exchange for a legacy client.
pub(crate) struct LegacyEncoder {
    pub(crate) id: RequestId,
    pub(crate) method: McpMethod,
    pub(crate) task_augmentation: TaskAugmentation,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) token: Option<RawJson>,
    pub(crate) log_filter: LogFilter,
    pub(crate) caller: Arc<Caller>,
    pub(crate) call_guard: Arc<SessionCallGuard>,
    pub(crate) stream: bool,
    /// Input requests that the client got for this call: the server's key, and the client's id.
    pub(crate) asked: Vec<(ByteString, RequestId)>,
    /// Writer that keeps the events for a client that reconnects.
    pub(crate) resumable: Option<ResumableWriter>,
    /// Time after which the client is disconnected, to reconnect for the rest.
    pub(crate) stream_lifetime: Option<Duration>,
    pub(crate) state: Arc<DownstreamState>,
}

impl ResponseEncoder for LegacyEncoder {
    fn notification(&mut self, notification: Notification) -> Option<Bytes> {
        match notification {
            // 2025-11-25/basic/utilities/progress.mdx: only for tokens "that were provided in an
            // active request".
            Notification::Progress(params) => self
                .token
                .as_ref()
                .map(|token| notifications::encode_progress(params, token)),
            Notification::Log(level, _) if !self.log_filter.allows(level) => None,
            Notification::InputWithdrawn(key, reason) => self.withdraw(&key, reason),
            other => notifications::encode(&other)
                .map(|(method, params)| notifications::encode_notification(method, &params)),
        }
    }

    fn input_required(&mut self, input: InputRequired) -> InputAction {
        let InputRequired {
            requests,
            state_holder,
            responder,
            ..
        } = input;
        // A modern server has ended its exchange with the request, so it cannot continue without
        // the input.
        if let (StateHolder::Client(_), Some((_, input_request))) = (
            &state_holder,
            requests
                .iter()
                .find(|(_, q)| !self.caller.capabilities.supports(q.kind)),
        ) {
            let missing = input_request.kind.capability();
            let error = Error::new(
                McpErrorKind::MissingCapability,
                format!("The server asks for {missing}, which this client did not declare"),
            );
            return InputAction::End(200, self.result(Err(error)).1);
        }
        let mut messages = Vec::new();
        let mut waiting = Vec::new();
        let first = self.asked.len();
        for (key, input_request) in requests {
            let input_request = self.task_augmentation.tag_request(input_request);
            let (outcome, kind) = self.send_input_request(&key, &input_request, &mut messages);
            self.state
                .metrics
                .inputs
                .asks
                .inc((InputKindName(input_request.kind.capability()), kind));
            waiting.push(async move { (key, outcome.wait().await) });
        }
        let ids = self.asked[first..]
            .iter()
            .map(|(_, id)| id.clone())
            .collect();
        let open = OpenClientRequests::of(&self.call_guard, ids);
        // A user may never answer. The server then learns that no response comes.
        tokio::spawn(open.deliver(waiting, responder, self.state.input_timeout));
        InputAction::Send(messages)
    }

    fn frame(&mut self, message: &[u8], last: bool) -> Bytes {
        match &mut self.resumable {
            Some(resumable) => resumable.frame(message, last),
            None => self
                .call_guard
                .session()
                .shared_stream
                .as_ref()
                .map_or(sse::encode_event as fn(&[u8]) -> Bytes, |pipe| pipe.frame)(
                message
            ),
        }
    }

    fn priming_event(&mut self) -> Option<Bytes> {
        self.resumable.as_mut()?.priming_event()
    }

    fn disconnect(&mut self) -> BoxFuture<'static, ()> {
        self.resumable.as_mut().map_or_else(
            || std::future::pending().boxed(),
            ResumableWriter::wait_disconnect,
        )
    }

    fn result(&mut self, end: Result<Outcome, Error>) -> (u16, Vec<Bytes>) {
        if let Err(Error {
            kind: McpErrorKind::ServerError(error),
            ..
        }) = &end
        {
            for mut page in url_elicitations::required_elicitations(error)
                .into_iter()
                .flatten()
            {
                if let Some(id) = url_elicitations::ensure_elicitation_id(&mut page) {
                    self.call_guard
                        .session()
                        .client_requests
                        .elicitation_opened(&id);
                }
            }
        }
        (200, self.encode_outcome(end))
    }

    fn wait_cancelled(&mut self) -> impl Future<Output = ()> + Send {
        self.call_guard.token().clone().cancelled_owned()
    }

    // 2025-11-25/basic/utilities/cancellation.mdx omits the response only for requests named in
    // `notifications/cancelled`. A client that did not send one waits for its response.
    fn cancellation_error(&self) -> Option<Error> {
        let ended = self.call_guard.session().is_ended();
        ended.then(|| {
            Error::new(
                McpErrorKind::UnknownSession,
                "The session ended before the call did",
            )
        })
    }

    // 2025-11-25/basic/transports.mdx, Sending Messages to the Server: "Disconnection SHOULD NOT be
    // interpreted as the client cancelling its request." The call continues until its timeout. A
    // client that has an event id may come back for the rest.
    fn on_client_gone(&mut self, exchange: Exchange) {
        let abandoned = self
            .resumable
            .as_ref()
            .and_then(ResumableWriter::wait_abandoned);
        let resumable = self.resumable.take();
        if let Some(abandoned) = abandoned {
            let encoder = LegacyEncoder {
                id: self.id.clone(),
                method: self.method.clone(),
                task_augmentation: self.task_augmentation.clone(),
                sessions: self.sessions.clone(),
                token: self.token.clone(),
                log_filter: self.log_filter,
                caller: self.caller.clone(),
                call_guard: self.call_guard.clone(),
                stream: self.stream,
                asked: std::mem::take(&mut self.asked),
                resumable,
                stream_lifetime: None,
                state: self.state.clone(),
            };
            tokio::spawn(respond::run_detached(exchange, encoder, abandoned));
            return;
        }
        // The call stays cancellable by its id for as long as it runs.
        let call_guard = self.call_guard.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = exchange.outcome() => {}
                () = call_guard.token().cancelled() => {}
            }
        });
    }
}

/// Refuses an input request that its client cannot get.
fn refuse_input(message: String, why: InputOutcome) -> (ResponseSource, InputOutcome) {
    let error = RpcError {
        code: code::METHOD_NOT_FOUND,
        message: message.into(),
        data: None,
    };
    (ResponseSource::Refused(error), why)
}

/// Source of the response to one input request.
enum ResponseSource {
    Client(oneshot::Receiver<Result<JsonObject, RpcError>>),
    Refused(RpcError),
}

impl ResponseSource {
    async fn wait(self) -> Result<JsonObject, RpcError> {
        match self {
            ResponseSource::Client(receiver) => receiver.await.unwrap_or_else(|_| {
                Err(RpcError {
                    code: code::INTERNAL,
                    message: "The client's session ended".into(),
                    data: None,
                })
            }),
            ResponseSource::Refused(error) => Err(error),
        }
    }
}

/// Input requests that the client has, with what their wait needs.
struct OpenClientRequests {
    ids: Vec<RequestId>,
    session: Arc<Session>,
    /// Guard: a session with an open input request must not expire.
    _activity: SessionActivityGuard,
    /// Cancelled when the client cancels the call, or its session ends.
    cancelled: CancellationToken,
    /// Cancelled when the call ends.
    call_ended: CancellationToken,
}

impl OpenClientRequests {
    fn of(call_guard: &SessionCallGuard, ids: Vec<RequestId>) -> Self {
        OpenClientRequests {
            ids,
            session: call_guard.session().clone(),
            _activity: call_guard.session().begin_activity(),
            cancelled: call_guard.token().clone(),
            call_ended: call_guard.ended().clone(),
        }
    }

    /// Waits for the responses and delivers them. An answer is good after the end of its call, too.
    async fn deliver(
        self,
        waiting: Vec<impl Future<Output = (ByteString, Result<JsonObject, RpcError>)>>,
        mut responder: oneshot::Sender<InputResponses>,
        limit: Duration,
    ) {
        // Dropping `responder` shows the server that no responses will come.
        tokio::select! {
            answers = tokio::time::timeout(limit, join_all(waiting)) => {
                drop(answers.map(|answers| responder.send(answers)));
                return;
            }
            () = self.cancelled.cancelled() => return,
            () = responder.closed() => {}
        }
        // Nobody waits any more. While the call runs, its own stream informs the client.
        self.call_ended.cancelled().await;
        for id in &self.ids {
            self.session.take_back(id, None);
        }
    }
}

impl LegacyEncoder {
    /// Takes an input request back at the client, under the client's id.
    fn withdraw(&mut self, key: &ByteString, reason: Option<RawJson>) -> Option<Bytes> {
        let at = self.asked.iter().position(|(asked, _)| asked == key)?;
        let (_, id) = self.asked.swap_remove(at);
        self.call_guard.session().withdraw_request(&id, reason)
    }

    pub(crate) fn encode_outcome(&self, end: Result<Outcome, Error>) -> Vec<Bytes> {
        // Before the client learns of the task: from now on, the server's status notifications go
        // to this session.
        if let (
            McpMethod::CallTool,
            Ok(Outcome {
                task: Some(task), ..
            }),
        ) = (&self.method, &end)
        {
            self.call_guard.session().record_task(&task.id);
        }
        let end = self.task_augmentation.finish(&self.method, end, |result| {
            self.sessions
                .task_results
                .store(&self.caller.principal, result)
        });
        encode::encode_outcome(
            &self.id,
            &self.task_augmentation.error_method(&self.method),
            end,
        )
    }

    /// Sends one input request to the client. If that is not possible, returns the refusal and its
    /// metric label.
    fn send_input_request(
        &mut self,
        key: &ByteString,
        input_request: &moongate_model::InputRequest,
        messages: &mut Vec<Bytes>,
    ) -> (ResponseSource, InputOutcome) {
        // 2025-11-25/client/elicitation.mdx, Capabilities: "Servers MUST NOT send elicitation
        // requests with modes that are not supported by the client."
        if !self.caller.capabilities.supports(input_request.kind) {
            let missing = input_request.kind.capability();
            return refuse_input(
                format!("The client did not declare {missing}"),
                InputOutcome::NotDeclared,
            );
        }
        // Its response would come without a session id, and find nobody who waits for it.
        if self.call_guard.session().identity.is_transient() {
            return refuse_input(
                "The client cannot be asked because it sends no session id".to_owned(),
                InputOutcome::NotReadable,
            );
        }
        // A plain JSON response holds one message, so a request to the client has no place in it.
        if !self.stream {
            return refuse_input(
                "The client cannot be asked because it does not accept event streams".to_owned(),
                InputOutcome::NotReadable,
            );
        }
        match self
            .call_guard
            .session()
            .client_requests
            .expect_response(input_request.progress.clone())
        {
            None => refuse_input(
                "Too many requests are waiting for this client's answers".to_owned(),
                InputOutcome::TooMany,
            ),
            Some((id, receiver)) => {
                let mut params = input_request.params.clone();
                if matches!(
                    input_request.kind,
                    InputKind::Sample | InputKind::SampleWithTools
                ) {
                    tool_output::fit_sampling(&mut params);
                }
                if input_request.kind == InputKind::ElicitUrl
                    && let Some(page) = url_elicitations::ensure_elicitation_id(&mut params)
                {
                    self.call_guard
                        .session()
                        .client_requests
                        .elicitation_opened(&page);
                }
                moongate_session::name_progress(&mut params, &id, input_request.progress.as_ref());
                self.asked
                    .push((ByteString::from(key.as_str()), id.clone()));
                let hint = params.size_hint();
                messages.push(encode_with(hint, |out| {
                    write_request(out, &id, &input_request.method, &params)
                }));
                (ResponseSource::Client(receiver), InputOutcome::Asked)
            }
        }
    }
}
