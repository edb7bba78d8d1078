//! From an exchange to an HTTP response: JSON if the end comes first, an event stream if anything comes before it.
//!
//! Owns the choice and the writing. Does not spell messages: that is the [`Spell`] of the revision. Invariant: the
//! status is not sent before the first event is known, or before the silence was longer than the keep-alive.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use http::{HeaderValue, Response, header};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use crate::body::Body;
use crate::model::{Error, Exchange, ExchangeEvent, InputRequired, Notification, Outcome};
use crate::revision::json_response;
use crate::sse;
use crate::telemetry::{CountGuard, Metrics};
use crate::timer_pool::TimerPool;

/// How one revision spells what happens in one exchange.
pub(super) trait ResponseEncoder: Send + 'static {
    /// A notification, or nothing if this client did not ask for it.
    fn notification(&mut self, notice: Notification) -> Option<Bytes>;

    /// What the server asks: messages for the stream, or the end of the exchange.
    fn input_required(&mut self, ask: InputRequired) -> InputAction;

    /// A message as an event of the stream; `last`: nothing follows.
    fn frame(&mut self, message: &[u8], last: bool) -> Bytes {
        let _ = last;
        sse::encode_event(message)
    }

    /// What an event stream begins with.
    fn priming_event(&mut self) -> Option<Bytes> {
        None
    }

    /// Waits until the connection of the stream is to end before the stream does.
    fn disconnect(&mut self) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }

    /// The end: the status for a plain answer, and the answer in parts.
    fn result(&mut self, end: Result<Outcome, Error>) -> (u16, Vec<Bytes>);

    /// Keeps an exchange whose server waits for answers that will come with another request, and ends this one.
    /// Fails with the exchange, and all that it said meanwhile, where its server goes on without an answer.
    fn park(
        &mut self,
        exchange: Exchange,
        ask: InputRequired,
    ) -> impl Future<Output = Result<(u16, Vec<Bytes>), Exchange>> + Send {
        drop((exchange, ask));
        let end = self.result(Err(Error::internal("this client's revision keeps its exchanges open")));
        std::future::ready(Ok(end))
    }

    /// Waits until the client takes its request back; for ever where it cannot.
    fn wait_cancelled(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Why a request that is taken back has an answer all the same: it was not the client that took it back.
    fn cancellation_error(&self) -> Option<Error> {
        None
    }

    /// What is to be done with an exchange whose client went away.
    fn on_client_gone(&mut self, exchange: Exchange) {
        drop(exchange);
    }
}

/// What becomes of an ask.
pub(super) enum InputAction {
    /// Messages go out on the stream; the answers will come on another request.
    Send(Vec<Bytes>),
    /// The exchange ends with this answer.
    End(u16, Vec<Bytes>),
    /// The exchange is to be kept: [`Spell::park`].
    Park(InputRequired),
}

/// How answers are written.
#[derive(Clone)]
pub(super) struct ResponseOptions {
    /// Silence after which something must be sent.
    pub(super) keep_alive: Duration,
    /// Whether the client takes event streams.
    pub(super) stream: bool,
    /// Counts open streams.
    pub(super) metrics: Arc<Metrics>,
    /// The timers for that silence.
    pub(super) timers: Arc<TimerPool>,
}

/// Answers with what happens in `exchange`.
pub(super) async fn respond<S: ResponseEncoder>(
    exchange: Exchange,
    spell: S,
    writing: ResponseOptions,
) -> Response<Body> {
    let mut running = ResponseDriver { exchange: Some(exchange), encoder: spell };
    let mut quiet = writing.timers.timer_at(Instant::now() + writing.keep_alive);
    loop {
        let step = tokio::select! {
            biased;
            step = running.step() => step,
            () = &mut quiet, if writing.stream => DriverStep::Write(Bytes::from_static(sse::KEEP_ALIVE)),
        };
        match step {
            DriverStep::End(status, parts) => return json_response(status, parts),
            DriverStep::Park(ask) => {
                if let Some((status, parts)) = running.park(ask).await {
                    return json_response(status, parts);
                }
            }
            DriverStep::Write(first) if writing.stream => return event_stream(first, running, writing),
            // A client that takes no streams misses the notifications, not the answer.
            DriverStep::Write(_) | DriverStep::Nothing => {}
            DriverStep::Cancelled => return cancelled_response(),
        }
    }
}

