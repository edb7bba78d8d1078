//! One call as it happens: notices and asks, then exactly one end.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::oneshot;

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::RpcError;
use crate::model::{AskKind, Error, Notice, Task};

/// What happens in an exchange.
pub enum Event {
    /// The server says something about the call.
    Notify(Notice),
    /// The server needs something from the client before it can go on.
    Ask(Ask),
    /// The end: always there, always last, never twice.
    Done(Result<Outcome, Error>),
}

/// A call's result.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The result, without what a revision adds for itself.
    pub result: Object,
    /// How long it may be kept, if the server said so.
    pub cache: Option<CacheHint>,
    /// The task that the call became, or that it was about; the result then holds what stands around it.
    pub task: Option<Box<Task>>,
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
pub struct Ask {
    /// The requests, by the server's keys; never empty unless only the state is to be sent back.
    pub requests: Vec<(Text, Question)>,
    /// Who remembers the exchange meanwhile.
    pub state: AskState,
    /// Which server asks, once the gateway knows.
    pub server: Option<Text>,
    /// Where the answers go. Dropped: the client will not answer.
    pub answer: oneshot::Sender<Answers>,
}

/// Who remembers an exchange while the client is asked.
#[derive(Clone, Debug)]
pub enum AskState {
    /// The server waits: the exchange must be kept until it is answered.
    ServerWaits,
    /// The server kept nothing but what it hands out here: the exchange may be forgotten.
    ServerForgot(Option<Raw>),
}

/// One request of a server to the client.
#[derive(Clone, Debug)]
pub struct Question {
    /// What for, as we understand it.
    pub kind: AskKind,
    /// The method.
    pub method: Text,
    /// The params, untouched.
    pub params: Object,
}

/// The client's answers, by the server's keys.
pub type Answers = Vec<(Text, Result<Object, RpcError>)>;

/// A running call. Dropping it cancels the call.
pub struct Exchange {
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
}

impl Exchange {
    /// An exchange made of a stream. The stream should end in [`Event::Done`]; if it ends without, that is reported
    /// as a failure of ours.
    pub fn new(events: impl Stream<Item = Event> + Send + 'static) -> Self {
        Exchange { events: Box::pin(events) }
    }

    /// An exchange that is over at once.
    pub fn done(end: Result<Outcome, Error>) -> Self {
        Exchange::new(stream::once(std::future::ready(Event::Done(end))))
    }

    /// An exchange that starts once `start` gives it.
    pub fn later(start: impl Future<Output = Exchange> + Send + 'static) -> Self {
        Exchange::new(stream::once(start).flatten())
    }

    /// The next event; after [`Event::Done`], nothing may be asked any more.
    pub async fn next_event(&mut self) -> Event {
        self.events.next().await.unwrap_or_else(|| Event::Done(Err(Error::internal("the exchange broke off"))))
    }

    /// The same exchange after some events that were read already.
    pub fn after(self, events: Vec<Event>) -> Self {
        if events.is_empty() { self } else { Exchange::new(stream::iter(events).chain(self.events)) }
    }

    /// The same exchange with each event changed by `change`.
    pub fn map(self, change: impl FnMut(Event) -> Event + Send + 'static) -> Self {
        Exchange::new(self.events.map(change))
    }

    /// Waits for the end, refusing whatever is asked meanwhile.
    pub async fn outcome(mut self) -> Result<Outcome, Error> {
        loop {
            if let Event::Done(end) = self.next_event().await {
                return end;
            }
        }
    }
}

impl Stream for Exchange {
    type Item = Event;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.as_mut().poll_next(cx)
    }
}

impl Outcome {
    /// A result without a cache hint.
    pub fn of(result: Object) -> Self {
        Outcome { result, cache: None, task: None }
    }
}
