//! MCP endpoints over HTTP. Owns the way from a request to the dialect that answers it: key, admission, body.
//!
//! Does not read messages (`revision`) or check origins (`origin.rs`). Invariant: a body is read within its limits of
//! size and time, and for a known key only. The exception is a body of at most 64 KiB on the fast path, which is read
//! before the key is checked.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body as AxumBody;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use tokio::time::Instant;

use crate::endpoint_path::endpoint_name;
use crate::{PeerAddress, ServerState, SharedServerState, SlotRequest, json, not_found, small_response};
use moongate_access::auth::AuthError;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RpcMessage, RpcPayload};
use moongate_model::{Error, McpErrorKind, Principal, Server};
use moongate_protocol::body::Body;
use moongate_protocol::lazy_timer::DeadlineElapsed;
use moongate_protocol::{BodyHint, ClientPayload, McpRequest, RequestHead};
use moongate_telemetry::{AuthOutcome, Limit, Metrics};

/// Maximum size of a body that is read even over the memory limit, in bytes.
const SMALL_BODY_MAX: u64 = 64 * 1024;

/// Serves `/mcp`.
pub(super) async fn all_servers(State(fronts): State<SharedServerState>, request: Request) -> Response {
    serve_route(&fronts, "", request, None).await
}

/// Serves `/mcp/{view}` and `/mcp/{server}`.
pub(super) async fn one_endpoint(
    State(fronts): State<SharedServerState>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    match name.is_empty() {
        // Two slashes: the router finds an empty name between them.
        true => not_found().await,
        false => serve_route(&fronts, &name, request, None).await,
    }
}

/// Serves `/sse`.
pub(super) async fn sse_all_servers(State(fronts): State<SharedServerState>, request: Request) -> Response {
    serve_route(&fronts, "", request, Some(moongate_protocol::http_sse_dialect())).await
}

/// Serves `/sse/{view}` and `/sse/{server}`.
pub(super) async fn sse_one_endpoint(
    State(fronts): State<SharedServerState>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    match name.is_empty() {
        true => not_found().await,
        false => serve_route(&fronts, &name, request, Some(moongate_protocol::http_sse_dialect())).await,
    }
}

/// Answers a request in the given dialect, or in the one that the request is written in.
async fn serve_route(
    fronts: &SharedServerState,
    name: &str,
    request: Request,
    dialect: Option<&'static dyn moongate_protocol::Dialect>,
) -> Response {
    let (received, front) = (Instant::now(), fronts.load_full());
    let (mut head, body) = request.into_parts();
    let place = head.extensions.remove::<Arc<SlotRequest>>();
    let peer = head.extensions.get::<PeerAddress>().copied();
    let principal = front.keys.authenticate(&head.headers);
    if let (Ok(_), Some(place)) = (&principal, place) {
        place.admit();
    }
    let arrived = AuthenticatedRequest { principal, head, peer, received };
    let serving = handle(&front, name, arrived, read(&front, body), dialect);
    catch_panic(&front.downstream.metrics, serving).await.map(AxumBody::new)
}

/// Answers a request to an endpoint whose body has arrived. The work before the first wait is done at once: a future
/// of it would be moved from one layer to the next, and that is a copy of a kilobyte for each of them.
pub(super) fn serve_buffered<'a>(
    front: &'a ServerState,
    head: Parts,
    body: Bytes,
    principal: Result<Arc<Principal>, AuthError>,
    peer: Option<PeerAddress>,
    received: Instant,
) -> impl Future<Output = http::Response<Body>> + Send + use<'a> {
    let metrics: &Metrics = &front.downstream.metrics;
    let start = || {
        let path = head.uri.path_and_query().cloned();
        let name = path.as_ref().and_then(|path| endpoint_name(path.path())).unwrap_or_default();
        let arrived = AuthenticatedRequest { principal, head, peer, received };
        let is_small = u64::try_from(body.len()).is_ok_and(|length| length <= SMALL_BODY_MAX);
        let endpoint = match admit_head(front, name, &arrived, (is_small, None)) {
            Ok(endpoint) => endpoint,
            Err(response) => return ready(*response),
        };
        let body = if body.len() > front.limits.body { Err(too_large(front)) } else { Ok(body) };
        start_message(front, name, arrived, body, (endpoint, None))
    };
    catch_panic(metrics, start_caught(metrics, start))
}

/// Confines a panic before the first wait to its request.
fn start_caught<'a>(
    metrics: &Metrics,
    start: impl FnOnce() -> BoxFuture<'a, http::Response<Body>>,
) -> BoxFuture<'a, http::Response<Body>> {
    std::panic::catch_unwind(AssertUnwindSafe(start)).unwrap_or_else(|_| ready(panic_response(metrics)))
}

