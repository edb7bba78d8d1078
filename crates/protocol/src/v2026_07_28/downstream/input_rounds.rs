//! Input rounds of a stateless client: requests go out as an `InputRequiredResult`, responses come
//! with another request.
//!
//! Owns the requests sent to a client and the responses that it returns (basic/patterns/mrtr.mdx).
//! Does not seal state (`request_state.rs`). Invariant: a client gets only requests that it
//! declared, and an exchange whose server waits is either parked or finished.

use bytes::Bytes;
use moongate_telemetry::{InputKindName, InputOutcome, MemoryHolder};
use tokio::time::{Duration, Instant, timeout_at};

use crate::dialect::DownstreamState;
use crate::v2026_07_28::REVISION;
use crate::v2026_07_28::downstream::encode;
use crate::v2026_07_28::downstream::request_state::{self, CarriedState, StateContext};
use crate::{client_capabilities, legacy};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{RequestId, RpcError, code};
use moongate_model::{
    Caller, Continuation, Error, Exchange, ExchangeEvent, InputKind, InputRequest, InputRequired,
    InputResponses, McpErrorKind, Retryable, StateHolder,
};
use moongate_session::{OpenInput, OpenInputRequest, ParkedCall, ParkedOwner, SealError, StateUse};

/// Time to wait for a further input request after one. Servers that need several send them at once,
/// and the client should get them in one round.
const GATHER_GAP: Duration = Duration::from_millis(10);
/// Limit of that time for all of them together.
const GATHER_TIME: Duration = Duration::from_millis(100);
/// Limit of input requests in one round.
const INPUT_REQUESTS_MAX: usize = 32;
/// Limit of notifications held while requests are gathered. The client gets them with its next
/// request.
const HELD_NOTIFICATIONS_MAX: usize = 64;

/// Members that a retry adds to the params.
#[derive(Default)]
pub(crate) struct RetryParams {
    input_responses: Option<RawJson>,
    request_state: Option<RawJson>,
}

/// Purpose of a retry.
pub(crate) enum RetryPurpose {
    /// New call, with the part of the retry that its server gets, and the use of the state in it.
    NewCall(Option<Box<Continuation>>, Option<StateUse>),
    /// Parked exchange that may continue.
    ParkedCall(Exchange),
    /// Parked exchange with open requests, which are sent again.
    StillOpen(Exchange, Vec<OpenInput>),
}

/// Context of an input round: the request, its caller and its endpoint.
pub(crate) struct InputRound<'a> {
    pub(crate) id: &'a RequestId,
    pub(crate) context: &'a StateContext,
    pub(crate) caller: &'a Caller,
    pub(crate) holder: &'a MemoryHolder,
    pub(crate) scope: &'a ByteString,
    pub(crate) state: &'a DownstreamState,
}

impl RetryParams {
    /// Takes the retry's members out of the params.
    pub(crate) fn take(params: &mut JsonObject) -> Self {
        RetryParams {
            input_responses: params.remove("inputResponses"),
            request_state: params.remove("requestState"),
        }
    }
}

