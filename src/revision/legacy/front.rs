//! The legacy client side: sessions over Streamable HTTP.
//!
//! Owns POST, GET and DELETE of a session and what is answered without any server. Calls are in `call`, the session's
//! own stream is in `stream`. Invariant: no session is touched before its principal and endpoint were checked.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method as Verb, Response, header};
use tokio::time::Instant;

use crate::body::Body;
use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Id, Message, Notification, Payload, Request};
use crate::model::{Caller, Error, Features, Filter, Level, LogWish, Notice, Reason, Server};
use crate::revision::legacy::{
    NEWEST, Profile, SESSION_HEADER, VERSION_HEADER, call, can, profile, record, restored, spell, stream, tasks,
};
use crate::revision::lookalikes::refuse_lookalikes;
use crate::revision::{Front, FrontState, Head, Inbound, Peek, count_own, json_response, malformed, notices};
use crate::session::{OWN_STREAM, Session, Subscribed, parse_id};

/// The header of the standard for server-sent events.
const LAST_EVENT_ID: http::HeaderName = http::HeaderName::from_static("last-event-id");

/// The one legacy front.
pub(in crate::revision) static FRONT: LegacyFront = LegacyFront;

pub(in crate::revision) struct LegacyFront;

impl Front for LegacyFront {
    /// It claims whatever the modern front did not: what cannot be read is refused in the older spelling, which
    /// every client understands.
    fn claims(&self, _: &Head<'_>, _: &Peek<'_>) -> bool {
        true
    }

    fn serve<'a>(
        &'a self,
        inbound: Inbound,
        server: Arc<dyn Server>,
        state: &'a Arc<FrontState>,
    ) -> BoxFuture<'a, Response<Body>> {
        async move {
            if let Some(later) = restored::wait(&inbound, state).await {
                return later;
            }
            let served = match inbound.method {
                Verb::POST => post(inbound, server, state).await,
                Verb::GET => get(&inbound, &server, state),
                Verb::DELETE => delete(&inbound, &server, state),
                _ => Ok(not_allowed()),
            };
            served.unwrap_or_else(|refusal| self.refuse(refusal.id.as_ref(), &refusal.error))
        }
        .boxed()
    }

    fn refuse(&self, id: Option<&Id>, error: &Error) -> Response<Body> {
        json_response(spell::status(error), [spell::failure(id, error)])
    }
}

/// Why a request did not become a call.
pub(super) struct Refusal {
    pub(super) id: Option<Id>,
    pub(super) error: Error,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal { id: None, error }
    }
}

impl Refusal {
    pub(super) fn to(id: &Id, error: Error) -> Self {
        Refusal { id: Some(id.clone()), error }
    }
}

fn not_allowed() -> Response<Body> {
    let error =
        Error::new(Reason::InvalidRequest, "Method not allowed: a GET needs the session id of an earlier initialize");
    let mut response = json_response(405, [spell::failure(None, &error)]);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    response
}

pub(in crate::revision) fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::ACCEPTED;
    response
}

// === POST ===

async fn post(inbound: Inbound, server: Arc<dyn Server>, state: &Arc<FrontState>) -> Result<Response<Body>, Refusal> {
    let Inbound { headers, payload, principal, scope, received, .. } = inbound;
    let payload = payload.map_err(|e| {
        let (id, error) = malformed(&e);
        Refusal { id, error }
    })?;
    check_content_type(&headers)?;
    let stream = accepts_stream(&headers)?;
    if let Payload::One(Message::Request(request)) = &payload
        && &*request.method == "initialize"
    {
        let begun = initialize(request, &headers, principal, scope, &server, state);
        count_initialize(state, begun.as_ref().err().map(|refusal| &refusal.error), &request.params, received);
        return begun;
    }
    let id = request_id(&payload);
    let session = find_session(&headers, &principal, &scope, &server, state).map_err(|error| Refusal { id, error })?;
    let turn = call::Turn { session, server, received, stream, headers: &headers, state };
    match payload {
        Payload::One(Message::Request(request)) => turn.request(request).await,
        Payload::One(other) => {
            turn.other(other);
            Ok(accepted())
        }
        Payload::Batch(items) => turn.batch(items).await,
    }
}

