//! A session's own stream (GET): what belongs to no call.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::json::Text;
use crate::model::{Error, Filter, Notice, Notices, Reason, Server};
use crate::revision::legacy::{NEWEST, profile, record, restored, tasks};
use crate::revision::{FrontState, answer, notices};
use crate::session::{Busy, OWN_STREAM, Session, Subscription};
use crate::sse;
use crate::telemetry::CountGuard;

/// How often a stream with open calls looks whether they are over, while the gateway drains.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// Whether one more stream may be opened.
pub(super) fn check_room(state: &FrontState) -> Result<(), Error> {
    if state.metrics.streams.get() < i64::try_from(state.streams_max).unwrap_or(i64::MAX) {
        return Ok(());
    }
    state.metrics.refused.with_label_values(&["streams"]).inc();
    let message = format!("There are {} streams, and no more are allowed (limits.streams)", state.streams_max);
    Err(Error::new(Reason::Overloaded, message))
}

/// Opens the stream; one that the session had before ends. `after`: the last event of it that the client has.
pub(super) fn open(
    session: &Arc<Session>,
    server: &Arc<dyn Server>,
    state: &FrontState,
    after: Option<u64>,
) -> Result<Response<Body>, Error> {
    check_room(state)?;
    let profile = profile(session.caller.load().revision).unwrap_or(NEWEST);
    let position = session.replay.own_position();
    let after = after.unwrap_or(position);
    if after > position {
        state.metrics.resumed.with_label_values(&["unknown"]).inc();
        return Err(record::unknown());
    }
    if after < position {
        state.metrics.resumed.with_label_values(&["resumed"]).inc();
    }
    restored::owe(session);
    let replaced = session.open_stream();
    let keeps = profile.resumes;
    // The first bytes go at once: some clients and proxies wait for them before they call the stream open.
    let first = match profile.primes && keeps {
        // Not where events follow that the client has not got: it would take them for had.
        true if after == position => session.replay.prime(OWN_STREAM, record::RETRY),
        _ => Bytes::from_static(sse::KEEP_ALIVE),
    };
    let mut open = Open::new(session, server, state, replaced, first);
    open.kept = keeps.then_some(after);
    open.until = record::stream_time(profile, session, state).map(|time| Instant::now() + time);
    Ok(respond(open))
}

/// The response that is the stream.
pub(super) fn respond(open: Open) -> Response<Body> {
    let chunks = stream::unfold(open, |mut open| async move { open.next().await.map(|chunk| (chunk, open)) });
    let mut response = Response::new(Body::Stream(Box::pin(chunks)));
    answer::stream_headers(&mut response);
    response
}

/// An open stream.
pub(super) struct Open {
    session: Arc<Session>,
    notices: Notices,
    replaced: CancellationToken,
    draining: CancellationToken,
    keep_alive: Duration,
    first: Option<Bytes>,
    /// The last event that the client has, where events are kept for it.
    kept: Option<u64>,
    /// When the client is let go: to come back, or because it never began.
    pub(super) until: Option<Instant>,
    /// What calls have to say, where their answers come on this stream too.
    pub(super) calls: Option<mpsc::Receiver<Bytes>>,
    /// What ends with the stream.
    pub(super) ends: Option<Box<dyn Send + Sync>>,
    /// Whether the last word was said.
    over: bool,
    _busy: Busy,
    _count: CountGuard,
}

/// What happens next on a stream.
enum Next {
    Message(Bytes),
    Framed(Bytes),
    End,
    Nothing,
}

impl Open {
    pub(super) fn new(
        session: &Arc<Session>,
        server: &Arc<dyn Server>,
        state: &FrontState,
        replaced: CancellationToken,
        first: Bytes,
    ) -> Self {
        let listen = || server.listen(&session.caller.load_full(), Filter::everything());
        Open {
            replaced,
            draining: state.draining.clone(),
            notices: session.take_listener().unwrap_or_else(listen),
            keep_alive: state.keep_alive,
            session: session.clone(),
            first: Some(first),
            kept: None,
            until: None,
            calls: None,
            ends: None,
            over: false,
            _busy: session.busy(),
            _count: CountGuard::new(&state.metrics.streams),
        }
    }

