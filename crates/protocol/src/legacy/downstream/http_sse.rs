//! Dialect of HTTP+SSE, the HTTP transport of 2024-11-05: one event stream, and POSTs that belong
//! to it.
//!
//! Owns the opening of the stream and the POSTs. Does not write the session's own messages
//! (`get_stream.rs`) or run calls (`session_request.rs`). Invariant: the session starts and ends
//! with its stream. It accepts messages only from the principal and on the endpoint that opened the
//! stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method as Verb, Response, header};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::admitted::Admitted;
use crate::body::Body;
use crate::dialect::{BodyHint, Dialect, DownstreamState, McpRequest, RequestHead};
use crate::http_response::{accepted_response, json_response};
use crate::legacy::downstream::refusal::{self, LegacyRefusal};
use crate::legacy::downstream::session_request::{LegacyStarted, SessionRequest, collect_array};
use crate::legacy::downstream::{encode, get_stream, initialize};
use crate::request_checks::{check_content_type, malformed_error};
use crate::respond;
use moongate_jsonrpc::message::{RequestId, RpcMessage, RpcPayload, RpcRequest};
use moongate_jsonrpc::sse;
use moongate_model::{Caller, Error, McpErrorKind, McpServer};
use moongate_session::{Session, Sessions, SharedStream};

/// Limit of events that wait for a client to read them. Further writers wait.
const EVENTS_MAX: usize = 64;
/// Time limit for a POST to wait for a permit.
const PERMIT_TIME: Duration = Duration::from_secs(10);
/// Time limit between opening the stream and `initialize`.
// Each stream holds a session. Without the limit, a client could hold many that it never uses.
const INITIALIZE_TIME: Duration = Duration::from_secs(30);
/// Query parameter of the session id in the endpoint's URI.
const SESSION: &str = "sessionId";

/// Permit for one event.
type StreamPermit = mpsc::OwnedPermit<Bytes>;

/// Dialect of HTTP+SSE.
pub(crate) static DIALECT: HttpSseDialect = HttpSseDialect;

pub(crate) struct HttpSseDialect;

impl Dialect for HttpSseDialect {
    // Matches nothing: this transport has its own endpoints.
    fn matches(&self, _: &RequestHead<'_>, _: &BodyHint<'_>) -> bool {
        false
    }

    fn serve<'a>(
        &'a self,
        request: Admitted<McpRequest>,
        endpoint: Arc<dyn McpServer>,
        state: &'a Arc<DownstreamState>,
    ) -> BoxFuture<'a, Response<Body>> {
        async move {
            let served = match (&request.method, session_id(&request)) {
                (&Verb::GET, _) => open_stream(&request, &endpoint, state),
                (&Verb::POST, Some(_)) => post(request.into_inner(), endpoint, state).await,
                _ => Ok(not_allowed()),
            };
            served
                .unwrap_or_else(|refusal| self.error_response(refusal.id.as_ref(), &refusal.error))
        }
        .boxed()
    }

    fn error_response(&self, id: Option<&RequestId>, error: &Error) -> Response<Body> {
        refusal::error_response(id, error)
    }
}

/// Builds the 405 response for a client of Streamable HTTP that tries this endpoint.
///
/// "If it fails with \"405 Method Not Allowed\"" it comes back with a GET
/// (2025-11-25/basic/transports.mdx, Backwards Compatibility).
fn not_allowed() -> Response<Body> {
    let message = "Method not allowed: HTTP+SSE starts with a GET; Streamable HTTP is at /mcp";
    let mut response = json_response(
        405,
        [encode::encode_error(
            None,
            &Error::new(McpErrorKind::InvalidRequest, message),
        )],
    );
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("GET"));
    response
}

fn session_id(request: &McpRequest) -> Option<&str> {
    let query = request.uri.query()?;
    query
        .split('&')
        .find_map(|part| part.strip_prefix(SESSION)?.strip_prefix('='))
}