/// The id of the request that a refusal answers, if it is a single one.
pub(super) fn request_id(payload: &Payload) -> Option<Id> {
    match payload {
        Payload::One(Message::Request(request)) => Some(request.id.clone()),
        _ => None,
    }
}

/// The body must be JSON: a page of another origin can send other types without being asked.
pub(in crate::revision) fn check_content_type(headers: &HeaderMap) -> Result<(), Error> {
    let json = headers.get(header::CONTENT_TYPE).is_none_or(|v| v.as_bytes().starts_with(b"application/json"));
    if !json {
        return Err(Error::new(Reason::InvalidRequest, "Unsupported media type: the body must be application/json"));
    }
    Ok(())
}

/// What clients accept, as nearly all of them spell it.
const USUAL_ACCEPT: &str = "application/json, text/event-stream";

/// Whether the client takes event streams. Fails where it takes neither them nor JSON.
fn accepts_stream(headers: &HeaderMap) -> Result<bool, Error> {
    let Some(accept) = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()) else { return Ok(true) };
    if accept == USUAL_ACCEPT {
        return Ok(true);
    }
    let any = accept.contains("*/*");
    if any || accept.contains("text/event-stream") {
        return Ok(true);
    }
    if accept.contains("application/json") || accept.contains("application/*") {
        return Ok(false);
    }
    Err(Error::new(
        Reason::InvalidRequest,
        "Not acceptable: the client must accept application/json and text/event-stream",
    ))
}

fn find_session(
    headers: &HeaderMap,
    principal: &Arc<crate::model::Principal>,
    scope: &Text,
    server: &Arc<dyn Server>,
    state: &FrontState,
) -> Result<Arc<Session>, Error> {
    check_version(headers)?;
    let Some(id) = headers.get(SESSION_HEADER).and_then(|v| v.to_str().ok()) else {
        let message = "Bad request: the Mcp-Session-Id header is missing; a client starts with initialize";
        return Err(Error::new(Reason::InvalidRequest, message));
    };
    state
        .sessions
        .find(id, principal, scope)
        .or_else(|| restored::wake(id, headers, principal, scope, (server, state)))
        .filter(|session| session.pipe.is_none())
        .ok_or_else(|| Error::new(Reason::UnknownSession, "Session not found: initialize again"))
}

/// 2025-11-25/basic/transports.mdx, Protocol Version Header: "If the server receives a request with an invalid or
/// unsupported `MCP-Protocol-Version`, it MUST respond with `400 Bad Request`."
fn check_version(headers: &HeaderMap) -> Result<(), Error> {
    match headers.get(VERSION_HEADER).map(|v| v.to_str().unwrap_or_default()) {
        Some(version) if profile(version).is_none() => {
            let known: Vec<&str> = super::PROFILES.iter().map(|p| p.name).collect();
            let message = format!(
                "Bad request: unsupported MCP-Protocol-Version {version:?} (a session speaks one of {})",
                known.join(", ")
            );
            Err(Error::new(Reason::UnsupportedRevision, message))
        }
        _ => Ok(()),
    }
}

// === initialize ===

fn initialize(
    request: &Request,
    headers: &HeaderMap,
    principal: Arc<crate::model::Principal>,
    scope: Text,
    server: &Arc<dyn Server>,
    state: &FrontState,
) -> Result<Response<Body>, Refusal> {
    let caller = caller(&request.params, headers, principal, state).map_err(|e| Refusal::to(&request.id, e))?;
    let session = state.sessions.open(caller, scope, None).map_err(|e| Refusal::to(&request.id, e))?;
    let mut response = json_response(200, introduction(request, &session, server));
    let id = HeaderValue::from_str(&session.id).map_err(|_| Error::internal("the session id is no header value"))?;
    response.headers_mut().insert(SESSION_HEADER, id);
    Ok(response)
}

