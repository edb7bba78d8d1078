//! Legacy dialect for clients: sessions over Streamable HTTP.
//!
//! Owns POST, GET and DELETE of a session and the methods that need no server. Does not run calls
//! (`session_request.rs`) or the GET stream (`get_stream.rs`). Invariant: no session is touched
//! before its principal and endpoint were checked.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method as Verb, Response, header};

use crate::admitted::Admitted;
use crate::body::Body;
use crate::dialect::{BodyHint, Dialect, DownstreamState, McpRequest, RequestHead};
use crate::era::VERSION_HEADER;
use crate::http_response::{accepted_response, json_response};
use crate::legacy::downstream::initialize::{count_initialize, initialize};
use crate::legacy::downstream::refusal::{self, LegacyRefusal, request_id};
use crate::legacy::downstream::session_request::SessionRequest;
use crate::legacy::downstream::transient_session::open_transient;
use crate::legacy::downstream::{encode, get_stream, restore, resumable};
use crate::legacy::profile::{NEWEST, SESSION_HEADER, profile};
use crate::request_checks::{check_content_type, malformed_error};
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RequestId, RpcMessage, RpcPayload};
use moongate_model::{Error, McpErrorKind, McpServer};
use moongate_session::{GET_STREAM, Session, parse_id};

/// Header of the standard for server-sent events.
const LAST_EVENT_ID: http::HeaderName = http::HeaderName::from_static("last-event-id");

/// Dialect of all legacy revisions.
pub(crate) static DIALECT: LegacyDialect = LegacyDialect;

pub(crate) struct LegacyDialect;

impl Dialect for LegacyDialect {
    // Matches everything that the modern dialect did not. Unreadable requests get the older wire
    // form, which every client understands.
    fn matches(&self, _: &RequestHead<'_>, _: &BodyHint<'_>) -> bool {
        true
    }

    fn serve<'a>(
        &'a self,
        request: Admitted<McpRequest>,
        endpoint: Arc<dyn McpServer>,
        state: &'a Arc<DownstreamState>,
    ) -> BoxFuture<'a, Response<Body>> {
        let request = request.into_inner();
        // Runs synchronously up to the first wait, so that the returned future is small.
        if state.sessions.is_restored() {
            return self.start(request, endpoint, state);
        }
        async move {
            match restore::wait_for_store(&request, state).await {
                Some(later) => later,
                None => self.start(request, endpoint, state).await,
            }
        }
        .boxed()
    }

    fn error_response(&self, id: Option<&RequestId>, error: &Error) -> Response<Body> {
        refusal::error_response(id, error)
    }
}

impl LegacyDialect {
    fn start(
        &self,
        request: McpRequest,
        endpoint: Arc<dyn McpServer>,
        state: &Arc<DownstreamState>,
    ) -> BoxFuture<'static, Response<Body>> {
        let served = match request.method {
            Verb::POST => post(request, endpoint, state),
            Verb::GET => get(&request, &endpoint, state).map(ready),
            Verb::DELETE => delete(&request, &endpoint, state).map(ready),
            _ => Ok(ready(not_allowed())),
        };
        served.unwrap_or_else(|refusal| {
            ready(self.error_response(refusal.id.as_ref(), &refusal.error))
        })
    }
}

fn ready(response: Response<Body>) -> BoxFuture<'static, Response<Body>> {
    std::future::ready(response).boxed()
}

fn not_allowed() -> Response<Body> {
    let error = Error::new(
        McpErrorKind::InvalidRequest,
        "Method not allowed: a GET needs the session id of an earlier initialize",
    );
    let mut response = json_response(405, [encode::encode_error(None, &error)]);
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    response
}

// === POST ===

fn post(
    inbound: McpRequest,
    endpoint: Arc<dyn McpServer>,
    state: &Arc<DownstreamState>,
) -> Result<BoxFuture<'static, Response<Body>>, LegacyRefusal> {
    let McpRequest {
        headers,
        payload,
        principal,
        scope,
        received,
        ..
    } = inbound;
    let payload = payload.map_err(|e| {
        let (id, error) = malformed_error(&e);
        LegacyRefusal { id, error }
    })?;
    check_content_type(&headers)?;
    let stream = accepts_stream(&headers)?;
    // `initialize` is the only request that opens a session.
    if let RpcPayload::One(RpcMessage::Request(request)) = &payload
        && request.method.as_bytes() == b"initialize"
    {
        let result = initialize(request, &headers, principal, scope, &endpoint, state);
        count_initialize(
            state,
            result.as_ref().err().map(|refusal| &refusal.error),
            &request.params,
            received,
        );
        return result.map(ready);
    }
    let id = request_id(&payload);
    // 2025-11-25/basic/transports.mdx, Session Management, lets a server do without the id: only
    // those "that require a session ID SHOULD respond to requests without an `MCP-Session-Id`
    // header [...] with HTTP 400 Bad Request."
    let session = check_version(&headers).and_then(|()| match headers.get(SESSION_HEADER) {
        named @ Some(_) => {
            find_named_session(named, &headers, &principal, &scope, &endpoint, state)
        }
        None => Ok(open_transient(&headers, principal, scope, state)),
    });
    let session = session.map_err(|error| LegacyRefusal { id, error })?;
    let session_request = SessionRequest {
        session,
        endpoint,
        received,
        stream,
        headers: &headers,
        state,
    };
    match payload {
        RpcPayload::One(RpcMessage::Request(request)) => Ok(session_request.serve(request)),
        RpcPayload::One(other) => {
            session_request.accept(other);
            Ok(ready(accepted_response()))
        }
        RpcPayload::Batch(items) => session_request.serve_batch(items),
    }
}