impl InputRound<'_> {
    /// Resolves the purpose of a request with these members. A failure leaves parked calls and
    /// state unused.
    pub(crate) fn begin_retry(&self, retry_params: RetryParams) -> Result<RetryPurpose, Error> {
        let RetryParams {
            input_responses: responses,
            request_state: state,
        } = retry_params;
        // 2026-07-28/basic/patterns/mrtr.mdx, Error Handling: "Servers SHOULD validate that the
        // data provided by the client is a valid `InputResponses` object".
        if let Some(responses) = &responses
            && !responses.is_object()
        {
            return Err(Error::invalid_params("inputResponses must be an object"));
        }
        let Some(state) = state else {
            let resume = responses.map(|responses| {
                Box::new(Continuation {
                    input_responses: Some(responses),
                    ..Continuation::default()
                })
            });
            return Ok(RetryPurpose::NewCall(resume, None));
        };
        let bindings = self.context.bindings(&self.caller.principal, self.scope);
        match CarriedState::open(&state, &bindings, self.state)? {
            (CarriedState::HeldByClient { server, state }, mark) => {
                // basic/patterns/mrtr.mdx, Server Requirements: "To prevent replay". Whether a
                // server takes its own state twice is its decision, but it gets the state of one
                // seal once.
                let used = self.state.seal.spend(self.caller.principal.key, mark);
                let used =
                    used.map_err(|refused| request_state::state_error(refused, self.state))?;
                let resume = Continuation {
                    input_responses: responses,
                    request_state: Some(state),
                    server,
                };
                Ok(RetryPurpose::NewCall(Some(Box::new(resume)), Some(used)))
            }
            (CarriedState::HeldByServer(ticket), _) => {
                // Taken out: of two retries with one ticket, the second finds nothing.
                let parked = self
                    .state
                    .parked_calls
                    .take(&ticket, &self.caller.principal);
                let mut parked = parked
                    .ok_or_else(|| request_state::state_error(SealError::Expired, self.state))?;
                let responses = responses
                    .and_then(|raw| raw.as_object())
                    .unwrap_or_default();
                // A mistake of the client must not cost it the parked call, so that goes back
                // first.
                if let Err(error) = record_responses(&mut parked.inputs, &responses) {
                    self.state.parked_calls.repark(ticket, self.owner(), parked);
                    return Err(error);
                }
                let ParkedCall { exchange, inputs } = parked;
                let open = deliver_complete(inputs);
                // 2026-07-28/basic/patterns/mrtr.mdx, Error Handling: "the server SHOULD respond
                // with a new `InputRequiredResult` requesting the missing information again, rather
                // than returning an error."
                Ok(if open.is_empty() {
                    RetryPurpose::ParkedCall(exchange)
                } else {
                    RetryPurpose::StillOpen(exchange, open)
                })
            }
        }
    }

    /// Sends the input requests of a server that kept no state. Its exchange is finished.
    pub(crate) fn forward(
        &self,
        requests: &[(ByteString, InputRequest)],
        server: Option<ByteString>,
        state: Option<RawJson>,
    ) -> Vec<Bytes> {
        let state = state.map(|state| {
            let bindings = self.context.bindings(&self.caller.principal, self.scope);
            CarriedState::HeldByClient { server, state }.seal(&bindings, self.state)
        });
        let requests = requests.iter().map(|(key, request)| (key, request));
        encode::encode_input_required(self.id, requests, state.as_ref())
    }

    /// Sends the input requests of a server that waits. The exchange is parked, with requests that
    /// follow right away.
    ///
    /// Fails if the server continues without a response. The error is the exchange with all events
    /// read from it.
    pub(crate) async fn park(
        &self,
        mut exchange: Exchange,
        first: InputRequired,
    ) -> Result<(u16, Vec<Bytes>), Exchange> {
        let mut inputs = vec![first];
        let mut early = Vec::new();
        let until = Instant::now() + GATHER_TIME;
        while inputs.len() < INPUT_REQUESTS_MAX {
            let gap = (Instant::now() + GATHER_GAP).min(until);
            match timeout_at(gap, exchange.next_event()).await {
                Err(_) => break,
                Ok(ExchangeEvent::Done(end)) => return Err(Exchange::ready(end).prepend(early)),
                Ok(ExchangeEvent::InputRequired(input)) => match self.check_declared(&input) {
                    None => inputs.push(input),
                    Some(error) => self.refuse(input, &error),
                },
                Ok(event) if early.len() < HELD_NOTIFICATIONS_MAX => early.push(event),
                Ok(_) => {}
            }
        }
        let mut number = 0;
        let open = inputs.into_iter().map(|input| {
            let InputRequired {
                requests,
                responder,
                ..
            } = input;
            let requests = requests.into_iter().map(|(key, request)| {
                number += 1;
                // A legacy server's keys are its ids, which are private to it, so the client gets
                // numbered ones. 2026-07-28/basic/patterns/mrtr.mdx: the keys "MUST be unique
                // within the scope of the request".
                let exposed_key = ByteString::from(format!("input-{number}"));
                OpenInputRequest {
                    exposed_key,
                    key: ByteString::from(key.as_str()),
                    request: detached(request),
                    response: None,
                }
            });
            OpenInput {
                requests: requests.collect(),
                responder,
            }
        });
        let open = open.collect();
        Ok(self.repark(exchange.prepend(early), open))
    }

    /// Parks an exchange and sends its open requests.
    pub(crate) fn repark(&self, exchange: Exchange, inputs: Vec<OpenInput>) -> (u16, Vec<Bytes>) {
        let shown: Vec<(ByteString, InputRequest)> = inputs
            .iter()
            .flat_map(|input| &input.requests)
            .filter(|request| request.response.is_none())
            .map(|request| {
                (
                    request.exposed_key.clone(),
                    encode_request(&request.request),
                )
            })
            .collect();
        let parked = ParkedCall { exchange, inputs };
        let Some(ticket) = self.state.parked_calls.park(self.owner(), parked) else {
            let message = "The server asks for input while it waits, but the limit of parked calls \
                           is reached (limits.parked)";
            let error = Error::new(McpErrorKind::Overloaded, message);
            return (200, vec![encode::encode_error(Some(self.id), &error)]);
        };
        let bindings = self.context.bindings(&self.caller.principal, self.scope);
        let state = CarriedState::HeldByServer(ticket).seal(&bindings, self.state);
        let requests = shown.iter().map(|(key, request)| (key, request));
        (
            200,
            encode::encode_input_required(self.id, requests, Some(&state)),
        )
    }

    fn owner(&self) -> ParkedOwner {
        ParkedOwner {
            principal: self.caller.principal.clone(),
            holder: self.holder.clone(),
        }
    }

    /// Returns the error for an input request that this client cannot get.
    ///
    /// "Servers MUST NOT send an `inputRequests` that the client has not declared support for in
    /// its capabilities."
    pub(crate) fn check_declared(&self, input: &InputRequired) -> Option<Error> {
        if !self.context.allows_input() {
            let kind = input
                .requests
                .first()
                .map_or("input", |(_, request)| request.kind.capability());
            let message = format!(
                "The server asks for {kind} during {}, where a client of this revision cannot be \
                 asked for anything",
                self.context.method().name()
            );
            return Some(Error::new(McpErrorKind::CannotCross, message));
        }
        let missing = input
            .requests
            .iter()
            .map(|(_, request)| request.kind)
            .find(|kind| !self.caller.capabilities.supports(*kind));
        missing.map(|kind| {
            let message = format!(
                "The server asks for {}, which this client did not declare",
                kind.capability()
            );
            let required = JsonObject::new().with(
                "requiredCapabilities",
                client_capabilities::required_capability(kind),
            );
            Error::new(McpErrorKind::MissingCapability, message).with_data(required.to_raw())
        })
    }

    /// Refuses an input request to the server that waits. Its call continues, because many servers
    /// can do without the input.
    pub(crate) fn refuse(&self, input: InputRequired, error: &Error) {
        self.count(&input, InputOutcome::Refused);
        let refusal = RpcError {
            code: code::METHOD_NOT_FOUND,
            message: ByteString::from(&*error.message),
            data: None,
        };
        let responses = input
            .requests
            .into_iter()
            .map(|(key, _)| (key, Err(refusal.clone())));
        // An error means that the call has ended meanwhile.
        let _ = input.responder.send(responses.collect());
    }

    /// Counts input requests by their outcome.
    pub(crate) fn count(&self, input: &InputRequired, outcome: InputOutcome) {
        for (_, request) in &input.requests {
            self.state
                .metrics
                .inputs
                .asks
                .inc((InputKindName(request.kind.capability()), outcome));
        }
    }
}

