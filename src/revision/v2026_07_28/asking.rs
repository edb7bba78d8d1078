//! Questions to a stateless client: out as an `InputRequiredResult`, back as another request.
//!
//! basic/patterns/mrtr.mdx. Owns what a client is asked and what it brings back. Invariant: a client is asked only for
//! what it declared, and an exchange whose server waits is either parked or over.

use bytes::Bytes;
use tokio::time::{Duration, Instant, timeout_at};

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::Id;
use crate::model::{Answers, Ask, AskKind, AskState, Caller, Error, Event, Exchange, Question, Reason, Resume};
use crate::revision::v2026_07_28::spell;
use crate::revision::v2026_07_28::state::{self, State, Subject};
use crate::revision::{FrontState, legacy};
use crate::session::{OpenAsk, OpenRequest, Parked, Refused};

/// After a server's question, how long to wait for another one: servers that ask for several things ask for them at
/// once, and the client should hear of them in one round.
const GATHER_GAP: Duration = Duration::from_millis(10);
/// How long to wait for all of them together.
const GATHER_TIME: Duration = Duration::from_millis(100);
/// How many questions one round may hold.
const ASKS_MAX: usize = 32;
/// How many notices are kept while questions are gathered; they reach the client with its next request.
const EARLY_MAX: usize = 64;

/// What a retry brings.
#[derive(Default)]
pub(super) struct Brought {
    answers: Option<Raw>,
    state: Option<Raw>,
}

/// What a retry is for.
pub(super) enum Retry {
    /// A new call, with what the server gets of it.
    Call(Option<Box<Resume>>),
    /// A parked exchange that may go on.
    Resumed(Exchange),
    /// A parked exchange that has questions left: they are asked again.
    Again(Exchange, Vec<OpenAsk>),
}

/// Who is asked, about what.
pub(super) struct Asker<'a> {
    pub(super) id: &'a Id,
    pub(super) subject: &'a Subject,
    pub(super) caller: &'a Caller,
    pub(super) scope: &'a Text,
    pub(super) front: &'a FrontState,
}

impl Brought {
    /// Takes what the client brings out of the params.
    pub(super) fn take(params: &mut Object) -> Self {
        Brought { answers: params.remove("inputResponses"), state: params.remove("requestState") }
    }
}

