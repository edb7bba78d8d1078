//! Legacy dialect for clients: sessions over Streamable HTTP.
//!
//! Owns POST, GET and DELETE of a session and the methods that need no server. Does not run calls (`request.rs`) or the
//! GET stream (`get_stream.rs`). Invariant: no session is touched before its principal and endpoint were checked.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method as Verb, Response, header};
use tokio::time::Instant;

use crate::body::Body;
use crate::json::{ByteString, JsonObject, RawJson};
use crate::jsonrpc::{RequestId, RpcMessage, RpcNotification, RpcPayload, RpcRequest};
use crate::model::{
    Caller, Error, LogFilter, LogLevel, McpErrorKind, Notification, Server, ServerCapabilities, SubscriptionFilter,
};
use crate::revision::legacy::{
    NEWEST, Profile, SESSION_HEADER, VERSION_HEADER, encode, get_stream, profile, read_client_capabilities, request,
    restore, resumable, tasks,
};
use crate::revision::lookalikes::reject_lookalikes;
use crate::revision::{
    BodyHint, Dialect, DownstreamState, McpRequest, RequestHead, count_local_answer, json_response, malformed_error,
    notifications,
};
use crate::session::{GET_STREAM, Session, SubscribeOutcome, parse_id};

/// Header of the standard for server-sent events.
const LAST_EVENT_ID: http::HeaderName = http::HeaderName::from_static("last-event-id");

/// Dialect of all legacy revisions.
pub(in crate::revision) static DIALECT: LegacyDialect = LegacyDialect;

pub(in crate::revision) struct LegacyDialect;

impl Dialect for LegacyDialect {
    // Matches everything that the modern dialect did not. Unreadable requests get the older wire form, which every
    // client understands.
    fn matches(&self, _: &RequestHead<'_>, _: &BodyHint<'_>) -> bool {
        true
    }

    fn serve<'a>(
        &'a self,
        inbound: McpRequest,
        server: Arc<dyn Server>,
        state: &'a Arc<DownstreamState>,
    ) -> BoxFuture<'a, Response<Body>> {
        async move {
            if let Some(later) = restore::wait_for_store(&inbound, state).await {
                return later;
            }
            let served = match inbound.method {
                Verb::POST => post(inbound, server, state).await,
                Verb::GET => get(&inbound, &server, state),
                Verb::DELETE => delete(&inbound, &server, state),
                _ => Ok(not_allowed()),
            };
            served.unwrap_or_else(|refusal| self.error_response(refusal.id.as_ref(), &refusal.error))
        }
        .boxed()
    }

    fn error_response(&self, id: Option<&RequestId>, error: &Error) -> Response<Body> {
        json_response(encode::http_status(error), [encode::encode_error(id, error)])
    }
}

/// Error of a request that did not become a call.
pub(super) struct LegacyRefusal {
    pub(super) id: Option<RequestId>,
    pub(super) error: Error,
}

impl From<Error> for LegacyRefusal {
    fn from(error: Error) -> Self {
        LegacyRefusal { id: None, error }
    }
}

impl LegacyRefusal {
    pub(super) fn for_id(id: &RequestId, error: Error) -> Self {
        LegacyRefusal { id: Some(id.clone()), error }
    }
}

fn not_allowed() -> Response<Body> {
    let error = Error::new(
        McpErrorKind::InvalidRequest,
        "Method not allowed: a GET needs the session id of an earlier initialize",
    );
    let mut response = json_response(405, [encode::encode_error(None, &error)]);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    response
}

pub(in crate::revision) fn accepted_response() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::ACCEPTED;
    response
}

// === POST ===

async fn post(
    inbound: McpRequest,
    server: Arc<dyn Server>,
    state: &Arc<DownstreamState>,
) -> Result<Response<Body>, LegacyRefusal> {
    let McpRequest { headers, payload, principal, scope, received, .. } = inbound;
    let payload = payload.map_err(|e| {
        let (id, error) = malformed_error(&e);
        LegacyRefusal { id, error }
    })?;
    check_content_type(&headers)?;
    let stream = accepts_stream(&headers)?;
    // `initialize` is the only request without a session.
    if let RpcPayload::One(RpcMessage::Request(request)) = &payload
        && &*request.method == "initialize"
    {
        let begun = initialize(request, &headers, principal, scope, &server, state);
        count_initialize(state, begun.as_ref().err().map(|refusal| &refusal.error), &request.params, received);
        return begun;
    }
    let id = request_id(&payload);
    let session =
        find_session(&headers, &principal, &scope, &server, state).map_err(|error| LegacyRefusal { id, error })?;
    let turn = request::SessionRequest { session, server, received, stream, headers: &headers, state };
    match payload {
        RpcPayload::One(RpcMessage::Request(request)) => turn.serve(request).await,
        RpcPayload::One(other) => {
            turn.accept(other);
            Ok(accepted_response())
        }
        RpcPayload::Batch(items) => turn.serve_batch(items).await,
    }
}