fn ready<'a>(response: http::Response<Body>) -> BoxFuture<'a, http::Response<Body>> {
    std::future::ready(response).boxed()
}

/// Request head after authentication.
struct AuthenticatedRequest {
    principal: Result<Arc<Principal>, AuthError>,
    head: Parts,
    peer: Option<PeerAddress>,
    received: Instant,
}

/// Confines a panic to its request. The next user takes over any lock it held. The connection and all other requests go
/// on.
async fn catch_panic(metrics: &Metrics, work: impl Future<Output = http::Response<Body>>) -> http::Response<Body> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| panic_response(metrics))
}

fn panic_response(metrics: &Metrics) -> http::Response<Body> {
    metrics.calls.panics.inc();
    tracing::error!("a request failed by a mistake in the gateway; it was answered with an internal error");
    // Nothing of the request survives the panic: the dialect is a guess, and the error has no id.
    let head = RequestHead { method: &Method::POST, headers: &http::HeaderMap::new() };
    let dialect = moongate_protocol::select_dialect(&head, &BodyHint { message: None });
    let mut response = dialect.error_response(None, &Error::internal("The gateway failed; this is a mistake in it"));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

async fn handle(
    front: &ServerState,
    name: &str,
    arrived: AuthenticatedRequest,
    body: impl Future<Output = Result<Bytes, Error>> + Send,
    dialect: Option<&'static dyn moongate_protocol::Dialect>,
) -> http::Response<Body> {
    let endpoint = match admit_head(front, name, &arrived, (is_small(&arrived.head), dialect)) {
        Ok(endpoint) => endpoint,
        Err(response) => return *response,
    };
    let body = body.await;
    start_message(front, name, arrived, body, (endpoint, dialect)).await
}

/// Endpoint that serves a request, and the principal of the request.
type AdmittedEndpoint = (Arc<dyn Server>, Arc<Principal>);

/// Finds the endpoint of a request by its head alone. Fails with the response if the request goes no further.
fn admit_head(
    front: &ServerState,
    name: &str,
    arrived: &AuthenticatedRequest,
    (is_small, dialect): (bool, Option<&'static dyn moongate_protocol::Dialect>),
) -> Result<AdmittedEndpoint, Box<http::Response<Body>>> {
    let AuthenticatedRequest { principal, head, peer, .. } = arrived;
    let principal = principal.as_ref().map_err(|denied| {
        front.refused_keys.log(peer.map(|PeerAddress(address)| address), denied);
        Box::new(unauthorized(front, denied))
    })?;
    front.downstream.metrics.access.auth_accepted.inc();
    // No other key learns whether the endpoint exists: unknown and forbidden names get the same response.
    let Some(server) = front.endpoints.find_endpoint(name, principal) else {
        let message = "There is no such server or view";
        return Err(Box::new(small_response(StatusCode::NOT_FOUND, "not_found", message)));
    };
    if !is_small && let Err(closed) = front.admission.check_memory() {
        // Checked before the body is read: a body takes memory, too.
        let dialect = dialect.unwrap_or_else(|| detect_dialect(head, None));
        let response = dialect.error_response(None, &closed.error);
        return Err(Box::new(closed.apply_to(response, &front.downstream.metrics)));
    }
    Ok((server, principal.clone()))
}

/// Starts to answer a request whose body was read, or could not be.
fn start_message<'a>(
    front: &'a ServerState,
    name: &str,
    arrived: AuthenticatedRequest,
    body: Result<Bytes, Error>,
    (endpoint, dialect): (AdmittedEndpoint, Option<&'static dyn moongate_protocol::Dialect>),
) -> BoxFuture<'a, http::Response<Body>> {
    let (AuthenticatedRequest { head, received, .. }, (server, principal)) = (arrived, endpoint);
    let payload = match body {
        Ok(bytes) => RpcPayload::parse_from_client(&bytes, front.limits.batch),
        Err(error) => {
            // The body is unread here, so the dialect is chosen by the head alone.
            let dialect = dialect.unwrap_or_else(|| detect_dialect(&head, None));
            return ready(dialect.error_response(None, &error));
        }
    };
    let dialect = dialect.unwrap_or_else(|| detect_dialect(&head, single_message(&payload)));
    let admitted = match front.admit(&principal, payload) {
        Ok(admitted) => admitted,
        Err(refused) => {
            let (payload, rejection) = *refused;
            let id = single_message(&payload).and_then(RpcMessage::id);
            let response = dialect.error_response(id, &rejection.error);
            return ready(rejection.apply_to(response, &front.downstream.metrics));
        }
    };
    let Parts { method, uri, headers, .. } = head;
    let scope = ByteString::from(name);
    let request = admitted.map(|payload| McpRequest { method, uri, headers, payload, principal, scope, received });
    dialect.serve(request, server, &front.downstream)
}

fn single_message(payload: &ClientPayload) -> Option<&RpcMessage> {
    match payload {
        Ok(RpcPayload::One(message)) => Some(message),
        _ => None,
    }
}

fn detect_dialect(head: &Parts, message: Option<&RpcMessage>) -> &'static dyn moongate_protocol::Dialect {
    moongate_protocol::select_dialect(
        &RequestHead { method: &head.method, headers: &head.headers },
        &BodyHint { message },
    )
}

