//! Conversion of an exchange into an HTTP response: JSON if its end comes first, an event stream
//! otherwise.
//!
//! Owns that choice and the writing. Does not encode messages; that is the revision's
//! [`ResponseEncoder`]. Invariant: the status goes out once the first event is known, or after a
//! silence as long as the keep-alive.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use http::{HeaderValue, Response, header};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use crate::body::{AnsweringServer, Body};
use crate::http_response::json_response;
use crate::lazy_timer::TimerPool;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::sse;
use moongate_model::{Error, Exchange, ExchangeEvent, InputRequired, Notification, Outcome};
use moongate_telemetry::{CountGuard, Metrics};

/// Encoder of one exchange's events for a revision.
pub(super) trait ResponseEncoder: Send + 'static {
    /// Encodes a notification. `None` if this client did not request it.
    fn notification(&mut self, notification: Notification) -> Option<Bytes>;

    /// Handles input requests: messages for the stream, or the end of the exchange.
    fn input_required(&mut self, input: InputRequired) -> InputAction;

    /// Frames a message as an event of the stream. `last` is true if no event follows.
    fn frame(&mut self, message: &[u8], last: bool) -> Bytes {
        let _ = last;
        sse::encode_event(message)
    }

    /// Returns the first bytes of an event stream.
    fn priming_event(&mut self) -> Option<Bytes> {
        None
    }

    /// Waits until the stream's connection must close before the stream ends.
    fn disconnect(&mut self) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }

    /// Encodes the outcome: the status of a plain response, and the response in parts.
    fn result(&mut self, end: Result<Outcome, Error>) -> (u16, Vec<Bytes>);

    /// Parks an exchange that waits for input responses, and ends this request. The responses come
    /// with another request.
    ///
    /// Fails if the server continues without a response. The error is the exchange with all events
    /// read meanwhile.
    fn park(
        &mut self,
        exchange: Exchange,
        input: InputRequired,
    ) -> impl Future<Output = Result<(u16, Vec<Bytes>), Exchange>> + Send {
        drop((exchange, input));
        let end = self.result(Err(Error::internal(
            "this client's revision keeps its exchanges open",
        )));
        std::future::ready(Ok(end))
    }

    /// Waits until the client cancels its request. Pending forever if it cannot.
    fn wait_cancelled(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Returns the error for a cancelled request that still gets a response, since its client did
    /// not cancel it.
    fn cancellation_error(&self) -> Option<Error> {
        None
    }

    /// Handles an exchange whose client disconnected.
    fn on_client_gone(&mut self, exchange: Exchange) {
        drop(exchange);
    }
}

/// Action after an input request.
pub(super) enum InputAction {
    /// Messages go out on the stream; the responses come in other requests.
    Send(Vec<Bytes>),
    /// The waiting server learned that its request is refused, and the exchange continues.
    Refused,
    /// The exchange ends with this response.
    End(u16, Vec<Bytes>),
    /// The exchange is to be parked with [`ResponseEncoder::park`].
    Park(InputRequired),
}

/// Options of a response.
#[derive(Clone)]
pub(super) struct ResponseOptions {
    /// Silence after which a byte must be sent.
    pub(super) keep_alive: Duration,
    /// True if the client accepts event streams.
    pub(super) stream: bool,
    /// Metrics that count open streams.
    pub(super) metrics: Arc<Metrics>,
    /// Timers for that silence.
    pub(super) timers: Arc<TimerPool>,
}

/// Builds the response from the events of `exchange`.
pub(super) async fn respond<S: ResponseEncoder>(
    exchange: Exchange,
    encoder: S,
    options: ResponseOptions,
) -> Response<Body> {
    let mut driver = ResponseDriver {
        exchange: Some(exchange),
        ended_at: None,
        encoder,
    };
    let mut quiet = options.timers.timer_at(Instant::now() + options.keep_alive);
    loop {
        let step = tokio::select! {
            // `biased`: an event that is ready wins over the keep-alive, which would turn the
            // response into a stream.
            biased;
            step = driver.step() => step,
            () = &mut quiet,
                if options.stream => DriverStep::Write(Bytes::from_static(sse::KEEP_ALIVE)),
        };
        match step {
            DriverStep::End(status, parts) => {
                return of_server(driver.server(), json_response(status, parts));
            }
            DriverStep::Park(input) => {
                if let Some((status, parts)) = driver.park(input).await {
                    return json_response(status, parts);
                }
            }
            DriverStep::Write(first) if options.stream => {
                let server = driver.server().cloned();
                return of_server(server.as_ref(), event_stream(first, driver, options));
            }
            // A client without streams misses the notifications, not the response.
            DriverStep::Write(_) | DriverStep::Nothing => {}
            DriverStep::Cancelled => return cancelled_response(),
        }
    }
}