/// Returns the id of the refused request if the payload is a single request.
pub(super) fn request_id(payload: &RpcPayload) -> Option<RequestId> {
    match payload {
        RpcPayload::One(RpcMessage::Request(request)) => Some(request.id.clone()),
        _ => None,
    }
}

/// Checks that the body is JSON. Pages of another origin can send other media types without a preflight request.
pub(in crate::revision) fn check_content_type(headers: &HeaderMap) -> Result<(), Error> {
    let json = headers.get(header::CONTENT_TYPE).is_none_or(|v| v.as_bytes().starts_with(b"application/json"));
    if !json {
        return Err(Error::new(
            McpErrorKind::InvalidRequest,
            "Unsupported media type: the body must be application/json",
        ));
    }
    Ok(())
}

/// `Accept` header of nearly all clients.
const USUAL_ACCEPT: &str = "application/json, text/event-stream";

/// True if the client accepts event streams. Fails if it accepts neither streams nor JSON.
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
        McpErrorKind::InvalidRequest,
        "Not acceptable: the client must accept application/json and text/event-stream",
    ))
}

fn find_session(
    headers: &HeaderMap,
    principal: &Arc<crate::model::Principal>,
    scope: &ByteString,
    server: &Arc<dyn Server>,
    state: &DownstreamState,
) -> Result<Arc<Session>, Error> {
    check_version(headers)?;
    let Some(id) = headers.get(SESSION_HEADER).and_then(|v| v.to_str().ok()) else {
        let message = "Bad request: the Mcp-Session-Id header is missing; a client starts with initialize";
        return Err(Error::new(McpErrorKind::InvalidRequest, message));
    };
    state
        .sessions
        .find(id, principal, scope)
        .or_else(|| restore::restore_session(id, headers, principal, scope, (server, state)))
        // A session of HTTP+SSE or stdio lives on its own stream and is no session of this transport.
        .filter(|session| session.shared_stream.is_none())
        .ok_or_else(|| Error::new(McpErrorKind::UnknownSession, "Session not found: initialize again"))
}

/// Checks the version header, if there is one.
///
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
            Err(Error::new(McpErrorKind::UnsupportedRevision, message))
        }
        _ => Ok(()),
    }
}

// === initialize ===

fn initialize(
    request: &RpcRequest,
    headers: &HeaderMap,
    principal: Arc<crate::model::Principal>,
    scope: ByteString,
    server: &Arc<dyn Server>,
    state: &DownstreamState,
) -> Result<Response<Body>, LegacyRefusal> {
    let caller =
        read_caller(&request.params, headers, principal, state).map_err(|e| LegacyRefusal::for_id(&request.id, e))?;
    let session = state.sessions.open(caller, scope, None).map_err(|e| LegacyRefusal::for_id(&request.id, e))?;
    let mut response = json_response(200, initialize_result(request, &session, server));
    let id = HeaderValue::from_str(&session.id).map_err(|_| Error::internal("the session id is no header value"))?;
    response.headers_mut().insert(SESSION_HEADER, id);
    Ok(response)
}

/// Counts an `initialize` under the revision that its client speaks from now on.
pub(super) fn count_initialize(state: &DownstreamState, error: Option<&Error>, params: &JsonObject, received: Instant) {
    count_local_answer(&state.metrics, "initialize", error, negotiate_profile(params).name, received.elapsed());
}

/// Encodes the result of `initialize`.
pub(super) fn initialize_result(request: &RpcRequest, session: &Session, server: &Arc<dyn Server>) -> Vec<Bytes> {
    let caller = session.caller.load();
    let face = server.describe(&caller);
    let mut result = JsonObject::new()
        .with("protocolVersion", RawJson::string(caller.revision))
        .with("capabilities", write_capabilities(caller.revision, &face.features).to_raw())
        .with("serverInfo", face.info);
    if let Some(instructions) = face.instructions {
        result.set(ByteString::literal("instructions"), RawJson::string(&instructions));
    }
    encode::encode_result(&request.id, &result)
}