/// Goes on with an exchange whose client went away and may come back: what happens is for the spelling to keep. After
/// `forgotten` only the end is waited for.
pub(super) async fn run_detached<S: ResponseEncoder>(exchange: Exchange, spell: S, forgotten: BoxFuture<'static, ()>) {
    let mut running = ResponseDriver { exchange: Some(exchange), encoder: spell };
    let mut forgotten = forgotten;
    loop {
        let step = tokio::select! {
            step = running.step() => step,
            () = &mut forgotten => break,
        };
        match step {
            DriverStep::Write(_) | DriverStep::Nothing => {}
            DriverStep::Cancelled => return,
            DriverStep::End(_, parts) => return drop(running.encoder.frame(&parts.concat(), true)),
            DriverStep::Park(ask) => {
                if let Some((_, parts)) = running.park(ask).await {
                    return drop(running.encoder.frame(&parts.concat(), true));
                }
            }
        }
    }
    if let Some(exchange) = running.exchange.take() {
        tokio::select! {
            _ = exchange.outcome() => {}
            () = running.encoder.wait_cancelled() => {}
        }
    }
}

/// Writes what happens in an exchange to a stream that it shares with others, as long as that is read.
pub(super) async fn forward<S: ResponseEncoder>(exchange: Exchange, spell: S, out: mpsc::Sender<Bytes>) {
    let mut running = ResponseDriver { exchange: Some(exchange), encoder: spell };
    loop {
        let (chunk, last) = match running.step().await {
            DriverStep::Write(chunk) => (chunk, false),
            DriverStep::End(_, parts) => (running.encoder.frame(&parts.concat(), true), true),
            DriverStep::Park(ask) => match running.park(ask).await {
                Some((_, parts)) => (running.encoder.frame(&parts.concat(), true), true),
                None => continue,
            },
            DriverStep::Nothing => continue,
            DriverStep::Cancelled => return,
        };
        if out.send(chunk).await.is_err() || last {
            return;
        }
    }
}

/// 2025-11-25/basic/utilities/cancellation.mdx: a cancelled request gets no response; the HTTP request must still end.
fn cancelled_response() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    set_stream_headers(&mut response);
    response
}

fn event_stream<S: ResponseEncoder>(
    first: Bytes,
    mut running: ResponseDriver<S>,
    writing: ResponseOptions,
) -> Response<Body> {
    struct ResponseStream<S: ResponseEncoder> {
        running: ResponseDriver<S>,
        first: [Option<Bytes>; 2],
        let_go: BoxFuture<'static, ()>,
        keep_alive: Duration,
        ended: bool,
        _open: CountGuard,
    }
    let open = CountGuard::new(&writing.metrics.streams);
    let (prime, let_go) = (running.encoder.priming_event(), running.encoder.disconnect());
    let first = [prime, Some(first)];
    let state = ResponseStream { running, first, let_go, keep_alive: writing.keep_alive, ended: false, _open: open };
    let chunks = stream::unfold(state, |mut s| async move {
        if let Some(first) = s.first.iter_mut().find_map(Option::take) {
            return Some((first, s));
        }
        while !s.ended {
            let step = tokio::select! {
                biased;
                // First: where another connection took over, nothing more may go out on this one, however much there is.
                () = &mut s.let_go => break,
                step = s.running.step() => step,
                () = tokio::time::sleep(s.keep_alive) => DriverStep::Write(Bytes::from_static(sse::KEEP_ALIVE)),
            };
            match step {
                DriverStep::Write(chunk) => return Some((chunk, s)),
                DriverStep::Nothing => {}
                DriverStep::Cancelled => s.ended = true,
                DriverStep::End(_, parts) => {
                    s.ended = true;
                    return Some((s.running.encoder.frame(&parts.concat(), true), s));
                }
                DriverStep::Park(ask) => {
                    if let Some((_, parts)) = s.running.park(ask).await {
                        s.ended = true;
                        return Some((sse::encode_event(&parts.concat()), s));
                    }
                }
            }
        }
        None
    });
    let mut response = Response::new(Body::Stream(Box::pin(chunks)));
    set_stream_headers(&mut response);
    response
}