/// `Accept` header of nearly all clients.
const USUAL_ACCEPT: &str = "application/json, text/event-stream";

/// True if the client accepts event streams. Fails if it accepts neither streams nor JSON.
fn accepts_stream(headers: &HeaderMap) -> Result<bool, Error> {
    // 2025-11-25/basic/transports.mdx: "The client MUST include an `Accept` header, listing both
    // `application/json` and `text/event-stream` as supported content types." Lenient, since some
    // clients send none or name only one type.
    let Some(accept) = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()) else {
        return Ok(true);
    };
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
    principal: &Arc<moongate_model::Principal>,
    scope: &ByteString,
    endpoint: &Arc<dyn McpServer>,
    state: &DownstreamState,
) -> Result<Arc<Session>, Error> {
    check_version(headers)?;
    let named = headers.get(SESSION_HEADER);
    find_named_session(named, headers, principal, scope, endpoint, state)
}

/// Finds the session that a header names.
fn find_named_session(
    named: Option<&HeaderValue>,
    headers: &HeaderMap,
    principal: &Arc<moongate_model::Principal>,
    scope: &ByteString,
    endpoint: &Arc<dyn McpServer>,
    state: &DownstreamState,
) -> Result<Arc<Session>, Error> {
    let Some(id) = named.and_then(|v| v.to_str().ok()) else {
        // A DELETE without the header, or text that no id has.
        let message =
            "Bad request: the Mcp-Session-Id header is missing; a client starts with initialize";
        return Err(Error::new(McpErrorKind::InvalidRequest, message));
    };
    state
        .sessions
        .find(id, principal, scope)
        .or_else(|| restore::restore_session(id, headers, principal, scope, (endpoint, state)))
        // A session of HTTP+SSE or stdio lives on its own stream and is not a session of this
        // transport.
        .filter(|session| session.shared_stream.is_none())
        .ok_or_else(|| {
            Error::new(
                McpErrorKind::UnknownSession,
                "Session not found: initialize again",
            )
        })
}

/// Checks the version header, if there is one.
///
/// 2025-11-25/basic/transports.mdx, Protocol Version Header: "If the server receives a request with
/// an invalid or unsupported `MCP-Protocol-Version`, it MUST respond with `400 Bad Request`."
fn check_version(headers: &HeaderMap) -> Result<(), Error> {
    match headers
        .get(VERSION_HEADER)
        .map(|v| v.to_str().unwrap_or_default())
    {
        Some(version) if profile(version).is_none() => {
            let known: Vec<&str> = crate::legacy::PROFILES.iter().map(|p| p.name).collect();
            let message = format!(
                "Bad request: unsupported MCP-Protocol-Version {version:?} (a session speaks one \
                 of {})",
                known.join(", ")
            );
            Err(Error::new(McpErrorKind::UnsupportedRevision, message))
        }
        _ => Ok(()),
    }
}

// === GET, DELETE ===

fn get(
    request: &McpRequest,
    endpoint: &Arc<dyn McpServer>,
    state: &DownstreamState,
) -> Result<Response<Body>, LegacyRefusal> {
    if !request.headers.contains_key(SESSION_HEADER) {
        return Ok(not_allowed());
    }
    let session = find_session(
        &request.headers,
        &request.principal,
        &request.scope,
        endpoint,
        state,
    )?;
    let profile = profile(session.identity.revision()).unwrap_or(NEWEST);
    // Revisions without resumption ignore the header.
    let last = request
        .headers
        .get(LAST_EVENT_ID)
        .filter(|_| profile.resumes);
    let Some(last) = last else {
        return Ok(get_stream::open_stream(&session, endpoint, state, None)?);
    };
    match last.to_str().ok().and_then(parse_id) {
        // The events of a previous process are lost, but its event ids can be distinguished.
        Some(event) if session.resumption.is_from_previous_process(event) => {
            restore::resume(&session, endpoint, event.0, state)
        }
        Some((GET_STREAM, after)) => Ok(get_stream::open_stream(
            &session,
            endpoint,
            state,
            Some(after),
        )?),
        Some(event) => {
            get_stream::check_stream_limit(state)?;
            Ok(resumable::resume(&session, profile, event, state)?)
        }
        None => Err(resumable::unknown_event().into()),
    }
}

fn delete(
    request: &McpRequest,
    endpoint: &Arc<dyn McpServer>,
    state: &DownstreamState,
) -> Result<Response<Body>, LegacyRefusal> {
    let session = find_session(
        &request.headers,
        &request.principal,
        &request.scope,
        endpoint,
        state,
    )?;
    state.sessions.close(&session);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::NO_CONTENT;
    Ok(response)
}