fn write_capabilities(revision: &str, features: &ServerCapabilities) -> JsonObject {
    let mut capabilities = notifications::write_capabilities(features);
    let tasks = profile(revision).is_some_and(|profile| profile.tasks);
    if let Some(features) = features.tasks.filter(|_| tasks) {
        capabilities.set(ByteString::literal("tasks"), tasks::write_capability(features));
    }
    capabilities
}

/// Picks the revision for a client.
///
/// 2025-11-25/basic/lifecycle.mdx, Version Negotiation: "Otherwise, the server MUST respond with another protocol
/// version it supports. This SHOULD be the latest version supported by the server."
fn negotiate_profile(params: &JsonObject) -> &'static Profile {
    params.get_string("protocolVersion").as_deref().and_then(profile).unwrap_or(NEWEST)
}

/// Reads the caller from its `initialize` request.
pub(super) fn read_caller(
    params: &JsonObject,
    headers: &HeaderMap,
    principal: Arc<crate::model::Principal>,
    state: &DownstreamState,
) -> Result<Caller, Error> {
    reject_lookalikes("initialize", params)?;
    let profile = negotiate_profile(params);
    let capabilities = params.get_object("capabilities").unwrap_or_default();
    Ok(Caller {
        principal,
        session: None,
        capabilities: read_client_capabilities(&capabilities),
        // Copies: a session must not keep the whole body of its first request alive.
        declared_capabilities: capabilities.to_raw().detached(),
        client_info: params.get("clientInfo").filter(|info| info.is_object()).map(RawJson::detached),
        log_filter: LogFilter::ServerDecides,
        revision: profile.name,
        forwarded_headers: collect_forwarded(headers, state),
        ended: tokio_util::sync::CancellationToken::new(),
    })
}

/// Collects the client's headers that the config of some server names.
pub(in crate::revision) fn collect_forwarded(
    headers: &HeaderMap,
    state: &DownstreamState,
) -> Vec<(ByteString, ByteString)> {
    let value = |name: &http::HeaderName| Some(ByteString::from(headers.get(name)?.to_str().ok()?));
    state.forwarded_headers.iter().filter_map(|name| Some((ByteString::from(name.as_str()), value(name)?))).collect()
}

// === GET, DELETE ===

fn get(
    inbound: &McpRequest,
    server: &Arc<dyn Server>,
    state: &DownstreamState,
) -> Result<Response<Body>, LegacyRefusal> {
    if !inbound.headers.contains_key(SESSION_HEADER) {
        return Ok(not_allowed());
    }
    let session = find_session(&inbound.headers, &inbound.principal, &inbound.scope, server, state)?;
    let profile = profile(session.caller.load().revision).unwrap_or(NEWEST);
    // Revisions without resumption ignore the header.
    let last = inbound.headers.get(LAST_EVENT_ID).filter(|_| profile.resumes);
    let Some(last) = last else { return Ok(get_stream::open_stream(&session, server, state, None)?) };
    match last.to_str().ok().and_then(parse_id) {
        // The events of a previous process are lost, but its event ids can be told apart.
        Some(event) if session.resumption.is_from_previous_process(event) => {
            restore::resume(&session, server, event.0, state)
        }
        Some((GET_STREAM, after)) => Ok(get_stream::open_stream(&session, server, state, Some(after))?),
        Some(event) => {
            get_stream::check_stream_limit(state)?;
            Ok(resumable::resume(&session, profile, event, state)?)
        }
        None => Err(resumable::unknown_event().into()),
    }
}

fn delete(
    inbound: &McpRequest,
    server: &Arc<dyn Server>,
    state: &DownstreamState,
) -> Result<Response<Body>, LegacyRefusal> {
    let session = find_session(&inbound.headers, &inbound.principal, &inbound.scope, server, state)?;
    state.sessions.close(&session);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::NO_CONTENT;
    Ok(response)
}

// === what needs no server ===