/// The headers of an event stream. 2026-07-28/basic/transports/streamable-http.mdx, Receiving Messages: "servers
/// SHOULD include the `X-Accel-Buffering: no` header".
pub(super) fn set_stream_headers(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
}

/// An exchange with its spelling; dropped before its end, it goes where its revision says.
struct ResponseDriver<S: ResponseEncoder> {
    exchange: Option<Exchange>,
    encoder: S,
}

enum DriverStep {
    Write(Bytes),
    Nothing,
    End(u16, Vec<Bytes>),
    Park(InputRequired),
    Cancelled,
}

impl<S: ResponseEncoder> ResponseDriver<S> {
    async fn step(&mut self) -> DriverStep {
        let Some(exchange) = &mut self.exchange else { return DriverStep::Cancelled };
        let event = tokio::select! {
            biased;
            event = exchange.next_event() => event,
            () = self.encoder.wait_cancelled() => {
                // Dropped here, on purpose: that is what cancels it towards the server.
                self.exchange = None;
                let Some(error) = self.encoder.cancellation_error() else { return DriverStep::Cancelled };
                let (status, parts) = self.encoder.result(Err(error));
                return DriverStep::End(status, parts);
            }
        };
        match event {
            ExchangeEvent::Notification(notice) => match self.encoder.notification(notice) {
                Some(json) => DriverStep::Write(self.encoder.frame(&json, false)),
                None => DriverStep::Nothing,
            },
            ExchangeEvent::InputRequired(ask) => match self.encoder.input_required(ask) {
                InputAction::Send(messages) => DriverStep::Write(
                    messages.iter().map(|m| self.encoder.frame(m, false)).collect::<Vec<_>>().concat().into(),
                ),
                InputAction::End(status, parts) => {
                    self.exchange = None;
                    DriverStep::End(status, parts)
                }
                InputAction::Park(ask) => DriverStep::Park(ask),
            },
            ExchangeEvent::Done(end) => {
                self.exchange = None;
                let (status, parts) = self.encoder.result(end);
                DriverStep::End(status, parts)
            }
        }
    }
}

impl<S: ResponseEncoder> ResponseDriver<S> {
    /// Parks the exchange and gives the answer that ends this request; nothing where the exchange goes on.
    ///
    /// Not a part of a step: a step may be dropped half-way, and the exchange with it.
    async fn park(&mut self, ask: InputRequired) -> Option<(u16, Vec<Bytes>)> {
        let Some(exchange) = self.exchange.take() else {
            return Some(self.encoder.result(Err(Error::internal("the exchange was over before it could be kept"))));
        };
        match self.encoder.park(exchange, ask).await {
            Ok(end) => Some(end),
            Err(exchange) => {
                self.exchange = Some(exchange);
                None
            }
        }
    }
}

impl<S: ResponseEncoder> Drop for ResponseDriver<S> {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.encoder.on_client_gone(exchange);
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::json::JsonObject;

    /// Somebody takes the stream over while it is written.
    struct TakenOver(tokio_util::sync::CancellationToken);

    impl ResponseEncoder for TakenOver {
        fn notification(&mut self, _: Notification) -> Option<Bytes> {
            Some(Bytes::from_static(b"{}"))
        }

        fn input_required(&mut self, _: InputRequired) -> InputAction {
            InputAction::Send(Vec::new())
        }

        fn disconnect(&mut self) -> BoxFuture<'static, ()> {
            self.0.clone().cancelled_owned().boxed()
        }

        fn result(&mut self, _: Result<Outcome, Error>) -> (u16, Vec<Bytes>) {
            (200, Vec::new())
        }
    }

    #[tokio::test]
    async fn a_stream_that_was_taken_over_says_nothing_more() {
        let taken = tokio_util::sync::CancellationToken::new();
        // A server that always has something to say.
        let events = stream::repeat_with(|| ExchangeEvent::Notification(Notification::Progress(JsonObject::new())));
        let writing = ResponseOptions {
            keep_alive: Duration::from_secs(60),
            stream: true,
            metrics: Arc::new(Metrics::new()),
            timers: Arc::default(),
        };
        let response = respond(Exchange::new(events), TakenOver(taken.clone()), writing).await;
        let mut body = response.into_body();
        for _ in 0..3 {
            assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
        }
        taken.cancel();
        assert!(body.frame().await.is_none(), "two connections have the same events");
    }
}