impl Asker<'_> {
    /// What a request with `brought` in it is for. Fails without using anything up.
    pub(super) fn retry(&self, brought: Brought) -> Result<Retry, Error> {
        let Brought { answers, state } = brought;
        if let Some(answers) = &answers
            && !answers.is_object()
        {
            return Err(invalid("inputResponses must be an object"));
        }
        let Some(state) = state else {
            return Ok(Retry::Call(
                answers.map(|answers| Box::new(Resume { answers: Some(answers), ..Resume::default() })),
            ));
        };
        let bound = self.subject.bound(&self.caller.principal, self.scope);
        match State::open(&state, &bound, self.front)? {
            State::Server { server, state } => {
                Ok(Retry::Call(Some(Box::new(Resume { answers, state: Some(state), server }))))
            }
            State::Parked(ticket) => {
                let parked = self.front.parking.take(&ticket, &self.caller.principal);
                let mut parked = parked.ok_or_else(|| state::refused(Refused::Expired, self.front))?;
                let answers = answers.and_then(|raw| raw.as_object()).unwrap_or_default();
                if let Err(error) = fill(&mut parked.asks, &answers) {
                    self.front.parking.put_back(ticket, self.caller.principal.clone(), parked);
                    return Err(error);
                }
                let Parked { exchange, asks } = parked;
                let open = deliver(asks);
                Ok(if open.is_empty() { Retry::Resumed(exchange) } else { Retry::Again(exchange, open) })
            }
        }
    }

    /// Asks on behalf of a server that kept nothing: its exchange is over.
    pub(super) fn pass_on(
        &self,
        requests: &[(Text, Question)],
        server: Option<Text>,
        state: Option<Raw>,
    ) -> Vec<Bytes> {
        let state = state.map(|state| {
            let bound = self.subject.bound(&self.caller.principal, self.scope);
            State::Server { server, state }.seal(&bound, self.front)
        });
        let requests = requests.iter().map(|(key, question)| (key, question));
        spell::input_required(self.id, requests, state.as_ref())
    }

    /// Asks on behalf of a server that waits: the exchange is kept, with whatever else the server asks right away.
    ///
    /// Gives the exchange back, with all that was read of it, where its server goes on without an answer.
    pub(super) async fn park(&self, mut exchange: Exchange, first: Ask) -> Result<(u16, Vec<Bytes>), Exchange> {
        let mut asks = vec![first];
        let mut early = Vec::new();
        let until = Instant::now() + GATHER_TIME;
        while asks.len() < ASKS_MAX {
            let gap = (Instant::now() + GATHER_GAP).min(until);
            match timeout_at(gap, exchange.next_event()).await {
                Err(_) => break,
                Ok(Event::Done(end)) => return Err(Exchange::done(end).after(early)),
                Ok(Event::Ask(ask)) => match self.refusal(&ask) {
                    None => asks.push(ask),
                    Some(error) => return Ok((spell::status(&error), vec![spell::failure(Some(self.id), &error)])),
                },
                Ok(notice) if early.len() < EARLY_MAX => early.push(notice),
                Ok(_) => {}
            }
        }
        let mut number = 0;
        let open = asks.into_iter().map(|ask| {
            let Ask { requests, answer, .. } = ask;
            let requests = requests.into_iter().map(|(key, question)| {
                number += 1;
                let shown = Text::from(format!("input-{number}"));
                OpenRequest { shown, key: Text::from(key.as_str()), question: detached(question), answer: None }
            });
            OpenAsk { requests: requests.collect(), answer }
        });
        let open = open.collect();
        Ok(self.again(exchange.after(early), open))
    }

    /// Parks an exchange, and asks for what is open.
    pub(super) fn again(&self, exchange: Exchange, asks: Vec<OpenAsk>) -> (u16, Vec<Bytes>) {
        let shown: Vec<(Text, Question)> = asks
            .iter()
            .flat_map(|ask| &ask.requests)
            .filter(|request| request.answer.is_none())
            .map(|request| (request.shown.clone(), question_of(&request.question)))
            .collect();
        let parked = Parked { exchange, asks };
        let Some(ticket) = self.front.parking.park(self.caller.principal.clone(), parked) else {
            let message = "The server asks for input while it waits, and no call may be kept for that (limits.parked)";
            let error = Error::new(Reason::Overloaded, message);
            return (200, vec![spell::failure(Some(self.id), &error)]);
        };
        let bound = self.subject.bound(&self.caller.principal, self.scope);
        let state = State::Parked(ticket).seal(&bound, self.front);
        let requests = shown.iter().map(|(key, question)| (key, question));
        (200, spell::input_required(self.id, requests, Some(&state)))
    }

    /// Why an ask cannot be put to this client.
    ///
    /// "Servers MUST NOT send an `inputRequests` that the client has not declared support for in its capabilities."
    pub(super) fn refusal(&self, ask: &Ask) -> Option<Error> {
        if !self.subject.may_ask() {
            let kind = ask.requests.first().map_or("input", |(_, question)| question.kind.capability());
            let message = format!(
                "The server asks for {kind} during {}, where a client of this revision cannot be asked for anything",
                self.subject.method().name()
            );
            return Some(Error::new(Reason::CannotCross, message));
        }
        let missing =
            ask.requests.iter().map(|(_, question)| question.kind).find(|kind| !self.caller.can.answer(*kind));
        missing.map(|kind| {
            let message = format!("The server asks for {}, which this client did not declare", kind.capability());
            let required = Object::new().with("requiredCapabilities", legacy::required(kind));
            Error::new(Reason::MissingCapability, message).with_data(required.raw())
        })
    }

    /// Counts what is asked.
    pub(super) fn count(&self, ask: &Ask, outcome: &str) {
        for (_, question) in &ask.requests {
            self.front.metrics.asks.with_label_values(&[question.kind.capability(), outcome]).inc();
        }
    }
}

