//! GET stream of a session, for messages that belong to no call.
//!
//! Owns the order of events on that stream and its end. Does not store events; that is `session.resumption`. Invariant:
//! a session has one such stream at a time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::json::ByteString;
use crate::model::{Error, McpErrorKind, Notification, NotificationStream, Server, SubscriptionFilter};
use crate::revision::legacy::{NEWEST, profile, restore, resumable, tasks};
use crate::revision::{DownstreamState, notifications, respond};
use crate::session::{GET_STREAM, Session, SessionActivityGuard, SessionSubscription};
use crate::sse;
use crate::telemetry::CountGuard;

/// Interval at which a draining stream with open calls checks for their end.
const DRAIN_POLL: Duration = Duration::from_millis(50);

/// Checks that one more stream may be opened.
pub(super) fn check_stream_limit(state: &DownstreamState) -> Result<(), Error> {
    if state.metrics.streams.get() < i64::try_from(state.streams_max).unwrap_or(i64::MAX) {
        return Ok(());
    }
    state.metrics.refused.with_label_values(&["streams"]).inc();
    let message = format!("There are {} streams, and no more are allowed (limits.streams)", state.streams_max);
    Err(Error::new(McpErrorKind::Overloaded, message))
}

/// Opens the stream and closes the session's previous one. `after` is the last event that the client has.
pub(super) fn open_stream(
    session: &Arc<Session>,
    server: &Arc<dyn Server>,
    state: &DownstreamState,
    after: Option<u64>,
) -> Result<Response<Body>, Error> {
    check_stream_limit(state)?;
    let profile = profile(session.caller.load().revision).unwrap_or(NEWEST);
    let position = session.resumption.get_stream_position();
    let after = after.unwrap_or(position);
    // An id that was never given out: the client resumes another stream, or invents ids.
    if after > position {
        state.metrics.resumed.with_label_values(&["unknown"]).inc();
        return Err(resumable::unknown_event());
    }
    if after < position {
        state.metrics.resumed.with_label_values(&["resumed"]).inc();
    }
    restore::queue_catch_up(session);
    let replaced = session.open_stream();
    let keeps = profile.resumes;
    // The first bytes go at once: some clients and proxies wait for them before they report the stream as open.
    let first = match profile.primes && keeps {
        // No priming event before missed events: the client would take these for received.
        true if after == position => session.resumption.priming_event(GET_STREAM, resumable::RETRY_DELAY),
        _ => Bytes::from_static(sse::KEEP_ALIVE),
    };
    let mut open = GetStream::new(session, server, state, replaced, first);
    open.last_event = keeps.then_some(after);
    open.deadline = resumable::stream_lifetime(profile, session, state).map(|time| Instant::now() + time);
    Ok(respond(open))
}

/// Builds the response that carries the stream.
pub(super) fn respond(open: GetStream) -> Response<Body> {
    let chunks = stream::unfold(open, |mut open| async move { open.next().await.map(|chunk| (chunk, open)) });
    let mut response = Response::new(Body::Stream(Box::pin(chunks)));
    respond::set_stream_headers(&mut response);
    response
}

/// Open GET stream.
pub(super) struct GetStream {
    session: Arc<Session>,
    notifications: NotificationStream,
    replaced: CancellationToken,
    draining: CancellationToken,
    keep_alive: Duration,
    first: Option<Bytes>,
    /// Number of the client's last event, if events are kept for it.
    last_event: Option<u64>,
    /// Time at which the client is disconnected: to reconnect, or because it never sent `initialize`.
    pub(super) deadline: Option<Instant>,
    /// Events of calls, if their responses use this stream, too.
    pub(super) calls: Option<mpsc::Receiver<Bytes>>,
    /// Guard that is dropped with the stream.
    pub(super) on_end: Option<Box<dyn Send + Sync>>,
    /// True once the last event was written.
    finished: bool,
    _busy: SessionActivityGuard,
    _count: CountGuard,
}

/// Next step of a stream.
enum StreamStep {
    Message(Bytes),
    Framed(Bytes),
    End,
    Nothing,
}