/// True if a request costs next to nothing to read. A response, a cancellation or a DELETE ends something, so it is
/// accepted even over the memory limit.
fn is_small(head: &Parts) -> bool {
    let length = head.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    match head.method {
        Method::DELETE => true,
        Method::POST => length.is_some_and(|length| length <= SMALL_BODY_MAX),
        _ => false,
    }
}

/// Reads the body within its limits.
async fn read(front: &ServerState, body: AxumBody) -> Result<Bytes, Error> {
    let reading = Limited::new(body, front.limits.body).collect();
    let until = Instant::now() + front.limits.read_timeout;
    match front.downstream.timers.timeout_at(until, reading).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => Err(too_large(front)),
        Ok(Err(_)) => Err(Error::new(McpErrorKind::InvalidRequest, "The body broke off")),
        Err(DeadlineElapsed) => Err(body_timed_out(front)),
    }
}

fn body_timed_out(front: &ServerState) -> Error {
    front.downstream.metrics.calls.refused.inc(Limit::ReadTimeout);
    let limit = front.limits.read_timeout;
    Error::new(McpErrorKind::InvalidRequest, format!("The body took longer than {limit:?} (limits.read_timeout)"))
}

/// Answers a request whose body did not arrive in time.
pub(super) fn refuse_timed_out(front: &ServerState, head: &Parts) -> http::Response<Body> {
    let dialect = moongate_protocol::select_dialect(
        &RequestHead { method: &head.method, headers: &head.headers },
        &BodyHint { message: None },
    );
    dialect.error_response(None, &body_timed_out(front))
}

fn too_large(front: &ServerState) -> Error {
    front.downstream.metrics.calls.refused.inc(Limit::Body);
    Error::new(McpErrorKind::TooLarge, format!("The body is larger than {} bytes (limits.body)", front.limits.body))
}

/// Answers 401. Without `resource_metadata`, so that no client looks for OAuth.
fn unauthorized(front: &ServerState, denied: &AuthError) -> http::Response<Body> {
    let (outcome, challenge) = match denied {
        AuthError::Missing => (AuthOutcome::Missing, r#"Bearer realm="moongate""#),
        AuthError::Invalid(_) => (AuthOutcome::Wrong, r#"Bearer realm="moongate", error="invalid_token""#),
    };
    front.downstream.metrics.access.auth.inc(outcome);
    let message = "A valid API key is needed: Authorization: Bearer <key>";
    // A JSON-RPC error, since many clients show nothing else of a response. The `message` at the top is for all others.
    let error = serde_json::json!({
        "code": moongate_protocol::UNAUTHORIZED, "message": message, "data": { "error": "unauthorized" },
    });
    let body = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error, "message": message });
    let mut response = json(StatusCode::UNAUTHORIZED, &body);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered_and_counted() {
        let metrics = Metrics::new();
        let panics = async {
            tokio::task::yield_now().await;
            panic!("on purpose")
        };
        let response = catch_panic(&metrics, panics).await;
        assert_eq!((response.status(), metrics.calls.panics.get()), (StatusCode::INTERNAL_SERVER_ERROR, 1));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["error"]["code"], &body["id"]), (&(-32603).into(), &serde_json::Value::Null));
        let early = start_caught(&metrics, || panic!("on purpose")).await;
        assert_eq!((early.status(), metrics.calls.panics.get()), (StatusCode::INTERNAL_SERVER_ERROR, 2));
        let fine = catch_panic(&metrics, async { http::Response::new(Body::empty()) }).await;
        assert_eq!((fine.status(), metrics.calls.panics.get()), (StatusCode::OK, 2));
    }
}