/// The question in memory of its own: it may be kept for long, and is a span of whatever the server sent with it.
fn detached(question: Question) -> Question {
    let params = question.params.raw().detached().as_object();
    Question { method: Text::from(question.method.as_str()), params: params.unwrap_or(question.params), ..question }
}

/// The question as this revision asks it: "Remove the `notifications/elicitation/complete` notification and the
/// `elicitationId` field" (changelog.mdx).
fn question_of(question: &Question) -> Question {
    let mut question = question.clone();
    if question.kind == AskKind::ElicitUrl {
        question.params.remove("elicitationId");
    }
    question
}

/// Notes the answers. What was not asked for is ignored: "the server SHOULD ignore any information it does not
/// recognize or need". Fails, having noted nothing, where an answer cannot be one.
fn fill(asks: &mut [OpenAsk], answers: &Object) -> Result<(), Error> {
    let open = || asks.iter().flat_map(|ask| &ask.requests).filter(|request| request.answer.is_none());
    for request in open() {
        if let Some(answer) = answers.get(&request.shown) {
            check(&request.shown, request.question.kind, answer)?;
        }
    }
    for request in asks.iter_mut().flat_map(|ask| &mut ask.requests).filter(|request| request.answer.is_none()) {
        request.answer = answers.object(&request.shown);
    }
    Ok(())
}

/// Whether an answer is one to this kind of question, so that a mistake is its client's to correct and not the server's
/// to fail on. What a user filled in is the server's to judge.
fn check(key: &Text, kind: AskKind, answer: &Raw) -> Result<(), Error> {
    let wrong = |what: &str| Err(invalid(&format!("inputResponses[{key:?}] {what}")));
    let Some(answer) = answer.as_object() else {
        return wrong("must be an object without duplicate keys");
    };
    match kind {
        AskKind::ElicitForm | AskKind::ElicitUrl => match answer.text("action").as_deref() {
            Some("accept" | "decline" | "cancel") => Ok(()),
            _ => wrong("must have an action: accept, decline or cancel"),
        },
        AskKind::Sample | AskKind::SampleWithTools => {
            let said = answer.text("role").is_some() && answer.get("content").is_some();
            if said { Ok(()) } else { wrong("must have a role and content") }
        }
        AskKind::Roots => {
            let listed = answer.get("roots").is_some_and(|roots| roots.bytes().first() == Some(&b'['));
            if listed { Ok(()) } else { wrong("must have roots: an array") }
        }
        AskKind::Other => Ok(()),
    }
}

/// Hands over what is answered completely; gives back the rest.
fn deliver(asks: Vec<OpenAsk>) -> Vec<OpenAsk> {
    let mut open = Vec::new();
    for ask in asks {
        if ask.requests.iter().any(|request| request.answer.is_none()) {
            open.push(ask);
            continue;
        }
        let answers: Answers =
            ask.requests.into_iter().filter_map(|request| Some((request.key, Ok(request.answer?)))).collect();
        // Nobody waits any more where the server gave up meanwhile: the exchange knows.
        let _ = ask.answer.send(answers);
    }
    open
}

fn invalid(what: &str) -> Error {
    Error::new(Reason::InvalidParams, format!("Invalid params: {what}"))
}

/// What a legacy server's error asks for, if it is the one that asks for something (2025-11-25/client/elicitation.mdx,
/// URL Elicitation Required Error): its elicitations, as questions that this revision's clients can be asked.
pub(super) fn from_error(error: &Error) -> Option<Ask> {
    let Reason::Answered(answered) = &error.reason else { return None };
    let asked = legacy::url_elicitations(answered)?;
    let method = Text::literal("elicitation/create");
    let question = |params| question_of(&Question { kind: AskKind::ElicitUrl, method: method.clone(), params });
    let numbered = asked.into_iter().take(ASKS_MAX).enumerate();
    let requests = numbered.map(|(n, params)| (Text::from(format!("input-{}", n + 1)), question(params))).collect();
    // The server forgot the call: nobody waits for the answers, which come with another one.
    let (answer, _) = tokio::sync::oneshot::channel();
    Some(Ask { requests, state: AskState::ServerForgot(None), server: None, answer })
}