impl GetStream {
    pub(super) fn new(
        session: &Arc<Session>,
        server: &Arc<dyn Server>,
        state: &DownstreamState,
        replaced: CancellationToken,
        first: Bytes,
    ) -> Self {
        let listen = || server.subscribe(&session.caller.load_full(), SubscriptionFilter::all());
        GetStream {
            replaced,
            draining: state.draining.clone(),
            // A client that reconnects continues its old subscription, so it misses nothing in between.
            notifications: session.take_retained_notifications().unwrap_or_else(listen),
            keep_alive: state.keep_alive,
            session: session.clone(),
            first: Some(first),
            last_event: None,
            deadline: None,
            calls: None,
            on_end: None,
            finished: false,
            _busy: session.begin_activity(),
            _count: CountGuard::new(&state.metrics.streams),
        }
    }

    /// Encodes a notification. A task's status goes only to the session that created the task.
    fn encode(&self, notice: &Notification) -> Option<Bytes> {
        match notice {
            Notification::TaskStatus(task) => self.session.has_task(&task.id).then(|| tasks::write_status(task)),
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
    pub(super) async fn next_message(&mut self) -> Option<Bytes> {
        loop {
            match self.next_step().await {
                StreamStep::Message(message) => return Some(message),
                StreamStep::End => return None,
                StreamStep::Framed(_) | StreamStep::Nothing => {}
            }
        }
    }

    async fn next_step(&mut self) -> StreamStep {
        // Calls may finish while the gateway drains. A stream without calls has nothing to wait for.
        let draining = self.draining.is_cancelled();
        let calling = self.calls.as_ref().is_some_and(|calls| !calls.is_empty() || self.session.is_calling());
        let pause = if draining { DRAIN_POLL } else { self.keep_alive };
        let call = async {
            match &mut self.calls {
                Some(calls) => calls.recv().await,
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
            () = self.draining.cancelled(), if !draining || !calling => if draining { StreamStep::End } else { StreamStep::Nothing },
            message = self.session.outbox.next() => StreamStep::Message(message),
            event = call => event.map_or(StreamStep::End, StreamStep::Framed),
            Some(notice) = self.notifications.stream.next() => {
                let unwanted = match &notice {
                    Notification::Log(level, _) => !self.session.caller.load().log_filter.allows(*level),
                    // 2025-11-25/client/elicitation.mdx: "MUST only send the notification to the client that
                    // initiated the elicitation request."
                    Notification::ElicitationComplete(id, _) => !self.session.elicitation_completed(id),
                    _ => false,
                };
                self.encode(&notice).filter(|_| !unwanted).map_or(StreamStep::Nothing, StreamStep::Message)
            }
            () = until => {
                self.deadline = None;
                // The deadline of HTTP+SSE bounds the time until `initialize`. A session that has begun goes on.
                let begun = self.calls.is_some() && !self.session.caller.load().revision.is_empty();
                if begun { StreamStep::Nothing } else { StreamStep::End }
            }
            () = tokio::time::sleep(pause) => if draining { StreamStep::Nothing } else { StreamStep::Framed(Bytes::from_static(sse::KEEP_ALIVE)) },
        }
    }
}

impl Drop for GetStream {
    fn drop(&mut self) {
        // A client that reconnects must not miss what happens meanwhile, so the session keeps the subscription.
        if self.last_event.is_some() && !self.replaced.is_cancelled() {
            let nothing = NotificationStream {
                acknowledged: SubscriptionFilter::default(),
                stream: stream::pending().boxed(),
                established: None,
            };
            self.session.retain_notifications(std::mem::replace(&mut self.notifications, nothing));
        }
    }
}

fn encode_notification(notice: &Notification) -> Option<Bytes> {
    notifications::encode(notice).map(|(method, params)| notifications::encode_notification(method, &params))
}

/// Forwards the updates of one subscription to the session's stream, until the subscription or the session ends.
pub(super) async fn forward_subscription(
    uri: ByteString,
    mut notices: NotificationStream,
    session: Weak<Session>,
    subscription: SessionSubscription,
) {
    let mut over = false;
    loop {
        let notice = tokio::select! {
            biased;
            () = subscription.ended.cancelled() => return,
            notice = notices.stream.next(), if !over => notice,
            // Updates that arrived before the renewal go out first.
            fresh = subscription.until_renewed() => {
                (notices, over) = (fresh, false);
                continue;
            }
        };
        let Some(notice) = notice else {
            over = true;
            continue;
        };
        let Some(session) = session.upgrade() else { return };
        // A client that unsubscribed gets no further updates, even those that happened before.
        if let Some(message) = encode_notification(&notice)
            && !session.update(&uri, &subscription, message)
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::json::{JsonObject, RawJson};
    use crate::model::{Caller, ClientCapabilities, LogFilter, Principal};
    use crate::session::{ReplaySettings, SessionSettings, Sessions, SubscribeOutcome};
    use crate::telemetry::Metrics;

    fn session() -> Arc<Session> {
        let replay = ReplaySettings { bytes: 1000, total: 1000, events: 10, time: Duration::from_secs(60) };
        let settings = SessionSettings {
            max: 1,
            idle: Duration::from_secs(60),
            replay,
            outbox: 10_000,
            outbox_total: 100_000,
            subscriptions: 10,
        };
        let caller = Caller {
            principal: Arc::new(Principal { name: "test".to_owned(), id: 1 }),
            session: None,
            declared_capabilities: RawJson::literal("{}"),
            capabilities: ClientCapabilities::default(),
            client_info: None,
            log_filter: LogFilter::ServerDecides,
            revision: "",
            forwarded_headers: Vec::new(),
            ended: CancellationToken::new(),
        };
        Sessions::new(settings, Arc::new(Metrics::new())).open(caller, ByteString::literal(""), None).unwrap()
    }

    #[tokio::test]
    async fn who_unsubscribed_hears_no_more() {
        let session = session();
        let uri = ByteString::literal("a://1");
        let notices = |count| {
            let updated = move |_| Notification::ResourceUpdated(ByteString::literal("a://1"), JsonObject::new());
            NotificationStream {
                acknowledged: SubscriptionFilter::default(),
                stream: stream::iter((0..count).map(updated)).boxed(),
                established: None,
            }
        };
        let new = |subscribed| match subscribed {
            SubscribeOutcome::New(subscription) => subscription,
            _ => panic!("the session was not subscribed"),
        };
        // Updates queued for the stream leave with their subscription when the client unsubscribes. Nothing else does.
        let other = new(session.subscribe(&ByteString::literal("a://2")));
        assert!(session.update(&ByteString::literal("a://2"), &other, Bytes::from_static(b"two")));
        let first = new(session.subscribe(&uri));
        assert!(
            forward_subscription(uri.clone(), notices(3), Arc::downgrade(&session), first.clone())
                .now_or_never()
                .is_none()
        );
        session.unsubscribe(&uri);
        assert_eq!(session.outbox.next().now_or_never().as_deref(), Some(&b"two"[..]));
        assert!(session.outbox.next().now_or_never().is_none(), "one about the resource was still waiting");
        // An update on its way goes no further after the client unsubscribed, even if it subscribed again by then.
        let again = new(session.subscribe(&uri));
        assert!(!session.update(&uri, &first, Bytes::from_static(b"late")));
        assert!(session.outbox.next().now_or_never().is_none());
        assert!(session.update(&uri, &again, Bytes::from_static(b"new")));
        assert!(session.outbox.next().now_or_never().is_some());
    }
    #[tokio::test]
    async fn a_subscription_that_is_renewed_goes_on() {
        let (session, uri) = (session(), ByteString::literal("a://1"));
        let once = || {
            let updated = Notification::ResourceUpdated(ByteString::literal("a://1"), JsonObject::new());
            NotificationStream {
                acknowledged: SubscriptionFilter::default(),
                stream: stream::iter([updated]).boxed(),
                established: None,
            }
        };
        let SubscribeOutcome::New(subscription) = session.subscribe(&uri) else { panic!("it is new") };
        let mut forwarding =
            Box::pin(forward_subscription(uri.clone(), once(), Arc::downgrade(&session), subscription));
        for _ in 0..3 {
            assert!((&mut forwarding).now_or_never().is_none(), "although nothing more comes");
            assert!(session.outbox.next().now_or_never().is_some());
            let SubscribeOutcome::Already(again) = session.subscribe(&uri) else { panic!("it was there") };
            again.renew(once());
        }
        session.unsubscribe(&uri);
        assert!(forwarding.now_or_never().is_some(), "it ends as one");
        assert!(session.outbox.next().now_or_never().is_none());
    }
}