/// Copies a request into its own memory, because it may be held for long and is a span of the
/// server's message.
fn detached(request: InputRequest) -> InputRequest {
    let params = request.params.to_raw().detached().as_object();
    InputRequest {
        method: ByteString::from(request.method.as_str()),
        params: params.unwrap_or(request.params),
        ..request
    }
}

/// Converts a request to this revision.
///
/// "Remove the `notifications/elicitation/complete` notification and the `elicitationId` field"
/// (changelog.mdx).
fn encode_request(request: &InputRequest) -> InputRequest {
    let mut request = request.clone();
    if request.kind == InputKind::ElicitUrl {
        request.params.remove("elicitationId");
    }
    request
}

/// Records the responses. Fails without recording any if one is invalid.
///
/// Responses to unknown requests are ignored: "the server SHOULD ignore any information it does not
/// recognize or need".
fn record_responses(inputs: &mut [OpenInput], responses: &JsonObject) -> Result<(), Error> {
    for request in inputs
        .iter()
        .flat_map(|input| &input.requests)
        .filter(|request| request.response.is_none())
    {
        if let Some(response) = responses.get(&request.exposed_key) {
            check_response(&request.exposed_key, request.request.kind, response)?;
        }
    }
    for request in inputs
        .iter_mut()
        .flat_map(|input| &mut input.requests)
        .filter(|request| request.response.is_none())
    {
        request.response = responses.get_object(&request.exposed_key);
    }
    Ok(())
}

/// Checks that a response fits this kind of request, so that the client can correct it.
///
/// The content that a user filled in is left to the server.
fn check_response(key: &ByteString, kind: InputKind, response: &RawJson) -> Result<(), Error> {
    match response_fault(kind, response) {
        None => Ok(()),
        Some(fault) => Err(Error::invalid_params(&format!(
            "inputResponses[{key:?}] {fault}"
        ))),
    }
}

/// Returns what is wrong with a response to a request of this kind.
fn response_fault(kind: InputKind, response: &RawJson) -> Option<&'static str> {
    let Some(response) = response.as_object() else {
        return Some("must be an object without duplicate keys");
    };
    match kind {
        InputKind::ElicitForm | InputKind::ElicitUrl => {
            match response.get_string("action").as_deref() {
                Some("accept" | "decline" | "cancel") => None,
                _ => Some("must have an action: accept, decline or cancel"),
            }
        }
        InputKind::Sample | InputKind::SampleWithTools => {
            let is_message =
                response.get_string("role").is_some() && response.get("content").is_some();
            (!is_message).then_some("must have a role and content")
        }
        InputKind::Roots => {
            let is_list = response
                .get("roots")
                .is_some_and(|roots| roots.bytes().first() == Some(&b'['));
            (!is_list).then_some("must have roots: an array")
        }
        InputKind::Extension | InputKind::Other => None,
    }
}

