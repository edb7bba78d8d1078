//! Resumable event stream of one call, kept so that its client can come back for the rest.
//!
//! Owns the start of such a stream, the lifetime of its connection and its continuation by GET.
//! Does not store events; that is `session.resumption`. Invariant: an event has one id, and is sent
//! on one connection at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use http::Response;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::dialect::DownstreamState;
use crate::legacy::downstream::encode;
use crate::legacy::profile::Profile;
use crate::respond;
use moongate_jsonrpc::message::RequestId;
use moongate_jsonrpc::sse;
use moongate_model::{Error, McpErrorKind};
use moongate_session::{NextEvent, ResumptionReader, Session, SessionActivityGuard};
use moongate_telemetry::{CountGuard, ResumeOutcome};

/// Delay after which a disconnected client should reconnect.
// 2025-11-25/basic/transports.mdx, Sending Messages to the Server: "The client MUST respect the
// `retry` field, waiting the given number of milliseconds before attempting to reconnect."
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Writer that numbers the events of one response and keeps them.
pub(crate) struct ResumableWriter {
    session: Arc<Session>,
    request: RequestId,
    primes: bool,
    stream_lifetime: Option<Duration>,
    begun: Option<(u64, CancellationToken)>,
}

/// Returns the lifetime of one stream's connection. `None` if the client would not come back.
pub(crate) fn stream_lifetime(
    profile: &Profile,
    session: &Session,
    state: &DownstreamState,
) -> Option<Duration> {
    let polls = profile.primes && session.shared_stream.is_none();
    polls.then_some(state.stream_lifetime)
}

impl ResumableWriter {
    /// Creates a writer. `None` if the client's revision or transport has no resumption.
    pub(crate) fn new(
        profile: &Profile,
        session: &Arc<Session>,
        request: &RequestId,
        state: &DownstreamState,
    ) -> Option<Self> {
        let on = profile.resumes && session.shared_stream.is_none();
        on.then(|| ResumableWriter {
            session: session.clone(),
            request: request.clone(),
            primes: profile.primes,
            stream_lifetime: stream_lifetime(profile, session, state),
            begun: None,
        })
    }

    /// Frames the next event. The first one starts the stream.
    pub(crate) fn frame(&mut self, message: &[u8], last: bool) -> Bytes {
        match self.stream_number() {
            Some(number) => self.session.resumption.add(number, message, last),
            // A session with too many open streams starts no further one, so these events have no
            // ids.
            None => sse::encode_event(message),
        }
    }

    fn stream_number(&mut self) -> Option<u64> {
        if self.begun.is_none() {
            self.begun = self.session.resumption.begin(&self.request);
            // A client may ask for the rest after a restart. The record lets it learn that there
            // will be none.
            self.session.persist();
        }
        self.begun.as_ref().map(|(number, _)| *number)
    }

    /// Returns the event that precedes all others.
    pub(crate) fn priming_event(&mut self) -> Option<Bytes> {
        // 2025-11-25/basic/transports.mdx: "an SSE event consisting of an event ID and an empty
        // `data` field in order to prime the client to reconnect".
        let number = self.stream_number().filter(|_| self.primes)?;
        Some(self.session.resumption.priming_event(number, RETRY_DELAY))
    }

    /// Waits until the connection must close: another one took over, or its lifetime passed.
    pub(crate) fn wait_disconnect(&mut self) -> BoxFuture<'static, ()> {
        let Some((_, taken_over)) = self.begun.clone() else {
            return std::future::pending().boxed();
        };
        // 2025-11-25/basic/transports.mdx lets a server close the connection "in order to avoid
        // holding a long-lived connection". Proxies cut long ones anyway, without a word to the
        // client.
        let time = self.stream_lifetime;
        async move {
            tokio::select! {
                () = taken_over.cancelled() => {}
                () = wait_elapsed(time) => {}
            }
        }
        .boxed()
    }

    /// Waits until a disconnected client has stayed away for too long. `None` if it knows no event
    /// id.
    pub(crate) fn wait_abandoned(&self) -> Option<BoxFuture<'static, ()>> {
        let (number, token) = self.begun.as_ref()?;
        self.session.resumption.mark_unread(*number, token);
        Some(
            self.session
                .resumption
                .clone()
                .expire_unread(*number)
                .boxed(),
        )
    }
}

impl Drop for ResumableWriter {
    fn drop(&mut self) {
        if let Some((number, _)) = &self.begun {
            self.session.resumption.end(*number);
        }
    }
}

async fn wait_elapsed(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Builds the error for an event id from which nothing can be continued.
pub(crate) fn unknown_event() -> Error {
    Error::new(
        McpErrorKind::InvalidRequest,
        "Bad request: the events after this Last-Event-ID were not kept, or are no longer \
         available (limits.replay, limits.replay_time)",
    )
}

/// Continues a response's stream after an event that the client has.
pub(crate) fn resume(
    session: &Arc<Session>,
    profile: &Profile,
    (number, after): (u64, u64),
    state: &DownstreamState,
) -> Result<Response<Body>, Error> {
    let outcomes = &state.metrics.clients.resumed;
    // 2025-11-25/basic/transports.mdx, Resumability and Redelivery: "The server MUST NOT replay
    // messages that would have been delivered on a different stream."
    let Some(reader) = session.resumption.read(number, after) else {
        outcomes.inc(ResumeOutcome::Unknown);
        return Err(unknown_event());
    };
    outcomes.inc(ResumeOutcome::Resumed);
    let resumed = ResumedStream {
        reader,
        keep_alive: state.keep_alive,
        until: stream_lifetime(profile, session, state).map(|time| Instant::now() + time),
        sent_first: false,
        _activity: session.begin_activity(),
        _count: CountGuard::new(&state.metrics.clients.streams),
    };
    let chunks = stream::unfold(resumed, |mut open| async move {
        open.next().await.map(|chunk| (chunk, open))
    });
    let mut response = Response::new(Body::Stream(Box::pin(chunks)));
    respond::set_stream_headers(&mut response);
    Ok(response)
}

struct ResumedStream {
    reader: ResumptionReader,
    keep_alive: Duration,
    until: Option<Instant>,
    sent_first: bool,
    _activity: SessionActivityGuard,
    _count: CountGuard,
}

impl ResumedStream {
    async fn next(&mut self) -> Option<Bytes> {
        // The first keep-alive goes at once: some clients and proxies wait for bytes before they
        // report the stream as open.
        let quiet = if std::mem::replace(&mut self.sent_first, true) {
            self.keep_alive
        } else {
            Duration::ZERO
        };
        let elapsed = async {
            match self.until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            next = self.reader.next() => match next {
                NextEvent::Event(event) => Some(event),
                NextEvent::Evicted(request) => {
                    let message = "The answer came while the client was away and could not be kept \
                                   (limits.replay)";
                    Some(sse::encode_event(&encode::encode_error(Some(&request),
                        &Error::new(McpErrorKind::Overloaded, message))))
                }
                NextEvent::End => None,
            },
            () = elapsed => None,
            () = tokio::time::sleep(quiet) => Some(Bytes::from_static(sse::KEEP_ALIVE)),
        }
    }
}
