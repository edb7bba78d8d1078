//! Restoration of sessions from the previous process or from the store.
//!
//! Owns the steps when such a client comes back. Does not know the storage (`session`). Invariant:
//! a client that cannot get the missed events learns that it may have missed some.

use moongate_telemetry::ResumeOutcome;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, header};
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::client_capabilities::read_client_capabilities;
use crate::dialect::{DownstreamState, McpRequest};
use crate::legacy::downstream::refusal::{self, LegacyRefusal};
use crate::legacy::downstream::{encode, get_stream, resource_updates};
use crate::legacy::profile::{SESSION_HEADER, profile};
use crate::{client_headers, respond};
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::sse;
use moongate_model::{Caller, Error, McpErrorKind, McpServer, Principal, SubscriptionFilter};
use moongate_session::{RestoredFrom, Session, SessionRecord, SubscribeOutcome};

/// Time that a request waits for the sessions in the store.
const RESTORE_TIME: Duration = Duration::from_secs(5);
/// Backoff between attempts to subscribe at an unavailable server: the first, and the longest.
// Short at first: after a restart of the gateway, most servers list their resources within a
// second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Waits until the store is read, if the session may be there.
///
/// Returns an error response if that takes too long. A 404 would end a session that may well exist.
pub(crate) async fn wait_for_store(
    request: &McpRequest,
    state: &DownstreamState,
) -> Option<Response<Body>> {
    let sessions = &state.sessions;
    if sessions.is_restored() {
        return None;
    }
    let id = request.headers.get(SESSION_HEADER)?.to_str().ok()?;
    let principal = &request.principal;
    let scope = &request.scope;
    // A session that is known already need not wait for the rest of the store.
    if sessions.find(id, principal, scope).is_some()
        || sessions.persisted_record(id, principal, scope).is_some()
    {
        return None;
    }
    tokio::time::timeout(RESTORE_TIME, sessions.until_restored())
        .await
        .err()?;
    let message = "The gateway has just started, and the previous process still holds the \
                   sessions; try again (gateway.state)";
    let mut response =
        refusal::error_response(None, &Error::new(McpErrorKind::Overloaded, message));
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    Some(response)
}

/// Restores the session that an earlier process left under this id.
pub(crate) fn restore_session(
    id: &str,
    headers: &HeaderMap,
    principal: &Arc<Principal>,
    scope: &ByteString,
    (endpoint, state): (&Arc<dyn McpServer>, &DownstreamState),
) -> Option<Arc<Session>> {
    let record = state.sessions.persisted_record(id, principal, scope)?;
    let profile = profile(&record.revision)?;
    let caller = Caller {
        principal: principal.clone(),
        session: None,
        capabilities: read_client_capabilities(&record.capabilities.as_object()?),
        declared_capabilities: record.capabilities.clone(),
        client_info: record.info.clone(),
        log_filter: record.log(),
        revision: profile.name,
        forwarded_headers: client_headers::collect_headers(headers, state),
        ended: CancellationToken::new(),
        channel: None,
    };
    // Another request may restore the same session meanwhile; both get the same one.
    let (session, restored_from) =
        state
            .sessions
            .restore_session(id, caller, scope.clone(), &record)?;
    if restored_from == RestoredFrom::FromPreviousProcess {
        resubscribe(&session, endpoint, &record);
        session.persist();
        state.metrics.clients.sessions_restored.inc();
    }
    Some(session)
}

fn resubscribe(session: &Arc<Session>, endpoint: &Arc<dyn McpServer>, record: &SessionRecord) {
    for uri in &record.subscriptions {
        let uri = ByteString::from(uri.as_str());
        let SubscribeOutcome::New(subscription) = session.subscribe(&uri) else {
            continue;
        };
        // Weak, since the task would otherwise keep a session that its client never comes back to.
        let endpoint = endpoint.clone();
        let session = Arc::downgrade(session);
        tokio::spawn(
            subscription
                .ended
                .clone()
                .run_until_cancelled_owned(async move {
                    let mut pause = BACKOFF.0;
                    let notifications = loop {
                        let caller = session.upgrade()?.identity.shared_caller();
                        let notifications = endpoint.subscribe(
                            &caller,
                            SubscriptionFilter {
                                uris: vec![uri.clone()],
                                ..SubscriptionFilter::default()
                            },
                        );
                        if notifications.acknowledged.uris.contains(&uri) {
                            break notifications;
                        }
                        // The server has no list yet, so the owner of the URI is unknown.
                        tokio::select! {
                            () = tokio::time::sleep(pause) => {}
                            notifications = subscription.until_renewed() => break notifications,
                        }
                        pause = (pause * 2).min(BACKOFF.1);
                    };
                    resource_updates::forward_subscription(
                        uri,
                        notifications,
                        session,
                        subscription,
                    )
                    .await;
                    Some(())
                }),
        );
    }
}

/// Continues from an event of an earlier process, whose later events are lost.
///
/// 2025-11-25/basic/transports.mdx, Resumability and Redelivery: the server "**MAY** use this
/// header to replay messages that would have been sent after the last event ID". An error would
/// repeat with each attempt, and a 404 would end the session. So the client gets a new stream or,
/// if it waits for a response, the error that this is lost.
pub(crate) fn resume(
    session: &Arc<Session>,
    endpoint: &Arc<dyn McpServer>,
    stream: u64,
    state: &DownstreamState,
) -> Result<Response<Body>, LegacyRefusal> {
    state
        .metrics
        .clients
        .resumed
        .inc(ResumeOutcome::PreviousProcess);
    // Taken and not read: the error answers the request once, and a second resumption gets a new
    // stream.
    let Some(request) = session.missed.take_lost_request(stream) else {
        return Ok(get_stream::open_stream(session, endpoint, state, None)?);
    };
    let message = "The gateway was restarted during the call: its answer is lost, and the call may \
                   have run";
    let error = encode::encode_error(Some(&request), &Error::new(McpErrorKind::Internal, message));
    Ok(lost_response(sse::encode_event(&error)))
}

fn lost_response(event: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::Stream(Box::pin(stream::once(std::future::ready(
        event,
    )))));
    respond::set_stream_headers(&mut response);
    response
}
