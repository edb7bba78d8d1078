//! The MCP endpoints: from an HTTP request to the front of its revision.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::BoxError;
use axum::body::Body as AxumBody;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use tokio::time::Instant;

use crate::auth::Denied;
use crate::body::Body;
use crate::front::patience::within;
use crate::front::service::endpoint;
use crate::front::{Front, Fronts, Peer, PlaceUse, json, not_found, small};
use crate::json::Text;
use crate::jsonrpc::{Message, Payload};
use crate::model::{Error, Principal, Reason};
use crate::revision::{self, Head, Inbound, Peek};
use crate::telemetry::Metrics;

/// A body that is read even where memory is short, in bytes.
const SMALL: u64 = 64 * 1024;

/// `/mcp`.
pub(super) async fn over_everything(State(fronts): State<Fronts>, request: Request) -> Response {
    serve_route(&fronts, "", request, None).await
}

/// `/mcp/{view}` and `/mcp/{server}`.
pub(super) async fn over_one(State(fronts): State<Fronts>, Path(name): Path<String>, request: Request) -> Response {
    match name.is_empty() {
        // Two slashes: the router finds an empty name between them.
        true => not_found().await,
        false => serve_route(&fronts, &name, request, None).await,
    }
}

/// `/sse`.
pub(super) async fn sse_over_everything(State(fronts): State<Fronts>, request: Request) -> Response {
    serve_route(&fronts, "", request, Some(revision::http_sse())).await
}

/// `/sse/{view}` and `/sse/{server}`.
pub(super) async fn sse_over_one(State(fronts): State<Fronts>, Path(name): Path<String>, request: Request) -> Response {
    match name.is_empty() {
        true => not_found().await,
        false => serve_route(&fronts, &name, request, Some(revision::http_sse())).await,
    }
}

async fn serve_route(
    fronts: &Fronts,
    name: &str,
    mut request: Request,
    dialect: Option<&'static dyn revision::Front>,
) -> Response {
    let place = request.extensions_mut().remove::<Arc<PlaceUse>>();
    serve_as(&fronts.load_full(), name, request, (None, place.as_deref()), dialect).await.map(AxumBody::new)
}

/// Answers a request to an endpoint; `peer`: whose it is, where its extensions do not say so; `place`: of its connection.
pub(super) async fn serve<B>(
    front: &Front,
    name: &str,
    request: http::Request<B>,
    peer: Option<Peer>,
    place: Option<&PlaceUse>,
) -> http::Response<Body>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    serve_as(front, name, request, (peer, place), None).await
}

/// Answers a request in one dialect, or in the one that it is spelled in.
async fn serve_as<B>(
    front: &Front,
    name: &str,
    request: http::Request<B>,
    (peer, place): (Option<Peer>, Option<&PlaceUse>),
    dialect: Option<&'static dyn revision::Front>,
) -> http::Response<Body>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let received = Instant::now();
    let (head, body) = request.into_parts();
    let principal = front.keys.authenticate(&head.headers);
    if let (Ok(_), Some(place)) = (&principal, place) {
        place.admit();
    }
    let arrived = Arrived { principal, head, peer, received };
    isolated(&front.state.metrics, take(front, name, arrived, read(front, body), dialect)).await
}

/// Answers a request to an endpoint whose body is here already.
pub(super) async fn serve_whole(
    front: &Front,
    head: Parts,
    body: Bytes,
    principal: Result<Arc<Principal>, Denied>,
    peer: Option<Peer>,
    received: Instant,
) -> http::Response<Body> {
    let path = head.uri.path_and_query().cloned();
    let name = path.as_ref().and_then(|path| endpoint(path.path())).unwrap_or_default();
    let arrived = Arrived { principal, head, peer, received };
    let body = if body.len() > front.limits.body { Err(too_large(front)) } else { Ok(body) };
    isolated(&front.state.metrics, take(front, name, arrived, std::future::ready(body), None)).await
}

/// A request, without its body.
struct Arrived {
    principal: Result<Arc<Principal>, Denied>,
    head: Parts,
    peer: Option<Peer>,
    received: Instant,
}

/// A request's panic is that request's alone: whatever lock it held is taken again by the next, and its connection and
/// all others go on.
async fn isolated(metrics: &Metrics, work: impl Future<Output = http::Response<Body>>) -> http::Response<Body> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        metrics.panics.inc();
        tracing::error!("a request failed by a mistake in the gateway; it was answered with an internal error");
        let head = Head { method: &Method::POST, headers: &http::HeaderMap::new() };
        let dialect = revision::detect(&head, &Peek { message: None });
        let mut response = dialect.refuse(None, &Error::internal("The gateway failed; this is a mistake in it"));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

