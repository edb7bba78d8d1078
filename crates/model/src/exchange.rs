//! Running calls: notifications and input requests, then exactly one end.
//!
//! Owns the stream of events of one call. Does not know who runs it. Invariant: the last event is
//! `Done`, and it comes exactly once.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::oneshot;

use crate::{Error, InputRequest, Notification, TaskState};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::RpcError;

/// Event of a running call.
pub enum ExchangeEvent {
    /// Notification about the call.
    Notification(Notification),
    /// Input from the client that the server needs before it can continue.
    InputRequired(InputRequired),
    /// End of the call: always present, always last, never twice.
    Done(Result<Outcome, Error>),
}

/// Result of a call.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Result members, without those that a revision adds.
    pub result: JsonObject,
    /// Permission of the server to cache the result.
    pub cache_hint: Option<CacheHint>,
    /// Task that the call became or was about. The result then holds the members around it.
    pub task: Option<Box<TaskState>>,
}

impl Outcome {
    /// Returns true for the result of a tool that reports its own failure.
    pub fn is_tool_error(&self) -> bool {
        self.result.is_true("isError")
    }
}

/// Permission to cache a result: for how long, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CacheHint {
    /// Milliseconds for which the result is fresh.
    pub ttl_ms: u64,
    /// True if principals may share the result.
    pub public: bool,
}

/// Input that a server needs from the client.
pub struct InputRequired {
    /// Requests by the server's keys. Empty only if nothing but the state is to be returned.
    pub requests: Vec<(ByteString, InputRequest)>,
    /// Holder of the call's state meanwhile.
    pub state_holder: StateHolder,
    /// Requesting server, once the gateway knows it.
    pub server: Option<ByteString>,
    /// Channel for the responses. Dropped if the client will not respond.
    pub responder: oneshot::Sender<InputResponses>,
}

/// Holder of a call's state while the client provides input.
#[derive(Clone, Debug)]
pub enum StateHolder {
    /// The server waits, so the exchange must stay open until the input arrives.
    Server,
    /// The client brings this value back, and the server keeps nothing. So the exchange may end.
    Client(Option<RawJson>),
}

/// Responses of the client, by the server's keys.
pub type InputResponses = Vec<(ByteString, Result<JsonObject, RpcError>)>;

/// Running call. Dropping it cancels the call.
pub struct Exchange {
    events: Pin<Box<dyn Stream<Item = ExchangeEvent> + Send>>,
    /// Name of the server that runs it. `None` for the gateway itself, and as long as it is not
    /// known.
    server: Option<ByteString>,
}

impl Exchange {
    /// Creates an exchange from a stream. The stream should end in [`ExchangeEvent::Done`]; any
    /// other end is reported as a failure of the gateway.
    pub fn new(events: impl Stream<Item = ExchangeEvent> + Send + 'static) -> Self {
        Exchange {
            events: Box::pin(events),
            server: None,
        }
    }

    /// Names the server that runs the call.
    #[must_use]
    pub fn run_by(self, server: Option<ByteString>) -> Self {
        Exchange { server, ..self }
    }

    /// Returns the name of the server that runs the call, if it is known.
    pub fn server(&self) -> Option<&ByteString> {
        self.server.as_ref()
    }

    /// Ends the exchange, and returns the server that it was with.
    pub fn into_server(self) -> Option<ByteString> {
        self.server
    }

    /// Creates an exchange that is finished.
    pub fn ready(end: Result<Outcome, Error>) -> Self {
        Exchange::new(stream::once(std::future::ready(ExchangeEvent::Done(end))))
    }

    /// Creates an exchange that starts once `start` resolves.
    pub fn start_with(start: impl Future<Output = Exchange> + Send + 'static) -> Self {
        // Nothing starts before the first poll, so an exchange that is dropped unread costs
        // nothing.
        Exchange::new(stream::once(start).flatten())
    }

    /// Returns the next event. Must not be called after [`ExchangeEvent::Done`].
    pub async fn next_event(&mut self) -> ExchangeEvent {
        // A stream without an end must not leave the caller waiting: the call fails instead.
        self.events
            .next()
            .await
            .unwrap_or_else(|| ExchangeEvent::Done(Err(Error::internal("the exchange broke off"))))
    }

    /// Puts events in front that were read already.
    pub fn prepend(self, events: Vec<ExchangeEvent>) -> Self {
        // The common case keeps its stream and needs no new allocation.
        if events.is_empty() {
            return self;
        }
        Exchange::new(stream::iter(events).chain(self.events)).run_by(self.server)
    }

    /// Changes each event with `change`.
    pub fn map(self, change: impl FnMut(ExchangeEvent) -> ExchangeEvent + Send + 'static) -> Self {
        Exchange::new(self.events.map(change)).run_by(self.server)
    }

    /// Waits for the end. Input requests are dropped, which refuses them.
    pub async fn outcome(mut self) -> Result<Outcome, Error> {
        loop {
            // Dropping an input request closes its channel, which the server's side takes for a
            // refusal.
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
    /// Creates an outcome without a cache hint.
    pub fn from_result(result: JsonObject) -> Self {
        Outcome {
            result,
            cache_hint: None,
            task: None,
        }
    }
}
