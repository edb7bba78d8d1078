//! The MCP endpoints: from an HTTP request to the front of its revision.

use std::sync::Arc;

use axum::BoxError;
use axum::body::Body as AxumBody;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use tokio::time::Instant;

use crate::auth::Denied;
use crate::body::Body;
use crate::front::patience::within;
use crate::front::{BATCH_MAX, Front, small};
use crate::json::Text;
use crate::jsonrpc::Payload;
use crate::model::{Error, Principal, Reason};
use crate::revision::{self, Head, Inbound, Peek};

/// `/mcp`.
pub(super) async fn over_everything(State(front): State<Arc<Front>>, request: Request) -> Response {
    serve(&front, "", request).await.map(AxumBody::new)
}

/// `/mcp/{view}` and `/mcp/{server}`.
pub(super) async fn over_one(State(front): State<Arc<Front>>, Path(name): Path<String>, request: Request) -> Response {
    serve(&front, &name, request).await.map(AxumBody::new)
}

/// `/sse`.
pub(super) async fn sse_over_everything(State(front): State<Arc<Front>>, request: Request) -> Response {
    serve_as(&front, "", request, Some(revision::http_sse())).await.map(AxumBody::new)
}

/// `/sse/{view}` and `/sse/{server}`.
pub(super) async fn sse_over_one(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    serve_as(&front, &name, request, Some(revision::http_sse())).await.map(AxumBody::new)
}

/// Answers a request to an endpoint.
pub(super) async fn serve<B>(front: &Front, name: &str, request: http::Request<B>) -> http::Response<Body>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    serve_as(front, name, request, None).await
}

/// Answers a request in one dialect, or in the one that it is spelled in.
async fn serve_as<B>(
    front: &Front,
    name: &str,
    request: http::Request<B>,
    dialect: Option<&'static dyn revision::Front>,
) -> http::Response<Body>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let received = Instant::now();
    let principal = match front.keys.authenticate(request.headers()) {
        Ok(principal) => principal,
        Err(denied) => return unauthorized(front, denied),
    };
    front.state.metrics.auth_accepted.inc();
    let Some(server) = front.endpoints.find(name, &principal) else {
        return small(StatusCode::NOT_FOUND, "not_found", "There is no such server or view");
    };
    let (head, body) = request.into_parts();
    let payload = match read(front, body).await {
        Ok(bytes) => Payload::parse(&bytes, BATCH_MAX),
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
    let starts = matches!(&payload, Ok(Payload::One(crate::jsonrpc::Message::Request(_)) | Payload::Batch(_)));
    if starts && front.state.metrics.inflight.get() >= i64::try_from(front.limits.calls).unwrap_or(i64::MAX) {
        front.state.metrics.refused.with_label_values(&["calls"]).inc();
        let id = message.and_then(|m| m.id());
        let error = Error::new(
            Reason::Overloaded,
            format!("There are {} calls at once, and no more are allowed (limits.calls)", front.limits.calls),
        );
        let mut response = dialect.refuse(id, &error);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    }
    let inbound = inbound(head, payload, principal, name, received);
    dialect.serve(inbound, server, &front.state).await
}

fn inbound(
    head: http::request::Parts,
    payload: Result<Payload, crate::jsonrpc::Malformed>,
    principal: Arc<Principal>,
    name: &str,
    received: Instant,
) -> Inbound {
    let http::request::Parts { method, uri, headers, .. } = head;
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
        Some(Err(e)) if e.is::<http_body_util::LengthLimitError>() => {
            front.state.metrics.refused.with_label_values(&["body"]).inc();
            Err(Error::new(Reason::TooLarge, format!("The body is larger than {limit} bytes (limits.body)")))
        }
        Some(Err(_)) => Err(Error::new(Reason::InvalidRequest, "The body broke off")),
        None => {
            front.state.metrics.refused.with_label_values(&["read_timeout"]).inc();
            Err(Error::new(
                Reason::InvalidRequest,
                format!("The body took longer than {:?} (limits.read_timeout)", front.limits.read_timeout),
            ))
        }
    }
}

/// 401, in a way that makes no client look for OAuth: no `resource_metadata`.
fn unauthorized(front: &Front, denied: Denied) -> http::Response<Body> {
    let (outcome, challenge) = match denied {
        Denied::Missing => ("missing", r#"Bearer realm="moongate""#),
        Denied::Wrong => ("wrong", r#"Bearer realm="moongate", error="invalid_token""#),
    };
    front.state.metrics.auth.with_label_values(&[outcome]).inc();
    let mut response =
        small(StatusCode::UNAUTHORIZED, "unauthorized", "A valid API key is needed: Authorization: Bearer <key>");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}