async fn take(
    front: &Front,
    name: &str,
    arrived: Arrived,
    body: impl Future<Output = Result<Bytes, Error>> + Send,
    dialect: Option<&'static dyn revision::Front>,
) -> http::Response<Body> {
    let Arrived { principal, head, peer, received } = arrived;
    let principal = match principal {
        Ok(principal) => principal,
        Err(denied) => {
            let peer = peer.or_else(|| head.extensions.get::<Peer>().copied());
            front.refused_keys.tell(peer.map(|Peer(address)| address), &denied);
            return unauthorized(front, &denied);
        }
    };
    front.state.metrics.auth_accepted.inc();
    let Some(server) = front.endpoints.find(name, &principal) else {
        return small(StatusCode::NOT_FOUND, "not_found", "There is no such server or view");
    };
    if !is_small(&head)
        && let Err(closed) = front.gate.memory()
    {
        // Before the body is read: it is memory, too.
        let head = Head { method: &head.method, headers: &head.headers };
        let dialect = dialect.unwrap_or_else(|| revision::detect(&head, &Peek { message: None }));
        let response = dialect.refuse(None, &closed.error);
        return closed.seal(response, &front.state.metrics);
    }
    let payload = match body.await {
        Ok(bytes) => Payload::of_client(&bytes, front.limits.batch),
        Err(error) => {
            let peek = Peek { message: None };
            let detect = || revision::detect(&Head { method: &head.method, headers: &head.headers }, &peek);
            let dialect = dialect.unwrap_or_else(detect);
            return dialect.refuse(None, &error);
        }
    };
    let message = match &payload {
        Ok(Payload::One(message)) => Some(message),
        _ => None,
    };
    let detect = || revision::detect(&Head { method: &head.method, headers: &head.headers }, &Peek { message });
    let dialect = dialect.unwrap_or_else(detect);
    // Only what starts a call: answers and cancellations are what ends them.
    let starts = payload.as_ref().map_or(0, Payload::requests);
    if starts > 0
        && let Err(closed) = front.gate.pass(&principal, starts, &front.endpoints)
    {
        let response = dialect.refuse(message.and_then(Message::id), &closed.error);
        return closed.seal(response, &front.state.metrics);
    }
    let inbound = inbound(head, payload, principal, name, received);
    dialect.serve(inbound, server, &front.state).await
}

/// Whether a request costs next to nothing to read: what ends something (an answer, a cancellation, DELETE) is taken
/// even where memory is short.
fn is_small(head: &Parts) -> bool {
    let length = head.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    match head.method {
        Method::DELETE => true,
        Method::POST => length.is_some_and(|length| length <= SMALL),
        _ => false,
    }
}

fn inbound(
    head: Parts,
    payload: Result<Payload, crate::jsonrpc::Malformed>,
    principal: Arc<Principal>,
    name: &str,
    received: Instant,
) -> Inbound {
    let Parts { method, uri, headers, .. } = head;
    Inbound { method, uri, headers, payload, principal, scope: Text::from(name), received }
}

/// Reads the body within its limits.
async fn read<B>(front: &Front, body: B) -> Result<Bytes, Error>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let limit = front.limits.body;
    let reading = Limited::new(body, limit).collect();
    match within(front.limits.read_timeout, reading).await {
        Some(Ok(collected)) => Ok(collected.to_bytes()),
        Some(Err(e)) if e.is::<http_body_util::LengthLimitError>() => Err(too_large(front)),
        Some(Err(_)) => Err(Error::new(Reason::InvalidRequest, "The body broke off")),
        None => Err(late(front)),
    }
}

fn late(front: &Front) -> Error {
    front.state.metrics.refused.with_label_values(&["read_timeout"]).inc();
    let limit = front.limits.read_timeout;
    Error::new(Reason::InvalidRequest, format!("The body took longer than {limit:?} (limits.read_timeout)"))
}

/// Answers a request whose body did not come.
pub(super) fn refuse_late(front: &Front, head: &Parts) -> http::Response<Body> {
    let dialect = revision::detect(&Head { method: &head.method, headers: &head.headers }, &Peek { message: None });
    dialect.refuse(None, &late(front))
}

fn too_large(front: &Front) -> Error {
    front.state.metrics.refused.with_label_values(&["body"]).inc();
    Error::new(Reason::TooLarge, format!("The body is larger than {} bytes (limits.body)", front.limits.body))
}

/// 401, in a way that makes no client look for OAuth: no `resource_metadata`.
fn unauthorized(front: &Front, denied: &Denied) -> http::Response<Body> {
    let (outcome, challenge) = match denied {
        Denied::Missing => ("missing", r#"Bearer realm="moongate""#),
        Denied::Wrong(_) => ("wrong", r#"Bearer realm="moongate", error="invalid_token""#),
    };
    front.state.metrics.auth.with_label_values(&[outcome]).inc();
    let message = "A valid API key is needed: Authorization: Bearer <key>";
    // A JSON-RPC error, since many clients show nothing else of an answer; `message` at the top is for all others.
    let error = serde_json::json!({
        "code": revision::UNAUTHORIZED, "message": message, "data": { "error": "unauthorized" },
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
        let response = isolated(&metrics, panics).await;
        assert_eq!((response.status(), metrics.panics.get()), (StatusCode::INTERNAL_SERVER_ERROR, 1));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["error"]["code"], &body["id"]), (&(-32603).into(), &serde_json::Value::Null));
        let fine = isolated(&metrics, async { http::Response::new(Body::empty()) }).await;
        assert_eq!((fine.status(), metrics.panics.get()), (StatusCode::OK, 1));
    }
}