// === the stream ===

/// Guard that closes the session with its stream.
struct EndSessionOnDrop {
    sessions: Arc<Sessions>,
    session: Arc<Session>,
}

impl Drop for EndSessionOnDrop {
    fn drop(&mut self) {
        self.sessions.close(&self.session);
    }
}

/// Opens the stream.
///
/// 2024-11-05/basic/transports.mdx, HTTP with SSE: "When a client connects, the server MUST send an
/// `endpoint` event containing a URI for the client to use for sending messages."
fn open_stream(
    request: &McpRequest,
    endpoint: &Arc<dyn McpServer>,
    state: &DownstreamState,
) -> Result<Response<Body>, LegacyRefusal> {
    get_stream::check_stream_limit(state)?;
    let caller = Caller {
        log_filter: moongate_model::LogFilter::ServerDecides,
        // Its empty revision marks a session before `initialize`.
        ..Caller::without_capabilities(request.principal.clone())
    };
    let (out, calls) = mpsc::channel(EVENTS_MAX);
    let session = state.sessions.open(
        caller,
        request.scope.clone(),
        Some(SharedStream {
            out,
            frame: sse::encode_event,
        }),
    )?;
    let first = sse::encode_named_event(
        "endpoint",
        &format!("{}?{SESSION}={}", request.uri.path(), session.identity.id),
    );
    // The session is bound to the stream, so a client that disconnects must initialize again.
    let end_guard = EndSessionOnDrop {
        sessions: state.sessions.clone(),
        session: session.clone(),
    };
    let mut open =
        get_stream::GetStream::new(&session, endpoint, state, session.open_stream(), first);
    open.calls = Some(get_stream::CallEvents::new(calls, end_guard));
    open.deadline = Some(Instant::now() + INITIALIZE_TIME);
    Ok(get_stream::respond(open))
}

// === messages ===

async fn post(
    inbound: McpRequest,
    endpoint: Arc<dyn McpServer>,
    state: &Arc<DownstreamState>,
) -> Result<Response<Body>, LegacyRefusal> {
    check_content_type(&inbound.headers)?;
    let id = session_id(&inbound).unwrap_or_default();
    let session = state.sessions.find(id, &inbound.principal, &inbound.scope);
    let session = session.and_then(|session| {
        session
            .shared_stream
            .clone()
            .map(|stream| (session, stream.out))
    });
    let McpRequest {
        headers,
        payload,
        principal,
        received,
        ..
    } = inbound;
    let payload = payload.map_err(|e| {
        let (id, error) = malformed_error(&e);
        LegacyRefusal { id, error }
    })?;
    let (session, out) = session.ok_or_else(|| LegacyRefusal {
        id: refusal::request_id(&payload),
        error: unknown_session(),
    })?;
    // The permit comes before any work: an immediate response needs it, and a call waits its turn
    // for one.
    let permit = match &payload {
        RpcPayload::One(RpcMessage::Request(_)) | RpcPayload::Batch(_) => {
            Some(reserve(&payload, &out).await?)
        }
        RpcPayload::One(_) => None,
    };
    let first = session.identity.revision().is_empty();
    match payload {
        RpcPayload::One(RpcMessage::Request(request))
            if &*request.method == "initialize" && first =>
        {
            let caller = initialize::read_caller(&request.params, &headers, principal, state);
            let caller = caller.map_err(|error| LegacyRefusal::for_id(&request.id, error))?;
            // From here on the session has a caller with a revision, and accepts other requests.
            session.identity.replace_caller(caller);
            initialize::count_initialize(state, None, &request.params, received);
            write_parts(
                permit,
                &initialize::initialize_result(&request, &session, &endpoint),
            );
        }
        RpcPayload::One(RpcMessage::Request(request)) if first => {
            write_parts(permit, &too_early(&request))
        }
        RpcPayload::Batch(_) if first => {
            return Err(Error::new(McpErrorKind::InvalidRequest, TOO_EARLY).into());
        }
        payload => {
            let session_request = SessionRequest {
                session,
                endpoint,
                received,
                stream: true,
                headers: &headers,
                state,
            };
            begin_messages(&session_request, payload, out, permit)?;
        }
    }
    Ok(accepted_response())
}