/// Counts an `initialize`, by the revision that its client speaks from now on.
pub(super) fn count_initialize(state: &FrontState, error: Option<&Error>, params: &Object, received: Instant) {
    count_own(&state.metrics, "initialize", error, negotiated(params).name, received.elapsed());
}

/// The answer to `initialize`.
pub(super) fn introduction(request: &Request, session: &Session, server: &Arc<dyn Server>) -> Vec<Bytes> {
    let caller = session.caller.load();
    let face = server.describe(&caller);
    let mut result = Object::new()
        .with("protocolVersion", Raw::string(caller.revision))
        .with("capabilities", capabilities(caller.revision, &face.features).raw())
        .with("serverInfo", face.info);
    if let Some(instructions) = face.instructions {
        result.set(Text::literal("instructions"), Raw::string(&instructions));
    }
    spell::result(&request.id, &result)
}

fn capabilities(revision: &str, features: &Features) -> Object {
    let mut capabilities = notices::capabilities(features);
    let tasks = profile(revision).is_some_and(|profile| profile.tasks);
    if let Some(features) = features.tasks.filter(|_| tasks) {
        capabilities.set(Text::literal("tasks"), tasks::capability(features));
    }
    capabilities
}

/// 2025-11-25/basic/lifecycle.mdx, Version Negotiation: "Otherwise, the server MUST respond with another protocol version
/// it supports. This SHOULD be the latest version supported by the server."
fn negotiated(params: &Object) -> &'static Profile {
    params.text("protocolVersion").as_deref().and_then(profile).unwrap_or(NEWEST)
}

/// Who a client is, by its `initialize`.
pub(super) fn caller(
    params: &Object,
    headers: &HeaderMap,
    principal: Arc<crate::model::Principal>,
    state: &FrontState,
) -> Result<Caller, Error> {
    refuse_lookalikes("initialize", params)?;
    let profile = negotiated(params);
    let capabilities = params.object("capabilities").unwrap_or_default();
    Ok(Caller {
        principal,
        session: None,
        can: can(&capabilities),
        // Copies: a session must not keep the whole body of its first request alive.
        capabilities: capabilities.raw().detached(),
        info: params.get("clientInfo").filter(|info| info.is_object()).map(Raw::detached),
        log: LogWish::ServerDecides,
        revision: profile.name,
        headers: forwarded(headers, state),
        ended: tokio_util::sync::CancellationToken::new(),
    })
}

/// The client's headers that some server's config names.
pub(in crate::revision) fn forwarded(headers: &HeaderMap, state: &FrontState) -> Vec<(Text, Text)> {
    let value = |name: &http::HeaderName| Some(Text::from(headers.get(name)?.to_str().ok()?));
    state.forwarded.iter().filter_map(|name| Some((Text::from(name.as_str()), value(name)?))).collect()
}

// === GET, DELETE ===

fn get(inbound: &Inbound, server: &Arc<dyn Server>, state: &FrontState) -> Result<Response<Body>, Refusal> {
    if !inbound.headers.contains_key(SESSION_HEADER) {
        return Ok(not_allowed());
    }
    let session = find_session(&inbound.headers, &inbound.principal, &inbound.scope, server, state)?;
    let profile = profile(session.caller.load().revision).unwrap_or(NEWEST);
    let last = inbound.headers.get(LAST_EVENT_ID).filter(|_| profile.resumes);
    let Some(last) = last else { return Ok(stream::open(&session, server, state, None)?) };
    match last.to_str().ok().and_then(parse_id) {
        Some(event) if session.replay.is_former(event) => restored::resume(&session, server, event.0, state),
        Some((OWN_STREAM, after)) => Ok(stream::open(&session, server, state, Some(after))?),
        Some(event) => {
            stream::check_room(state)?;
            Ok(record::resume(&session, profile, event, state)?)
        }
        None => Err(record::unknown().into()),
    }
}

fn delete(inbound: &Inbound, server: &Arc<dyn Server>, state: &FrontState) -> Result<Response<Body>, Refusal> {
    let session = find_session(&inbound.headers, &inbound.principal, &inbound.scope, server, state)?;
    state.sessions.close(&session);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::NO_CONTENT;
    Ok(response)
}

