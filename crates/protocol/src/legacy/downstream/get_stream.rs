//! GET stream of a session, for messages that belong to no call.
//!
//! Owns the order of events on that stream and its end. Does not store events; that is
//! `session.resumption`. Invariant: a session has one such stream at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::dialect::DownstreamState;
use crate::legacy::downstream::{notify_after_restore, resumable};
use crate::legacy::profile::{NEWEST, profile};
use crate::legacy::tasks;
use crate::{notifications, respond};
use moongate_jsonrpc::sse;
use moongate_model::{
    Error, McpErrorKind, McpServer, Notification, NotificationStream, SubscriptionFilter,
};
use moongate_session::{GET_STREAM, Session, SessionStreamGuard};
use moongate_telemetry::{CountGuard, Limit, ResumeOutcome};

/// Interval at which a draining stream with open calls checks for their end.
const DRAIN_POLL: Duration = Duration::from_millis(50);

/// Checks that another stream may be opened.
pub(crate) fn check_stream_limit(state: &DownstreamState) -> Result<(), Error> {
    if state.metrics.clients.streams.get() < i64::try_from(state.streams_max).unwrap_or(i64::MAX) {
        return Ok(());
    }
    state.metrics.calls.refused.inc(Limit::Streams);
    let message = format!(
        "The limit of {} streams is reached (limits.streams)",
        state.streams_max
    );
    Err(Error::new(McpErrorKind::Overloaded, message))
}

/// Opens the stream and closes the session's previous one. `after` is the last event that the
/// client has.
pub(crate) fn open_stream(
    session: &Arc<Session>,
    endpoint: &Arc<dyn McpServer>,
    state: &DownstreamState,
    after: Option<u64>,
) -> Result<Response<Body>, Error> {
    check_stream_limit(state)?;
    let profile = profile(session.identity.revision()).unwrap_or(NEWEST);
    let position = session.resumption.get_stream_position();
    let after = after.unwrap_or(position);
    // An id that was never given out: the client resumes another stream, or invents ids.
    if after > position {
        state.metrics.clients.resumed.inc(ResumeOutcome::Unknown);
        return Err(resumable::unknown_event());
    }
    if after < position {
        state.metrics.clients.resumed.inc(ResumeOutcome::Resumed);
    }
    notify_after_restore::queue_catch_up(session);
    // 2025-11-25/basic/transports.mdx, Multiple Connections: "The server MUST send each of its
    // JSON-RPC messages on only one of the connected streams". So a second stream replaces the
    // first.
    let replaced = session.open_stream();
    let resumes = profile.resumes;
    // The first bytes go at once: some clients and proxies wait for them before they report the
    // stream as open.
    let first = match profile.primes && resumes {
        // No priming event before missed events: the client would take these for received.
        true if after == position => session
            .resumption
            .priming_event(GET_STREAM, resumable::RETRY_DELAY),
        _ => Bytes::from_static(sse::KEEP_ALIVE),
    };
    let mut get_stream = GetStream::new(session, endpoint, state, replaced, first);
    get_stream.last_event = resumes.then_some(after);
    get_stream.deadline =
        resumable::stream_lifetime(profile, session, state).map(|time| Instant::now() + time);
    Ok(respond(get_stream))
}

/// Builds the response that carries the stream.
pub(crate) fn respond(open: GetStream) -> Response<Body> {
    let chunks = stream::unfold(open, |mut open| async move {
        open.next().await.map(|chunk| (chunk, open))
    });
    let mut response = Response::new(Body::Stream(Box::pin(chunks)));
    respond::set_stream_headers(&mut response);
    response
}

/// Open GET stream.
pub(crate) struct GetStream {
    session: Arc<Session>,
    notifications: NotificationStream,
    replaced: CancellationToken,
    draining: CancellationToken,
    keep_alive: Duration,
    first: Option<Bytes>,
    /// Number of the client's last event, if events are kept for it.
    last_event: Option<u64>,
    /// Time at which the client is disconnected: to reconnect, or because it never sent
    /// `initialize`.
    pub(crate) deadline: Option<Instant>,
    /// Events of calls, if their responses use this stream, too.
    pub(crate) calls: Option<CallEvents>,
    /// True once the last event was written.
    finished: bool,
    _activity: SessionStreamGuard,
    _count: CountGuard,
}

/// Events of a session's calls, on the stream that carries everything.
pub(crate) struct CallEvents {
    events: mpsc::Receiver<Bytes>,
    /// Guard that is dropped with the stream.
    _on_end: Box<dyn Send + Sync>,
}

impl CallEvents {
    pub(crate) fn new(events: mpsc::Receiver<Bytes>, on_end: impl Send + Sync + 'static) -> Self {
        CallEvents {
            events,
            _on_end: Box::new(on_end),
        }
    }

    /// Returns true if a call is open, or its events were not sent yet.
    fn has_open(&self, session: &Session) -> bool {
        !self.events.is_empty() || !session.calls.is_empty()
    }

    async fn next(&mut self) -> StreamStep {
        self.events
            .recv()
            .await
            .map_or(StreamStep::End, StreamStep::Framed)
    }
}

/// Next step of a stream.
enum StreamStep {
    Message(Bytes),
    Framed(Bytes),
    End,
    Nothing,
}