/// Sets the session's log level (`logging/setLevel`).
pub(super) fn set_level(session: &Session, params: &JsonObject) -> Result<JsonObject, Error> {
    let level = params.get_string("level").and_then(|name| LogLevel::from_name(&name));
    let level = level.ok_or_else(|| {
        Error::new(
            McpErrorKind::InvalidParams,
            "Invalid params: level must be one of debug, info, notice, warning, error, critical, alert, emergency",
        )
    })?;
    // Another request of the session may replace the caller at the same time.
    session.caller.rcu(|caller| Caller { log_filter: LogFilter::AtLeast(level), ..(**caller).clone() });
    session.persist();
    Ok(JsonObject::new())
}

/// Tries a subscription at a server that may not support them. Returns `None` if the support is known.
pub(super) fn try_subscribe(
    turn: &request::SessionRequest<'_>,
    params: &JsonObject,
) -> Option<BoxFuture<'static, Result<JsonObject, Error>>> {
    let uri = params.get_string("uri")?;
    let trial = turn.server.try_subscriptions(&turn.session.caller.load_full(), std::slice::from_ref(&uri))?;
    let (session, server, params) = (turn.session.clone(), turn.server.clone(), params.clone());
    Some(Box::pin(async move {
        trial.await?;
        subscribe(&session, &server, &params)
    }))
}

/// Subscribes the session to a resource (`resources/subscribe`). Updates go to the session's stream.
pub(super) fn subscribe(
    session: &Arc<Session>,
    server: &Arc<dyn Server>,
    params: &JsonObject,
) -> Result<JsonObject, Error> {
    let uri = params
        .get_string("uri")
        .ok_or_else(|| Error::new(McpErrorKind::InvalidParams, "Invalid params: uri is missing"))?;
    let caller = session.caller.load_full();
    let notices =
        server.subscribe(&caller, SubscriptionFilter { uris: vec![uri.clone()], ..SubscriptionFilter::default() });
    if let Some(setting) = notices.acknowledged.exceeded_limit {
        let message = format!("The server has too many subscriptions ({setting}); end some first");
        return Err(Error::new(McpErrorKind::Overloaded, message));
    }
    if let Some(name) = notices.acknowledged.unoffered {
        // A method that the server does not have: 2025-11-25/server/resources.mdx, Capabilities, makes it optional.
        let message = format!("Server \"{name}\" offers no subscriptions to its resources");
        return Err(Error::new(McpErrorKind::UnknownMethod, message));
    }
    if !notices.acknowledged.uris.contains(&uri) {
        return Err(Error::new(McpErrorKind::UnknownResource, format!("Resource not found: {uri}")));
    }
    // A copy: the URI is a span of the request, whose buffer must not live as long as the subscription.
    let uri = ByteString::from(uri.as_str());
    match session.subscribe(&uri) {
        SubscribeOutcome::New(subscription) => {
            tokio::spawn(get_stream::forward_subscription(uri, notices, Arc::downgrade(session), subscription));
        }
        // The URI may belong to another server by now, or to none.
        SubscribeOutcome::Already(subscription) => subscription.renew(notices),
        SubscribeOutcome::TooMany => {
            let message = "The session has too many subscriptions (limits.subscriptions); end some first";
            return Err(Error::new(McpErrorKind::Overloaded, message));
        }
    }
    Ok(JsonObject::new())
}

/// Ends a subscription (`resources/unsubscribe`).
pub(super) fn unsubscribe(session: &Session, params: &JsonObject) -> Result<JsonObject, Error> {
    let uri = params
        .get_string("uri")
        .ok_or_else(|| Error::new(McpErrorKind::InvalidParams, "Invalid params: uri is missing"))?;
    session.unsubscribe(&uri);
    Ok(JsonObject::new())
}

/// Handles a notification from the client.
pub(super) fn on_notification(
    session: &Arc<Session>,
    server: &Arc<dyn Server>,
    notification: &RpcNotification,
    state: &DownstreamState,
) {
    match &*notification.method {
        "notifications/cancelled" => {
            let id = notification.params.get("requestId").and_then(|raw| RequestId::from_raw(raw.clone()));
            if id.is_some_and(|id| session.cancel_call(&id)) {
                state.metrics.cancelled.inc();
            }
        }
        "notifications/roots/list_changed" => server.notify(&session.caller.load_full(), Notification::RootsChanged),
        // `initialized` changes nothing here, and other notifications have no known receiver.
        _ => {}
    }
}