// === what needs no server ===

/// `logging/setLevel`.
pub(super) fn set_level(session: &Session, params: &Object) -> Result<Object, Error> {
    let level = params.text("level").and_then(|name| Level::from_name(&name));
    let level = level.ok_or_else(|| {
        Error::new(
            Reason::InvalidParams,
            "Invalid params: level must be one of debug, info, notice, warning, error, critical, alert, emergency",
        )
    })?;
    session.caller.rcu(|caller| Caller { log: LogWish::AtLeast(level), ..(**caller).clone() });
    session.keep();
    Ok(Object::new())
}

/// `resources/subscribe` where it has to be found out first whether the server serves it; `None`: it is known.
pub(super) fn try_subscribe(
    turn: &call::Turn<'_>,
    params: &Object,
) -> Option<BoxFuture<'static, Result<Object, Error>>> {
    let uri = params.text("uri")?;
    let trial = turn.server.try_subscriptions(&turn.session.caller.load_full(), std::slice::from_ref(&uri))?;
    let (session, server, params) = (turn.session.clone(), turn.server.clone(), params.clone());
    Some(Box::pin(async move {
        trial.await?;
        subscribe(&session, &server, &params)
    }))
}

/// `resources/subscribe`: a listener of the session that writes to its stream.
pub(super) fn subscribe(session: &Arc<Session>, server: &Arc<dyn Server>, params: &Object) -> Result<Object, Error> {
    let uri = params.text("uri").ok_or_else(|| Error::new(Reason::InvalidParams, "Invalid params: uri is missing"))?;
    let caller = session.caller.load_full();
    let notices = server.listen(&caller, Filter { uris: vec![uri.clone()], ..Filter::default() });
    if let Some(setting) = notices.honoured.full {
        let message = format!("The server has too many subscriptions ({setting}); end some first");
        return Err(Error::new(Reason::Overloaded, message));
    }
    if let Some(name) = notices.honoured.unoffered {
        // A method that the server does not have: 2025-11-25/server/resources.mdx, Capabilities, makes it optional.
        let message = format!("Server \"{name}\" offers no subscriptions to its resources");
        return Err(Error::new(Reason::UnknownMethod, message));
    }
    if !notices.honoured.uris.contains(&uri) {
        return Err(Error::new(Reason::UnknownResource, format!("Resource not found: {uri}")));
    }
    let uri = Text::from(uri.as_str());
    match session.subscribe(&uri) {
        Subscribed::New(subscription) => {
            tokio::spawn(stream::forward(uri, notices, Arc::downgrade(session), subscription));
        }
        // It may be at another server, or nowhere, by now.
        Subscribed::Already(subscription) => subscription.renew(notices),
        Subscribed::TooMany => {
            let message = "The session has too many subscriptions (limits.subscriptions); end some first";
            return Err(Error::new(Reason::Overloaded, message));
        }
    }
    Ok(Object::new())
}

/// `resources/unsubscribe`.
pub(super) fn unsubscribe(session: &Session, params: &Object) -> Result<Object, Error> {
    let uri = params.text("uri").ok_or_else(|| Error::new(Reason::InvalidParams, "Invalid params: uri is missing"))?;
    session.unsubscribe(&uri);
    Ok(Object::new())
}

/// A notification of the client.
pub(super) fn notified(
    session: &Arc<Session>,
    server: &Arc<dyn Server>,
    notification: &Notification,
    state: &FrontState,
) {
    match &*notification.method {
        "notifications/cancelled" => {
            let id = notification.params.get("requestId").and_then(|raw| Id::from_raw(raw.clone()));
            if id.is_some_and(|id| session.cancel_call(&id)) {
                state.metrics.cancelled.inc();
            }
        }
        "notifications/roots/list_changed" => server.tell(&session.caller.load_full(), Notice::RootsChanged),
        // `initialized` opens nothing that was closed; whatever else comes is for nobody that we know.
        _ => {}
    }
}
