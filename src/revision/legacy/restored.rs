//! Sessions that an earlier run of the gateway left, or that sleep: how their clients find them as they were.
//!
//! Owns what is done when such a client comes back. Does not know where the session was kept (`session`). Invariant: a
//! client that cannot be told what it missed is told that it may have missed something.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, header};
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::json::{Object, Raw, Text};
use crate::model::{Caller, Error, Filter, Kind, Principal, Reason, Server};
use crate::revision::legacy::front::{Refusal, forwarded};
use crate::revision::legacy::{SESSION_HEADER, can, profile, spell, stream as own};
use crate::revision::{Front as _, FrontState, Inbound, answer, notices};
use crate::session::{Record, Session, Subscribed, Woken};
use crate::sse;

/// How long a request waits for sessions to be read from the store.
const RESTORE_TIME: Duration = Duration::from_secs(5);
/// Pauses between attempts to subscribe again, at a server that is not there yet: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Waits until it is known whether there is such a session. Gives the answer where that takes too long: a 404 would end
/// the session, and it may well be there.
pub(super) async fn wait(inbound: &Inbound, state: &FrontState) -> Option<Response<Body>> {
    let sessions = &state.sessions;
    if sessions.is_restored() {
        return None;
    }
    let id = inbound.headers.get(SESSION_HEADER)?.to_str().ok()?;
    let (principal, scope) = (&inbound.principal, &inbound.scope);
    if sessions.find(id, principal, scope).is_some() || sessions.record(id, principal, scope).is_some() {
        return None;
    }
    tokio::time::timeout(RESTORE_TIME, sessions.restored()).await.err()?;
    let message = "The gateway has just started, and the one before still has the sessions; try again (gateway.state)";
    let mut response = super::FRONT.refuse(None, &Error::new(Reason::Overloaded, message));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    Some(response)
}

/// The session that an earlier run left under this id, as it was.
pub(super) fn wake(
    id: &str,
    headers: &HeaderMap,
    principal: &Arc<Principal>,
    scope: &Text,
    (server, state): (&Arc<dyn Server>, &FrontState),
) -> Option<Arc<Session>> {
    let record = state.sessions.record(id, principal, scope)?;
    let profile = profile(&record.revision)?;
    let caller = Caller {
        principal: principal.clone(),
        session: None,
        can: can(&record.capabilities.as_object()?),
        capabilities: record.capabilities.clone(),
        info: record.info.clone(),
        log: record.log(),
        revision: profile.name,
        headers: forwarded(headers, state),
        ended: CancellationToken::new(),
    };
    let (session, woken) = state.sessions.wake(id, caller, scope.clone(), &record)?;
    if woken == Woken::FromEarlierRun {
        subscribe(&session, server, &record);
        session.keep();
        state.metrics.sessions_restored.inc();
    }
    Some(session)
}

fn subscribe(session: &Arc<Session>, server: &Arc<dyn Server>, record: &Record) {
    for uri in &record.subscriptions {
        let uri = Text::from(uri.as_str());
        let Subscribed::New(subscription) = session.subscribe(&uri) else { continue };
        let (server, session) = (server.clone(), Arc::downgrade(session));
        tokio::spawn(subscription.ended.clone().run_until_cancelled_owned(async move {
            let mut pause = PAUSES.0;
            let notices = loop {
                let caller = session.upgrade()?.caller.load_full();
                let notices = server.listen(&caller, Filter { uris: vec![uri.clone()], ..Filter::default() });
                if notices.honoured.uris.contains(&uri) {
                    break notices;
                }
                // Its server is not listed yet, and nobody knows whose it is.
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    notices = subscription.renewed() => break notices,
                }
                pause = (pause * 2).min(PAUSES.1);
            };
            own::forward(uri, notices, session, subscription).await;
            Some(())
        }));
    }
}

/// Tells a client with its next stream of what it may have missed.
///
/// What changed while nobody listened cannot be known: the client looks again at what it asked to hear of. The lists
/// come last, so that they are not what has to make room.
pub(super) fn owe(session: &Session) {
    if !session.take_owes() {
        return;
    }
    for uri in session.subscriptions() {
        let params = Object::new().with("uri", Raw::string(&uri));
        session.outbox.push(notices::notification("notifications/resources/updated", &params), Some(uri));
    }
    for kind in [Kind::Tools, Kind::Prompts, Kind::Resources] {
        session.outbox.push(notices::notification(notices::changed_method(kind), &Object::new()), None);
    }
}

/// Goes on from an event that an earlier run gave out: what followed went with it.
///
/// 2025-11-25/basic/transports.mdx, Resumability and Redelivery: the server "**MAY** use this header to replay messages
/// that would have been sent after the last event ID". An error would be met again with each attempt, and 404 would end
/// the session; so the client gets the session's stream as it is from now on or, where it waits for an answer, that
/// this is lost.
pub(super) fn resume(
    session: &Arc<Session>,
    server: &Arc<dyn Server>,
    stream: u64,
    state: &FrontState,
) -> Result<Response<Body>, Refusal> {
    state.metrics.resumed.with_label_values(&["former"]).inc();
    let Some(request) = session.take_lost(stream) else { return Ok(own::open(session, server, state, None)?) };
    let message = "The gateway was restarted while the call ran: its answer is lost, and the call may have run";
    let error = spell::failure(Some(&request), &Error::new(Reason::Internal, message));
    Ok(lost(sse::frame(&error)))
}

fn lost(event: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::Stream(Box::pin(stream::once(std::future::ready(event)))));
    answer::stream_headers(&mut response);
    response
}
