//! A session's own stream (GET): what belongs to no call.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::model::{Error, Filter, LogWish, Notice, Notices, Reason, Server};
use crate::revision::legacy::tasks;
use crate::revision::{FrontState, answer, notices};
use crate::session::{Busy, Session};
use crate::sse;
use crate::telemetry::CountGuard;

/// Opens the stream; one that the session had before ends.
pub(super) fn open(
    session: &Arc<Session>,
    server: &Arc<dyn Server>,
    state: &FrontState,
) -> Result<Response<Body>, Error> {
    if state.metrics.streams.get() >= i64::try_from(state.streams_max).unwrap_or(i64::MAX) {
        state.metrics.refused.with_label_values(&["streams"]).inc();
        return Err(Error::new(
            Reason::Overloaded,
            format!("There are {} streams, and no more are allowed (limits.streams)", state.streams_max),
        ));
    }
    let open = Open {
        replaced: session.open_stream(),
        draining: state.draining.clone(),
        notices: server.listen(&session.caller.load_full(), Filter::everything()),
        keep_alive: state.keep_alive,
        session: session.clone(),
        greeted: false,
        _busy: session.busy(),
        _count: CountGuard::new(&state.metrics.streams),
    };
    let chunks = stream::unfold(open, |mut open| async move { open.next().await.map(|chunk| (chunk, open)) });
    let mut response = Response::new(Body::Stream(Box::pin(chunks)));
    answer::stream_headers(&mut response);
    Ok(response)
}

struct Open {
    session: Arc<Session>,
    notices: Notices,
    replaced: CancellationToken,
    draining: CancellationToken,
    keep_alive: Duration,
    greeted: bool,
    _busy: Busy,
    _count: CountGuard,
}

impl Open {
    /// A task is told of to the session that made it, and to no other.
    fn spell(&self, notice: &Notice) -> Option<Bytes> {
        match notice {
            Notice::Task(task) => self.session.has_task(&task.id).then(|| tasks::write_told(task)),
            other => spell(other),
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        // The first bytes go at once: some clients and proxies wait for them before they call the stream open.
        if !std::mem::replace(&mut self.greeted, true) {
            return Some(Bytes::from_static(sse::KEEP_ALIVE));
        }
        loop {
            tokio::select! {
                // A stream that is over says nothing more.
                biased;
                () = self.replaced.cancelled() => return None,
                () = self.draining.cancelled() => return None,
                message = self.session.outbox.next() => return Some(sse::frame(&message)),
                Some(notice) = self.notices.stream.next() => {
                    // A message of no call goes to those who said which they want.
                    let log = self.session.caller.load().log;
                    let unwanted = matches!(&notice, Notice::Log(level, _) if log == LogWish::ServerDecides || !log.wants(*level));
                    if let Some(message) = self.spell(&notice).filter(|_| !unwanted) {
                        return Some(sse::frame(&message));
                    }
                }
                () = tokio::time::sleep(self.keep_alive) => return Some(Bytes::from_static(sse::KEEP_ALIVE)),
            }
        }
    }
}

fn spell(notice: &Notice) -> Option<Bytes> {
    notices::write(notice).map(|(method, params)| notices::notification(method, &params))
}

/// Passes what one subscription hears to the session's stream, until the subscription or the session ends.
pub(super) async fn forward(mut notices: Notices, session: Weak<Session>, ended: CancellationToken) {
    loop {
        let notice = tokio::select! {
            // Who unsubscribed hears no more of it, even if something has happened by then.
            biased;
            () = ended.cancelled() => return,
            notice = notices.stream.next() => notice,
        };
        let (Some(notice), Some(session)) = (notice, session.upgrade()) else { return };
        if let Some(message) = spell(&notice) {
            session.outbox.push(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::json::{Object, Raw, Text};
    use crate::model::{Caller, Can, LogWish, Principal};
    use crate::session::{SessionSettings, Sessions};
    use crate::telemetry::Metrics;

    fn session() -> Arc<Session> {
        let settings = SessionSettings { max: 1, idle: Duration::from_secs(60) };
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
        Sessions::new(settings, Arc::new(Metrics::new())).open(caller, Text::literal("")).unwrap()
    }

    #[tokio::test]
    async fn who_unsubscribed_hears_no_more() {
        let session = session();
        // Often, since an unfair choice would be a matter of chance.
        for _ in 0..32 {
            let updated = Notice::Updated(Text::literal("a://1"), Object::new());
            let stream = stream::iter([updated]).boxed();
            let ended = CancellationToken::new();
            ended.cancel();
            forward(Notices { honoured: Filter::default(), stream }, Arc::downgrade(&session), ended).await;
            assert!(session.outbox.next().now_or_never().is_none());
        }
    }
}
