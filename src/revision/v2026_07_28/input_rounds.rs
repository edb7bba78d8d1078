//! Questions to a stateless client: out as an `InputRequiredResult`, back as another request.
//!
//! basic/patterns/mrtr.mdx. Owns what a client is asked and what it brings back. Invariant: a client is asked only for
//! what it declared, and an exchange whose server waits is either parked or over.

use bytes::Bytes;
use tokio::time::{Duration, Instant, timeout_at};

use crate::json::{ByteString, JsonObject, RawJson};
use crate::jsonrpc::RequestId;
use crate::model::{
    Caller, Continuation, Error, Exchange, ExchangeEvent, InputKind, InputRequest, InputRequired, InputResponses,
    McpErrorKind, RequestState,
};
use crate::revision::v2026_07_28::encode;
use crate::revision::v2026_07_28::request_state::{self, CarriedState, StateContext};
use crate::revision::{DownstreamState, legacy};
use crate::session::{OpenInput, OpenInputRequest, ParkedCall, SealError};

/// After a server's question, how long to wait for another one: servers that ask for several things ask for them at
/// once, and the client should hear of them in one round.
const GATHER_GAP: Duration = Duration::from_millis(10);
/// How long to wait for all of them together.
const GATHER_TIME: Duration = Duration::from_millis(100);
/// How many questions one round may hold.
const INPUT_REQUESTS_MAX: usize = 32;
/// How many notices are kept while questions are gathered; they reach the client with its next request.
const HELD_NOTIFICATIONS_MAX: usize = 64;

/// What a retry brings.
#[derive(Default)]
pub(super) struct RetryParams {
    input_responses: Option<RawJson>,
    request_state: Option<RawJson>,
}

/// What a retry is for.
pub(super) enum Resumption {
    /// A new call, with what the server gets of it.
    NewCall(Option<Box<Continuation>>),
    /// A parked exchange that may go on.
    Resumed(Exchange),
    /// A parked exchange that has questions left: they are asked again.
    StillOpen(Exchange, Vec<OpenInput>),
}

/// Who is asked, about what.
pub(super) struct InputRound<'a> {
    pub(super) id: &'a RequestId,
    pub(super) context: &'a StateContext,
    pub(super) caller: &'a Caller,
    pub(super) scope: &'a ByteString,
    pub(super) state: &'a DownstreamState,
}

impl RetryParams {
    /// Takes what the client brings out of the params.
    pub(super) fn take(params: &mut JsonObject) -> Self {
        RetryParams { input_responses: params.remove("inputResponses"), request_state: params.remove("requestState") }
    }
}