fn unknown_session() -> Error {
    Error::new(
        McpErrorKind::UnknownSession,
        "Session not found: it ended with its stream; open a new one",
    )
}

const TOO_EARLY: &str = "Invalid request: a client starts with initialize";

fn too_early(request: &RpcRequest) -> Vec<Bytes> {
    vec![encode::encode_error(
        Some(&request.id),
        &Error::new(McpErrorKind::InvalidRequest, TOO_EARLY),
    )]
}

/// Reserves a permit in the client's stream.
///
/// A client that does not read gets no further responses, since each of them would have to be kept.
async fn reserve(
    payload: &RpcPayload,
    out: &mpsc::Sender<Bytes>,
) -> Result<StreamPermit, LegacyRefusal> {
    match tokio::time::timeout(PERMIT_TIME, out.clone().reserve_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) => Err(LegacyRefusal {
            id: refusal::request_id(payload),
            error: unknown_session(),
        }),
        Err(_) => {
            let message =
                "The client does not read its event stream; nothing more is answered until it does";
            Err(LegacyRefusal {
                id: refusal::request_id(payload),
                error: Error::new(McpErrorKind::Overloaded, message),
            })
        }
    }
}

/// Starts the requests of a body. Their responses go to the stream.
fn begin_messages(
    session_request: &SessionRequest<'_>,
    payload: RpcPayload,
    out: mpsc::Sender<Bytes>,
    permit: Option<StreamPermit>,
) -> Result<(), LegacyRefusal> {
    match payload {
        RpcPayload::One(RpcMessage::Request(request)) => match session_request.start(request, true)
        {
            LegacyStarted::Ready(parts) => write_parts(permit, &parts),
            LegacyStarted::Running(exchange, encoder) => {
                drop(tokio::spawn(respond::forward(exchange, *encoder, out)))
            }
        },
        RpcPayload::One(other) => session_request.accept(other),
        RpcPayload::Batch(items) => {
            if let Some(answers) = session_request.start_batch(items)? {
                // The task holds its permit, so that no more tasks than permits can wait.
                tokio::spawn(async move { write_parts(permit, &collect_array(answers).await) });
            }
        }
    }
    Ok(())
}

/// Writes a finished response.
fn write_parts(permit: Option<StreamPermit>, parts: &[Bytes]) {
    if let Some(permit) = permit {
        permit.send(sse::encode_event(&parts.concat()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::{ByteString, JsonObject};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_closed() {
        let (out, mut stream) = mpsc::channel(EVENTS_MAX);
        let request = RpcRequest {
            id: RequestId::number(7),
            method: ByteString::literal("ping"),
            params: JsonObject::new(),
        };
        let ping = RpcPayload::One(RpcMessage::Request(request));
        for _ in 0..EVENTS_MAX {
            write_parts(
                reserve(&ping, &out).await.ok(),
                &[Bytes::from_static(b"{}")],
            );
        }
        let refusal = reserve(&ping, &out)
            .await
            .expect_err("a place that is not there");
        assert_eq!(refusal.error.kind, McpErrorKind::Overloaded);
        assert_eq!(refusal.id, Some(RequestId::number(7)));
        // A client that reads late gets its events, and a permit becomes free.
        let (next, read) = tokio::join!(reserve(&ping, &out), stream.recv());
        assert!(next.is_ok() && read.is_some_and(|event| event.ends_with(b"data: {}\n\n")));
        drop((next, stream));
        assert_eq!(
            reserve(&ping, &out)
                .await
                .err()
                .map(|refusal| refusal.error.kind),
            Some(McpErrorKind::UnknownSession)
        );
    }
}