/// Continues an exchange whose client disconnected and may come back. The encoder keeps the events.
///
/// After `abandoned`, only the outcome is awaited.
pub(super) async fn run_detached<S: ResponseEncoder>(
    exchange: Exchange,
    encoder: S,
    mut abandoned: BoxFuture<'static, ()>,
) {
    let mut driver = ResponseDriver {
        exchange: Some(exchange),
        ended_at: None,
        encoder,
    };
    loop {
        let step = tokio::select! {
            step = driver.step() => step,
            () = &mut abandoned => break,
        };
        match step {
            DriverStep::Write(_) | DriverStep::Nothing => {}
            DriverStep::Cancelled => return,
            DriverStep::End(_, parts) => return drop(driver.encoder.frame(&parts.concat(), true)),
            DriverStep::Park(input) => {
                if let Some((_, parts)) = driver.park(input).await {
                    return drop(driver.encoder.frame(&parts.concat(), true));
                }
            }
        }
    }
    if let Some(exchange) = driver.exchange.take() {
        tokio::select! {
            _ = exchange.outcome() => {}
            () = driver.encoder.wait_cancelled() => {}
        }
    }
}

/// Writes the events of an exchange to a shared stream, as long as that is read.
pub(super) async fn forward<S: ResponseEncoder>(
    exchange: Exchange,
    encoder: S,
    out: mpsc::Sender<Bytes>,
) {
    let mut driver = ResponseDriver {
        exchange: Some(exchange),
        ended_at: None,
        encoder,
    };
    loop {
        // No keep-alive here: the shared stream has its own, or needs none.
        let (chunk, last) = match driver.step().await {
            DriverStep::Write(chunk) => (chunk, false),
            DriverStep::End(_, parts) => (driver.encoder.frame(&parts.concat(), true), true),
            DriverStep::Park(input) => match driver.park(input).await {
                Some((_, parts)) => (driver.encoder.frame(&parts.concat(), true), true),
                None => continue,
            },
            DriverStep::Nothing => continue,
            DriverStep::Cancelled => return,
        };
        // A closed queue means that the stream's connection is gone. The dropped driver hands the
        // exchange to `on_client_gone`.
        if out.send(chunk).await.is_err() || last {
            return;
        }
    }
}

/// Names the server of a response, if the response may hold much of its memory.
fn of_server(server: Option<&ByteString>, mut response: Response<Body>) -> Response<Body> {
    // Extensions cost an allocation, which most responses are spared.
    if let Some(server) = server.filter(|_| response.body().is_large()) {
        response
            .extensions_mut()
            .insert(AnsweringServer(server.clone()));
    }
    response
}

/// Builds the response to a cancelled request.
///
/// 2025-11-25/basic/utilities/cancellation.mdx: a cancelled request gets no response; the HTTP
/// request must still end.
fn cancelled_response() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    set_stream_headers(&mut response);
    response
}