impl InputRound<'_> {
    /// What a request with `brought` in it is for. Fails without using anything up.
    pub(super) fn resume(&self, brought: RetryParams) -> Result<Resumption, Error> {
        let RetryParams { input_responses: answers, request_state: state } = brought;
        if let Some(answers) = &answers
            && !answers.is_object()
        {
            return Err(invalid("inputResponses must be an object"));
        }
        let Some(state) = state else {
            return Ok(Resumption::NewCall(
                answers.map(|answers| {
                    Box::new(Continuation { input_responses: Some(answers), ..Continuation::default() })
                }),
            ));
        };
        let bound = self.context.bindings(&self.caller.principal, self.scope);
        match CarriedState::open(&state, &bound, self.state)? {
            CarriedState::Server { server, state } => Ok(Resumption::NewCall(Some(Box::new(Continuation {
                input_responses: answers,
                request_state: Some(state),
                server,
            })))),
            CarriedState::Parked(ticket) => {
                let parked = self.state.parked_calls.take(&ticket, &self.caller.principal);
                let mut parked = parked.ok_or_else(|| request_state::state_error(SealError::Expired, self.state))?;
                let answers = answers.and_then(|raw| raw.as_object()).unwrap_or_default();
                if let Err(error) = record_responses(&mut parked.inputs, &answers) {
                    self.state.parked_calls.repark(ticket, self.caller.principal.clone(), parked);
                    return Err(error);
                }
                let ParkedCall { exchange, inputs: asks } = parked;
                let open = deliver_complete(asks);
                Ok(if open.is_empty() { Resumption::Resumed(exchange) } else { Resumption::StillOpen(exchange, open) })
            }
        }
    }

    /// Asks on behalf of a server that kept nothing: its exchange is over.
    pub(super) fn forward(
        &self,
        requests: &[(ByteString, InputRequest)],
        server: Option<ByteString>,
        state: Option<RawJson>,
    ) -> Vec<Bytes> {
        let state = state.map(|state| {
            let bound = self.context.bindings(&self.caller.principal, self.scope);
            CarriedState::Server { server, state }.seal(&bound, self.state)
        });
        let requests = requests.iter().map(|(key, question)| (key, question));
        encode::encode_input_required(self.id, requests, state.as_ref())
    }

    /// Asks on behalf of a server that waits: the exchange is kept, with whatever else the server asks right away.
    ///
    /// Gives the exchange back, with all that was read of it, where its server goes on without an answer.
    pub(super) async fn park(
        &self,
        mut exchange: Exchange,
        first: InputRequired,
    ) -> Result<(u16, Vec<Bytes>), Exchange> {
        let mut asks = vec![first];
        let mut early = Vec::new();
        let until = Instant::now() + GATHER_TIME;
        while asks.len() < INPUT_REQUESTS_MAX {
            let gap = (Instant::now() + GATHER_GAP).min(until);
            match timeout_at(gap, exchange.next_event()).await {
                Err(_) => break,
                Ok(ExchangeEvent::Done(end)) => return Err(Exchange::ready(end).prepend(early)),
                Ok(ExchangeEvent::InputRequired(ask)) => match self.check_declared(&ask) {
                    None => asks.push(ask),
                    Some(error) => {
                        return Ok((encode::http_status(&error), vec![encode::encode_error(Some(self.id), &error)]));
                    }
                },
                Ok(notice) if early.len() < HELD_NOTIFICATIONS_MAX => early.push(notice),
                Ok(_) => {}
            }
        }
        let mut number = 0;
        let open = asks.into_iter().map(|ask| {
            let InputRequired { requests, responder: answer, .. } = ask;
            let requests = requests.into_iter().map(|(key, question)| {
                number += 1;
                let shown = ByteString::from(format!("input-{number}"));
                OpenInputRequest {
                    exposed_key: shown,
                    key: ByteString::from(key.as_str()),
                    request: detached(question),
                    response: None,
                }
            });
            OpenInput { requests: requests.collect(), responses: answer }
        });
        let open = open.collect();
        Ok(self.repark(exchange.prepend(early), open))
    }

    /// Parks an exchange, and asks for what is open.
    pub(super) fn repark(&self, exchange: Exchange, asks: Vec<OpenInput>) -> (u16, Vec<Bytes>) {
        let shown: Vec<(ByteString, InputRequest)> = asks
            .iter()
            .flat_map(|ask| &ask.requests)
            .filter(|request| request.response.is_none())
            .map(|request| (request.exposed_key.clone(), encode_request(&request.request)))
            .collect();
        let parked = ParkedCall { exchange, inputs: asks };
        let Some(ticket) = self.state.parked_calls.park(self.caller.principal.clone(), parked) else {
            let message = "The server asks for input while it waits, and no call may be kept for that (limits.parked)";
            let error = Error::new(McpErrorKind::Overloaded, message);
            return (200, vec![encode::encode_error(Some(self.id), &error)]);
        };
        let bound = self.context.bindings(&self.caller.principal, self.scope);
        let state = CarriedState::Parked(ticket).seal(&bound, self.state);
        let requests = shown.iter().map(|(key, question)| (key, question));
        (200, encode::encode_input_required(self.id, requests, Some(&state)))
    }

    /// Why an ask cannot be put to this client.
    ///
    /// "Servers MUST NOT send an `inputRequests` that the client has not declared support for in its capabilities."
    pub(super) fn check_declared(&self, ask: &InputRequired) -> Option<Error> {
        if !self.context.allows_input() {
            let kind = ask.requests.first().map_or("input", |(_, question)| question.kind.capability());
            let message = format!(
                "The server asks for {kind} during {}, where a client of this revision cannot be asked for anything",
                self.context.method().name()
            );
            return Some(Error::new(McpErrorKind::CannotCross, message));
        }
        let missing = ask
            .requests
            .iter()
            .map(|(_, question)| question.kind)
            .find(|kind| !self.caller.capabilities.supports(*kind));
        missing.map(|kind| {
            let message = format!("The server asks for {}, which this client did not declare", kind.capability());
            let required = JsonObject::new().with("requiredCapabilities", legacy::required_capability(kind));
            Error::new(McpErrorKind::MissingCapability, message).with_data(required.to_raw())
        })
    }

    /// Counts what is asked.
    pub(super) fn count(&self, ask: &InputRequired, outcome: &str) {
        for (_, question) in &ask.requests {
            self.state.metrics.asks.with_label_values(&[question.kind.capability(), outcome]).inc();
        }
    }
}

