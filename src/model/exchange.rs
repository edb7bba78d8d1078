//! One call as it happens: notices and asks, then exactly one end.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::oneshot;

use crate::json::{ByteString, JsonObject, RawJson};
use crate::jsonrpc::RpcError;
use crate::model::{Error, InputKind, Notification, TaskState};

/// What happens in an exchange.
pub enum ExchangeEvent {
    /// The server says something about the call.
    Notification(Notification),
    /// The server needs something from the client before it can go on.
    InputRequired(InputRequired),
    /// The end: always there, always last, never twice.
    Done(Result<Outcome, Error>),
}

/// A call's result.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The result, without what a revision adds for itself.
    pub result: JsonObject,
    /// How long it may be kept, if the server said so.
    pub cache_hint: Option<CacheHint>,
    /// The task that the call became, or that it was about; the result then holds what stands around it.
    pub task: Option<Box<TaskState>>,
}

/// How long a result may be kept, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CacheHint {
    /// Milliseconds for which it counts as fresh.
    pub ttl_ms: u64,
    /// Whether it may be shared between principals.
    pub public: bool,
}

/// What a server needs from the client.
pub struct InputRequired {
    /// The requests, by the server's keys; never empty unless only the state is to be sent back.
    pub requests: Vec<(ByteString, InputRequest)>,
    /// Who remembers the exchange meanwhile.
    pub state: RequestState,
    /// Which server asks, once the gateway knows.
    pub server: Option<ByteString>,
    /// Where the answers go. Dropped: the client will not answer.
    pub responder: oneshot::Sender<InputResponses>,
}

/// Who remembers an exchange while the client is asked.
#[derive(Clone, Debug)]
pub enum RequestState {
    /// The server waits: the exchange must be kept until it is answered.
    HeldByServer,
    /// The server kept nothing but what it hands out here: the exchange may be forgotten.
    CarriedByClient(Option<RawJson>),
}

/// One request of a server to the client.
#[derive(Clone, Debug)]
pub struct InputRequest {
    /// What for, as we understand it.
    pub kind: InputKind,
    /// The method.
    pub method: ByteString,
    /// The params, untouched.
    pub params: JsonObject,
}

/// The client's answers, by the server's keys.
pub type InputResponses = Vec<(ByteString, Result<JsonObject, RpcError>)>;

/// A running call. Dropping it cancels the call.
pub struct Exchange {
    events: Pin<Box<dyn Stream<Item = ExchangeEvent> + Send>>,
}

impl Exchange {
    /// An exchange made of a stream. The stream should end in [`Event::Done`]; if it ends without, that is reported
    /// as a failure of ours.
    pub fn new(events: impl Stream<Item = ExchangeEvent> + Send + 'static) -> Self {
        Exchange { events: Box::pin(events) }
    }

    /// An exchange that is over at once.
    pub fn ready(end: Result<Outcome, Error>) -> Self {
        Exchange::new(stream::once(std::future::ready(ExchangeEvent::Done(end))))
    }

    /// An exchange that starts once `start` gives it.
    pub fn start_with(start: impl Future<Output = Exchange> + Send + 'static) -> Self {
        Exchange::new(stream::once(start).flatten())
    }

    /// The next event; after [`Event::Done`], nothing may be asked any more.
    pub async fn next_event(&mut self) -> ExchangeEvent {
        self.events.next().await.unwrap_or_else(|| ExchangeEvent::Done(Err(Error::internal("the exchange broke off"))))
    }

    /// The same exchange after some events that were read already.
    pub fn prepend(self, events: Vec<ExchangeEvent>) -> Self {
        if events.is_empty() { self } else { Exchange::new(stream::iter(events).chain(self.events)) }
    }

    /// The same exchange with each event changed by `change`.
    pub fn map(self, change: impl FnMut(ExchangeEvent) -> ExchangeEvent + Send + 'static) -> Self {
        Exchange::new(self.events.map(change))
    }

    /// Waits for the end, refusing whatever is asked meanwhile.
    pub async fn outcome(mut self) -> Result<Outcome, Error> {
        loop {
            if let ExchangeEvent::Done(end) = self.next_event().await {
                return end;
            }
        }
    }
}

impl Stream for Exchange {
    type Item = ExchangeEvent;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        self.events.as_mut().poll_next(cx)
    }
}

impl Outcome {
    /// A result without a cache hint.
    pub fn from_result(result: JsonObject) -> Self {
        Outcome { result, cache_hint: None, task: None }
    }
}