fn event_stream<S: ResponseEncoder>(
    first: Bytes,
    mut driver: ResponseDriver<S>,
    options: ResponseOptions,
) -> Response<Body> {
    struct ResponseStream<S: ResponseEncoder> {
        running: ResponseDriver<S>,
        first: [Option<Bytes>; 2],
        must_disconnect: BoxFuture<'static, ()>,
        keep_alive: Duration,
        ended: bool,
        _open: CountGuard,
    }
    let open = CountGuard::new(&options.metrics.clients.streams);
    let prime = driver.encoder.priming_event();
    let must_disconnect = driver.encoder.disconnect();
    let first = [prime, Some(first)];
    let state = ResponseStream {
        running: driver,
        first,
        must_disconnect,
        keep_alive: options.keep_alive,
        ended: false,
        _open: open,
    };
    let chunks = stream::unfold(state, |mut s| async move {
        // 2025-11-25/basic/transports.mdx, Sending Messages to the Server: the event with an id
        // comes first "in order to prime the client to reconnect".
        if let Some(first) = s.first.iter_mut().find_map(Option::take) {
            return Some((first, s));
        }
        while !s.ended {
            let step = tokio::select! {
                biased;
                // First: after another connection took over, nothing may go out on this one,
                // however much is ready.
                () = &mut s.must_disconnect => break,
                step = s.running.step() => step,
                () = tokio::time::sleep(s.keep_alive) => DriverStep::Write(Bytes::from_static(sse::KEEP_ALIVE)),
            };
            match step {
                DriverStep::Write(chunk) => return Some((chunk, s)),
                DriverStep::Nothing => {}
                // The stream ends without a response: a cancelled request gets none.
                DriverStep::Cancelled => s.ended = true,
                DriverStep::End(_, parts) => {
                    s.ended = true;
                    return Some((s.running.encoder.frame(&parts.concat(), true), s));
                }
                DriverStep::Park(input) => {
                    if let Some((_, parts)) = s.running.park(input).await {
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

/// Sets the headers of an event stream.
///
/// 2026-07-28/basic/transports/streamable-http.mdx, Receiving Messages: "servers SHOULD
/// include the `X-Accel-Buffering: no` header".
pub(super) fn set_stream_headers(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    // `no-transform`: a proxy that compresses a stream would hold its events back (RFC 9111,
    // section 5.2.2.6).
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
}

/// Exchange with its encoder. Dropped before its end, it goes to
/// [`ResponseEncoder::on_client_gone`].
struct ResponseDriver<S: ResponseEncoder> {
    exchange: Option<Exchange>,
    /// Server of an exchange that has ended.
    ended_at: Option<ByteString>,
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
    /// Returns the server that the exchange is, or was, with.
    fn server(&self) -> Option<&ByteString> {
        self.exchange
            .as_ref()
            .map_or(self.ended_at.as_ref(), Exchange::server)
    }

    fn end_exchange(&mut self) {
        self.ended_at = self.exchange.take().and_then(Exchange::into_server);
    }

    async fn step(&mut self) -> DriverStep {
        let Some(exchange) = &mut self.exchange else {
            return DriverStep::Cancelled;
        };
        let event = tokio::select! {
            biased;
            event = exchange.next_event() => event,
            () = self.encoder.wait_cancelled() => {
                // Dropping the exchange is what cancels it at the server.
                self.exchange = None;
                let Some(error) = self.encoder.cancellation_error() else {
                    return DriverStep::Cancelled };
                let (status, parts) = self.encoder.result(Err(error));
                return DriverStep::End(status, parts);
            }
        };
        match event {
            ExchangeEvent::Notification(notification) => {
                match self.encoder.notification(notification) {
                    Some(json) => DriverStep::Write(self.encoder.frame(&json, false)),
                    None => DriverStep::Nothing,
                }
            }
            ExchangeEvent::InputRequired(input) => match self.encoder.input_required(input) {
                InputAction::Send(messages) => DriverStep::Write(
                    messages
                        .iter()
                        .map(|m| self.encoder.frame(m, false))
                        .collect::<Vec<_>>()
                        .concat()
                        .into(),
                ),
                InputAction::Refused => DriverStep::Nothing,
                InputAction::End(status, parts) => {
                    self.end_exchange();
                    DriverStep::End(status, parts)
                }
                InputAction::Park(input) => DriverStep::Park(input),
            },
            ExchangeEvent::Done(end) => {
                self.end_exchange();
                let (status, parts) = self.encoder.result(end);
                DriverStep::End(status, parts)
            }
        }
    }
}

impl<S: ResponseEncoder> ResponseDriver<S> {
    /// Parks the exchange and returns the response that ends this request. `None` if the exchange
    /// continues.
    ///
    /// Not a part of `step`, because a step may be dropped half-way, and the exchange with it.
    async fn park(&mut self, input: InputRequired) -> Option<(u16, Vec<Bytes>)> {
        let Some(exchange) = self.exchange.take() else {
            return Some(self.encoder.result(Err(Error::internal(
                "the exchange ended before it could be kept",
            ))));
        };
        match self.encoder.park(exchange, input).await {
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
    use moongate_jsonrpc::json::JsonObject;

    /// Encoder whose stream is taken over while it is written.
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
        // A server that always has an event ready.
        let events = stream::repeat_with(|| {
            ExchangeEvent::Notification(Notification::Progress(JsonObject::new()))
        });
        let options = ResponseOptions {
            keep_alive: Duration::from_secs(60),
            stream: true,
            metrics: Arc::new(Metrics::new()),
            timers: Arc::default(),
        };
        let response = respond(Exchange::new(events), TakenOver(taken.clone()), options).await;
        let mut body = response.into_body();
        for _ in 0..3 {
            assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
        }
        taken.cancel();
        assert!(
            body.frame().await.is_none(),
            "two connections have the same events"
        );
    }
}