    /// A task is told of to the session that made it, and to no other.
    fn spell(&self, notice: &Notice) -> Option<Bytes> {
        match notice {
            Notice::Task(task) => self.session.has_task(&task.id).then(|| tasks::write_told(task)),
            other => spell(other),
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            // A stream that is over says nothing more.
            if self.replaced.is_cancelled() || self.over {
                return None;
            }
            if let Some(after) = self.kept
                && let Some((number, event)) = self.session.replay.own_event(after)
            {
                self.kept = Some(number);
                return Some(event);
            }
            match self.happened().await {
                Next::Message(message) => return Some(self.frame(&message)),
                Next::Framed(event) => return Some(event),
                Next::End if self.draining.is_cancelled() && self.kept.is_some() => {
                    self.over = true;
                    return Some(sse::retry(record::RETRY));
                }
                Next::End => return None,
                Next::Nothing => {}
            }
        }
    }

    /// The next event of the stream, kept where events are.
    fn frame(&mut self, message: &[u8]) -> Bytes {
        if self.kept.is_none() {
            return sse::frame(message);
        }
        let event = self.session.replay.add(OWN_STREAM, message, false);
        self.kept = Some(self.session.replay.own_position());
        event
    }

    /// The next message, where nothing but messages may go out.
    pub(super) async fn message(&mut self) -> Option<Bytes> {
        loop {
            match self.happened().await {
                Next::Message(message) => return Some(message),
                Next::End => return None,
                Next::Framed(_) | Next::Nothing => {}
            }
        }
    }

    async fn happened(&mut self) -> Next {
        // Calls may finish while the gateway drains; a stream that carries none has nothing to wait for.
        let draining = self.draining.is_cancelled();
        let calling = self.calls.as_ref().is_some_and(|calls| !calls.is_empty() || self.session.is_calling());
        let pause = if draining { DRAIN_LOOK } else { self.keep_alive };
        let call = async {
            match &mut self.calls {
                Some(calls) => calls.recv().await,
                None => std::future::pending().await,
            }
        };
        let until = async {
            match self.until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.replaced.cancelled() => Next::End,
            () = self.draining.cancelled(), if !draining || !calling => if draining { Next::End } else { Next::Nothing },
            message = self.session.outbox.next() => Next::Message(message),
            event = call => event.map_or(Next::End, Next::Framed),
            Some(notice) = self.notices.stream.next() => {
                let unwanted = match &notice {
                    Notice::Log(level, _) => !self.session.caller.load().log.wants(*level),
                    // 2025-11-25/client/elicitation.mdx: "MUST only send the notification to the client that
                    // initiated the elicitation request."
                    Notice::Elicited(id, _) => !self.session.page_is_done(id),
                    _ => false,
                };
                self.spell(&notice).filter(|_| !unwanted).map_or(Next::Nothing, Next::Message)
            }
            () = until => {
                self.until = None;
                let begun = self.calls.is_some() && !self.session.caller.load().revision.is_empty();
                if begun { Next::Nothing } else { Next::End }
            }
            () = tokio::time::sleep(pause) => if draining { Next::Nothing } else { Next::Framed(Bytes::from_static(sse::KEEP_ALIVE)) },
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.kept.is_some() && !self.replaced.is_cancelled() {
            let nothing = Notices { honoured: Filter::default(), stream: stream::pending().boxed(), opened: None };
            self.session.keep_listener(std::mem::replace(&mut self.notices, nothing));
        }
    }
}

fn spell(notice: &Notice) -> Option<Bytes> {
    notices::write(notice).map(|(method, params)| notices::notification(method, &params))
}

/// Passes what one subscription hears to the session's stream, until the subscription or the session ends.
pub(super) async fn forward(uri: Text, mut notices: Notices, session: Weak<Session>, subscription: Subscription) {
    let mut over = false;
    loop {
        let notice = tokio::select! {
            biased;
            () = subscription.ended.cancelled() => return,
            notice = notices.stream.next(), if !over => notice,
            // What was heard until then is told first.
            fresh = subscription.renewed() => {
                (notices, over) = (fresh, false);
                continue;
            }
        };
        let Some(notice) = notice else {
            over = true;
            continue;
        };
        let Some(session) = session.upgrade() else { return };
        // Who unsubscribed hears no more of it, even if something has happened by then.
        if let Some(message) = spell(&notice)
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
    use crate::json::{Object, Raw};
    use crate::model::{Caller, Can, LogWish, Principal};
    use crate::session::{ReplaySettings, SessionSettings, Sessions, Subscribed};
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
            capabilities: Raw::literal("{}"),
            can: Can::default(),
            info: None,
            log: LogWish::ServerDecides,
            revision: "",
            headers: Vec::new(),
            ended: CancellationToken::new(),
        };
        Sessions::new(settings, Arc::new(Metrics::new())).open(caller, Text::literal(""), None).unwrap()
    }