/// The question in memory of its own: it may be kept for long, and is a span of whatever the server sent with it.
fn detached(question: InputRequest) -> InputRequest {
    let params = question.params.to_raw().detached().as_object();
    InputRequest {
        method: ByteString::from(question.method.as_str()),
        params: params.unwrap_or(question.params),
        ..question
    }
}

/// The question as this revision asks it: "Remove the `notifications/elicitation/complete` notification and the
/// `elicitationId` field" (changelog.mdx).
fn encode_request(question: &InputRequest) -> InputRequest {
    let mut question = question.clone();
    if question.kind == InputKind::ElicitUrl {
        question.params.remove("elicitationId");
    }
    question
}

/// Notes the answers. What was not asked for is ignored: "the server SHOULD ignore any information it does not
/// recognize or need". Fails, having noted nothing, where an answer cannot be one.
fn record_responses(asks: &mut [OpenInput], answers: &JsonObject) -> Result<(), Error> {
    let open = || asks.iter().flat_map(|ask| &ask.requests).filter(|request| request.response.is_none());
    for request in open() {
        if let Some(answer) = answers.get(&request.exposed_key) {
            check_response(&request.exposed_key, request.request.kind, answer)?;
        }
    }
    for request in asks.iter_mut().flat_map(|ask| &mut ask.requests).filter(|request| request.response.is_none()) {
        request.response = answers.get_object(&request.exposed_key);
    }
    Ok(())
}

/// Whether an answer is one to this kind of question, so that a mistake is its client's to correct and not the server's
/// to fail on. What a user filled in is the server's to judge.
fn check_response(key: &ByteString, kind: InputKind, answer: &RawJson) -> Result<(), Error> {
    let wrong = |what: &str| Err(invalid(&format!("inputResponses[{key:?}] {what}")));
    let Some(answer) = answer.as_object() else {
        return wrong("must be an object without duplicate keys");
    };
    match kind {
        InputKind::ElicitForm | InputKind::ElicitUrl => match answer.get_string("action").as_deref() {
            Some("accept" | "decline" | "cancel") => Ok(()),
            _ => wrong("must have an action: accept, decline or cancel"),
        },
        InputKind::Sample | InputKind::SampleWithTools => {
            let said = answer.get_string("role").is_some() && answer.get("content").is_some();
            if said { Ok(()) } else { wrong("must have a role and content") }
        }
        InputKind::Roots => {
            let listed = answer.get("roots").is_some_and(|roots| roots.bytes().first() == Some(&b'['));
            if listed { Ok(()) } else { wrong("must have roots: an array") }
        }
        InputKind::Other => Ok(()),
    }
}

/// Hands over what is answered completely; gives back the rest.
fn deliver_complete(asks: Vec<OpenInput>) -> Vec<OpenInput> {
    let mut open = Vec::new();
    for ask in asks {
        if ask.requests.iter().any(|request| request.response.is_none()) {
            open.push(ask);
            continue;
        }
        let answers: InputResponses =
            ask.requests.into_iter().filter_map(|request| Some((request.key, Ok(request.response?)))).collect();
        // Nobody waits any more where the server gave up meanwhile: the exchange knows.
        let _ = ask.responses.send(answers);
    }
    open
}

fn invalid(what: &str) -> Error {
    Error::new(McpErrorKind::InvalidParams, format!("Invalid params: {what}"))
}

/// What a legacy server's error asks for, if it is the one that asks for something (2025-11-25/client/elicitation.mdx,
/// URL Elicitation Required Error): its elicitations, as questions that this revision's clients can be asked.
pub(super) fn from_error(error: &Error) -> Option<InputRequired> {
    let McpErrorKind::ServerError(answered) = &error.kind else { return None };
    let asked = legacy::url_elicitations(answered)?;
    let method = ByteString::literal("elicitation/create");
    let question =
        |params| encode_request(&InputRequest { kind: InputKind::ElicitUrl, method: method.clone(), params });
    let numbered = asked.into_iter().take(INPUT_REQUESTS_MAX).enumerate();
    let requests =
        numbered.map(|(n, params)| (ByteString::from(format!("input-{}", n + 1)), question(params))).collect();
    // The server forgot the call: nobody waits for the answers, which come with another one.
    let (answer, _) = tokio::sync::oneshot::channel();
    Some(InputRequired { requests, state: RequestState::CarriedByClient(None), server: None, responder: answer })
}
