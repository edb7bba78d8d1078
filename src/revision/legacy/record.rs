//! The event stream that answers a call, so kept that its client can come back for the rest.
//!
//! Owns when such a stream begins, when its connection may end before it, and its continuation by GET. Invariant: an
//! event has one id, whoever writes it, and is on one connection at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use http::Response;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::jsonrpc::Id;
use crate::model::{Error, Reason};
use crate::revision::legacy::{Profile, spell};
use crate::revision::{FrontState, answer};
use crate::session::{Busy, Next, Reader, Session};
use crate::sse;
use crate::telemetry::CountGuard;

/// When a client shall come back that lost its connection, or was let go.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Gives the events of one answer their ids, and keeps them.
pub(super) struct Recorder {
    session: Arc<Session>,
    request: Id,
    primes: bool,
    stream_time: Option<Duration>,
    begun: Option<(u64, CancellationToken)>,
}

/// How long a connection is kept open for one stream; for ever where the client would not come back.
pub(super) fn stream_time(profile: &Profile, session: &Session, state: &FrontState) -> Option<Duration> {
    let polls = profile.primes && session.pipe.is_none();
    polls.then_some(state.stream_time)
}

impl Recorder {
    /// Nothing where the client's revision or its transport has no resumption.
    pub(super) fn new(profile: &Profile, session: &Arc<Session>, request: &Id, state: &FrontState) -> Option<Self> {
        let on = profile.resumes && session.pipe.is_none();
        on.then(|| Recorder {
            session: session.clone(),
            request: request.clone(),
            primes: profile.primes,
            stream_time: stream_time(profile, session, state),
            begun: None,
        })
    }

    /// Frames the next event; the first begins the stream.
    pub(super) fn event(&mut self, message: &[u8], last: bool) -> Bytes {
        match self.number() {
            Some(number) => self.session.replay.add(number, message, last),
            None => sse::frame(message),
        }
    }

    fn number(&mut self) -> Option<u64> {
        if self.begun.is_none() {
            self.begun = self.session.replay.begin(&self.request);
            // A client may ask for the rest after a restart: it must be told that there will be none.
            self.session.keep();
        }
        self.begun.as_ref().map(|(number, _)| *number)
    }

    /// What stands before the first event.
    pub(super) fn prime(&mut self) -> Option<Bytes> {
        let number = self.number().filter(|_| self.primes)?;
        Some(self.session.replay.prime(number, RETRY))
    }

    /// Waits until the connection is to end: because another took over, or because it has been open for long enough.
    pub(super) fn let_go(&mut self) -> BoxFuture<'static, ()> {
        let Some((_, taken)) = self.begun.clone() else { return std::future::pending().boxed() };
        let time = self.stream_time;
        async move {
            tokio::select! {
                () = taken.cancelled() => {}
                () = passed(time) => {}
            }
        }
        .boxed()
    }

    /// The connection is gone: waits until the client has not come back for too long. Nothing where it knows no id.
    pub(super) fn left(&self) -> Option<BoxFuture<'static, ()>> {
        let (number, token) = self.begun.as_ref()?;
        self.session.replay.unread(*number, token);
        Some(self.session.replay.clone().forgotten(*number).boxed())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some((number, _)) = &self.begun {
            self.session.replay.end(*number);
        }
    }
}

async fn passed(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Why nothing can be continued from an event id.
pub(super) fn unknown() -> Error {
    Error::new(
        Reason::InvalidRequest,
        "Bad request: what follows this Last-Event-ID is not kept, or not any more (limits.replay, limits.replay_time)",
    )
}

/// Goes on with the stream of an answer, behind an event that the client has.
pub(super) fn resume(
    session: &Arc<Session>,
    profile: &Profile,
    (number, after): (u64, u64),
    state: &FrontState,
) -> Result<Response<Body>, Error> {
    let count = |outcome: &str| state.metrics.resumed.with_label_values(&[outcome]).inc();
    let Some(reader) = session.replay.read(number, after) else {
        count("unknown");
        return Err(unknown());
    };
    count("resumed");
    let resumed = Resumed {
        reader,
        keep_alive: state.keep_alive,
        until: stream_time(profile, session, state).map(|time| Instant::now() + time),
        greeted: false,
        _busy: session.busy(),
        _count: CountGuard::new(&state.metrics.streams),
    };
    let chunks = stream::unfold(resumed, |mut open| async move { open.next().await.map(|chunk| (chunk, open)) });
    let mut response = Response::new(Body::Stream(Box::pin(chunks)));
    answer::stream_headers(&mut response);
    Ok(response)
}

struct Resumed {
    reader: Reader,
    keep_alive: Duration,
    until: Option<Instant>,
    greeted: bool,
    _busy: Busy,
    _count: CountGuard,
}

impl Resumed {
    async fn next(&mut self) -> Option<Bytes> {
        let quiet = if std::mem::replace(&mut self.greeted, true) { self.keep_alive } else { Duration::ZERO };
        let over = async {
            match self.until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            next = self.reader.next() => match next {
                Next::Event(event) => Some(event),
                Next::Lost(request) => {
                    let message = "The answer came while the client was away and could not be kept (limits.replay)";
                    Some(sse::frame(&spell::failure(Some(&request), &Error::new(Reason::Overloaded, message))))
                }
                Next::End => None,
            },
            () = over => None,
            () = tokio::time::sleep(quiet) => Some(Bytes::from_static(sse::KEEP_ALIVE)),
        }
    }
}