    #[tokio::test]
    async fn who_unsubscribed_hears_no_more() {
        let session = session();
        let uri = Text::literal("a://1");
        let notices = |count| {
            let updated = move |_| Notice::Updated(Text::literal("a://1"), Object::new());
            Notices { honoured: Filter::default(), stream: stream::iter((0..count).map(updated)).boxed(), opened: None }
        };
        let new = |subscribed| match subscribed {
            Subscribed::New(subscription) => subscription,
            _ => panic!("the session was not subscribed"),
        };
        // What waits for the stream when the client unsubscribes goes with the subscription, and nothing else does.
        let other = new(session.subscribe(&Text::literal("a://2")));
        assert!(session.update(&Text::literal("a://2"), &other, Bytes::from_static(b"two")));
        let first = new(session.subscribe(&uri));
        assert!(forward(uri.clone(), notices(3), Arc::downgrade(&session), first.clone()).now_or_never().is_none());
        session.unsubscribe(&uri);
        assert_eq!(session.outbox.next().now_or_never().as_deref(), Some(&b"two"[..]));
        assert!(session.outbox.next().now_or_never().is_none(), "one about the resource was still waiting");
        // One that was on its way when the client unsubscribed gets no further, even if the client is back by then.
        let again = new(session.subscribe(&uri));
        assert!(!session.update(&uri, &first, Bytes::from_static(b"late")));
        assert!(session.outbox.next().now_or_never().is_none());
        assert!(session.update(&uri, &again, Bytes::from_static(b"new")));
        assert!(session.outbox.next().now_or_never().is_some());
    }
    #[tokio::test]
    async fn a_subscription_that_is_renewed_goes_on() {
        let (session, uri) = (session(), Text::literal("a://1"));
        let once = || {
            let updated = Notice::Updated(Text::literal("a://1"), Object::new());
            Notices { honoured: Filter::default(), stream: stream::iter([updated]).boxed(), opened: None }
        };
        let Subscribed::New(subscription) = session.subscribe(&uri) else { panic!("it is new") };
        let mut forwarding = Box::pin(forward(uri.clone(), once(), Arc::downgrade(&session), subscription));
        for _ in 0..3 {
            assert!((&mut forwarding).now_or_never().is_none(), "although nothing more comes");
            assert!(session.outbox.next().now_or_never().is_some());
            let Subscribed::Already(again) = session.subscribe(&uri) else { panic!("it was there") };
            again.renew(once());
        }
        session.unsubscribe(&uri);
        assert!(forwarding.now_or_never().is_some(), "it ends as one");
        assert!(session.outbox.next().now_or_never().is_none());
    }
}