/// Delivers inputs whose responses are complete, and returns the rest.
fn deliver_complete(inputs: Vec<OpenInput>) -> Vec<OpenInput> {
    let mut open = Vec::new();
    for input in inputs {
        if input
            .requests
            .iter()
            .any(|request| request.response.is_none())
        {
            open.push(input);
            continue;
        }
        let responses: InputResponses = input
            .requests
            .into_iter()
            .filter_map(|request| Some((request.key, Ok(request.response?))))
            .collect();
        // A server that gave up meanwhile has dropped the receiver, and the exchange reports that.
        let _ = input.responder.send(responses);
    }
    open
}

/// Returns true if a call failed before its server could get it, so that its state may be used
/// again.
///
/// Only the code that makes an error knows that. Its kind does not show it: a limit refuses a call,
/// or drops its answer.
pub(crate) fn was_never_sent(error: &Error) -> bool {
    error.retryable == Retryable::NotSent
}

/// Reads the input requests from a legacy server's error, if it is URL Elicitation Required
/// (2025-11-25/client/elicitation.mdx). The requests fit clients of this revision.
pub(crate) fn from_error(error: &Error) -> Option<InputRequired> {
    // A server of this revision has other means to ask, so its code says something else.
    let McpErrorKind::ServerError(answered) = &error.kind else {
        return None;
    };
    if error.server_revision == REVISION {
        return None;
    }
    let required = legacy::required_elicitations(answered)?;
    let method = ByteString::literal("elicitation/create");
    // The list comes from a server, so its length is bounded like any other round.
    let numbered = required.into_iter().take(INPUT_REQUESTS_MAX).enumerate();
    let requests = numbered
        .map(|(n, params)| {
            let request = encode_request(&InputRequest {
                kind: InputKind::ElicitUrl,
                method: method.clone(),
                params,
                progress: None,
            });
            (ByteString::from(format!("input-{}", n + 1)), request)
        })
        .collect();
    // The server kept no state of the call. The responses come with another call, so this channel
    // has no receiver.
    let (responder, _) = tokio::sync::oneshot::channel();
    Some(InputRequired {
        requests,
        state_holder: StateHolder::Client(None),
        server: None,
        responder,
    })
}

#[cfg(test)]
mod tests {
    use moongate_telemetry::{MemoryBudget, MemoryLimit, MemoryWatch, Metrics};
    use moongate_transport::LinkError;

    use super::*;
    use crate::call_error;

    fn status(status: u16) -> LinkError {
        LinkError::Status {
            status,
            hint: String::new(),
            message: None,
            retry_after: None,
            challenge: None,
        }
    }

    fn memory_exhausted() -> LinkError {
        let metrics = Metrics::new();
        let budget =
            MemoryBudget::new(&MemoryWatch::new(MemoryLimit::Bytes(1), &metrics), &metrics);
        budget
            .share(MemoryHolder::Local)
            .begin()
            .cover(1 << 20)
            .unwrap_err()
            .into()
    }

    fn reason() -> String {
        "why".to_owned()
    }

    #[test]
    fn a_call_that_its_server_may_have_run_keeps_its_state_spent() {
        let failures = [
            // Its answer found no memory, or broke a limit: the server was at work.
            memory_exhausted(),
            LinkError::TooLarge { limit: 1 },
            LinkError::Protocol(reason()),
            LinkError::Timeout(reason()),
            LinkError::Closed(reason()),
            // A proxy may have passed the request on.
            status(429),
            status(500),
            status(502),
            status(504),
        ];
        for failure in failures {
            assert!(
                !was_never_sent(&call_error::from_link("a", &failure)),
                "{failure}"
            );
        }
        let thrown = RpcError {
            code: code::INTERNAL,
            message: ByteString::literal("late"),
            data: None,
        };
        assert!(!was_never_sent(&Error::from_server(thrown)));
        for kind in [
            McpErrorKind::Overloaded,
            McpErrorKind::MissingCapability,
            McpErrorKind::ServerDown,
        ] {
            assert!(
                !was_never_sent(&Error::new(kind.clone(), "of any stage")),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn a_call_that_never_left_gives_its_state_back() {
        for failure in [
            LinkError::Unreachable(reason()),
            LinkError::Spawn(reason()),
            LinkError::NotSent(reason()),
            LinkError::QueueFull(reason()),
        ] {
            assert!(
                was_never_sent(&call_error::from_link("a", &failure)),
                "{failure}"
            );
        }
    }
}