impl GetStream {
    pub(crate) fn new(
        session: &Arc<Session>,
        endpoint: &Arc<dyn McpServer>,
        state: &DownstreamState,
        replaced: CancellationToken,
        first: Bytes,
    ) -> Self {
        GetStream {
            replaced,
            draining: state.draining.clone(),
            // A client that reconnects continues its old subscription, so it misses nothing in
            // between.
            notifications: session.get_stream.take_retained().unwrap_or_else(|| {
                endpoint.subscribe(&session.identity.shared_caller(), SubscriptionFilter::all())
            }),
            keep_alive: state.keep_alive,
            session: session.clone(),
            first: Some(first),
            last_event: None,
            deadline: None,
            calls: None,
            finished: false,
            _activity: session.begin_stream(),
            _count: CountGuard::new(&state.metrics.clients.streams),
        }
    }

    /// Encodes a notification. A task's status goes only to the session that created the task.
    fn encode(&self, notification: &Notification) -> Option<Bytes> {
        match notification {
            Notification::TaskStatus(task) => {
                // A server may report the status before it answers the call that made the task.
                let has_open_calls = !self.session.calls.is_empty();
                self.session
                    .tasks
                    .admit_status(&task.id, has_open_calls, || tasks::write_status(task))
            }
            other => encode_notification(other),
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            // A stream that was replaced or finished must not write again.
            if self.replaced.is_cancelled() || self.finished {
                return None;
            }
            if let Some(after) = self.last_event
                && let Some((number, event)) = self.session.resumption.get_stream_event(after)
            {
                self.last_event = Some(number);
                return Some(event);
            }
            match self.next_step().await {
                StreamStep::Message(message) => return Some(self.frame(&message)),
                StreamStep::Framed(event) => return Some(event),
                StreamStep::End if self.draining.is_cancelled() && self.last_event.is_some() => {
                    self.finished = true;
                    return Some(sse::encode_retry(resumable::RETRY_DELAY));
                }
                StreamStep::End => return None,
                StreamStep::Nothing => {}
            }
        }
    }

    /// Frames a message as the next event, and keeps it if events are kept.
    fn frame(&mut self, message: &[u8]) -> Bytes {
        if self.last_event.is_none() {
            return sse::encode_event(message);
        }
        let event = self.session.resumption.add(GET_STREAM, message, false);
        self.last_event = Some(self.session.resumption.get_stream_position());
        event
    }

    /// Returns the next message, for transports where only messages may go out.
    pub(crate) async fn next_message(&mut self) -> Option<Bytes> {
        loop {
            match self.next_step().await {
                StreamStep::Message(message) => return Some(message),
                StreamStep::End => return None,
                StreamStep::Framed(_) | StreamStep::Nothing => {}
            }
        }
    }

    async fn next_step(&mut self) -> StreamStep {
        // Calls may finish while the gateway drains. A stream without calls has nothing to wait
        // for.
        let draining = self.draining.is_cancelled();
        let has_calls = self
            .calls
            .as_ref()
            .is_some_and(|calls| calls.has_open(&self.session));
        let pause = if draining {
            DRAIN_POLL
        } else {
            self.keep_alive
        };
        let call = async {
            match &mut self.calls {
                Some(calls) => calls.next().await,
                None => std::future::pending().await,
            }
        };
        let until = async {
            match self.deadline {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // `biased`: a replaced stream writes nothing more, however much is ready.
            biased;
            () = self.replaced.cancelled() => StreamStep::End,
            () = self.draining.cancelled(),
                if !draining || !has_calls => if draining { StreamStep::End } else {
                    StreamStep::Nothing },
            message = self.session.get_stream.outbox.next() => StreamStep::Message(message),
            step = call => step,
            Some(notification) = self.notifications.stream.next() => {
                let unwanted = match &notification {
                    Notification::Log(level,
                        _) => !self.session.identity.caller().log_filter.allows(*level),
                    // 2025-11-25/client/elicitation.mdx: "MUST only send the notification to the
                    // client that initiated the elicitation request."
                    Notification::ElicitationComplete(id,
                        _) => !self.session.client_requests.elicitation_completed(id),
                    _ => false,
                };
                self.encode(&notification).filter(|_| !unwanted).map_or(StreamStep::Nothing,
                    StreamStep::Message)
            }
            () = until => {
                self.deadline = None;
                // The deadline of HTTP+SSE bounds the time until `initialize`. A session that has
                // started goes on.
                let begun = self.calls.is_some() && !self.session.identity.revision().is_empty();
                if begun { StreamStep::Nothing } else { StreamStep::End }
            }
            () = tokio::time::sleep(pause) => if draining { StreamStep::Nothing } else {
                StreamStep::Framed(Bytes::from_static(sse::KEEP_ALIVE)) },
        }
    }
}

impl Drop for GetStream {
    fn drop(&mut self) {
        // A client that reconnects must not miss what happens meanwhile, so the session keeps the
        // subscription.
        if self.last_event.is_some() && !self.replaced.is_cancelled() {
            let nothing = NotificationStream {
                acknowledged: SubscriptionFilter::default(),
                stream: stream::pending().boxed(),
                established: None,
            };
            self.session
                .retain_notifications(std::mem::replace(&mut self.notifications, nothing));
        }
    }
}

pub(crate) fn encode_notification(notification: &Notification) -> Option<Bytes> {
    notifications::encode(notification)
        .map(|(method, params)| notifications::encode_notification(method, &params))
}
