//! Calls of tools by operators: the handlers under `/api/v1/try`.
//!
//! Owns the reading of their requests, and who the caller is. Does not follow a call (`stream.rs`).
//! Invariant: a call takes the path of a client's, so the config's rules about items hold.

pub(super) mod running;
mod stream;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body as AxumBody;
use axum::extract::{Path, Request};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::admin_state::AdminState;
use crate::json_answer::action_done;
use crate::json_body::read_json;
use crate::key_check::AccessGrant;
use crate::operator_check::Operator;
use moongate_jsonrpc::json::{JsonObject, RawJson, or_default, or_null};
use moongate_listener::json_response;
use moongate_model::{
    Call, Caller, ClientCapabilities, ElicitationAction, LogFilter, LogLevel, McpServer, Principal,
};

use running::TryAnswer;

/// Longest body of a request, in bytes.
const BODY_MAX: usize = 1 << 20;

/// Body of `POST /api/v1/try`: `moongate_api::TryRequest`, with the bytes of its arguments.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StartBody {
    #[serde(deserialize_with = "or_default")]
    server: Option<String>,
    #[serde(deserialize_with = "or_default")]
    tool: Option<String>,
    #[serde(deserialize_with = "or_null")]
    arguments: Option<RawJson>,
}

/// Body of `POST /api/v1/try/{id}/answer`: `moongate_api::TryReply`, with the bytes of its content.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AnswerBody {
    #[serde(deserialize_with = "or_default")]
    ask: Option<String>,
    #[serde(deserialize_with = "or_default")]
    action: String,
    #[serde(deserialize_with = "or_null")]
    content: Option<RawJson>,
}

/// Handles `POST /api/v1/try`.
pub(super) async fn start(
    Operator(admin): Operator,
    Extension(grant): Extension<AccessGrant>,
    request: Request,
) -> Response {
    let body = match read_object(&admin, request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let StartBody {
        server: Some(server),
        tool: Some(tool),
        arguments,
    } = body.read_members()
    else {
        return bad_request("`server` and `tool` must be strings");
    };
    let arguments = arguments.unwrap_or(RawJson::literal("{}"));
    if !arguments.is_object() {
        return bad_request("`arguments` must be an object");
    }
    let Some(endpoint) = admin.gateway.operator_endpoint(&server) else {
        let message = format!("There is no enabled server {server:?}");
        return json_response(StatusCode::NOT_FOUND, "not_found", &message);
    };
    // After the other checks, so that a wrong request takes no slot.
    let Some(entry) = admin.operator_calls.enter() else {
        let message = "Four operator calls are already running; stop one or wait until one ends";
        return json_response(StatusCode::SERVICE_UNAVAILABLE, "too_many_calls", message);
    };
    let call = Call {
        progress: true,
        ..Call::for_tool(&tool, arguments)
    };
    // The stream finds the record of its own call by this instant.
    let received = call.received;
    let exchange = endpoint.call(&operator(), call);
    let mut response = Response::new(AxumBody::from_stream(stream::event_stream(
        (admin, grant),
        entry,
        exchange,
        received,
    )));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    response
}

/// Handles `POST /api/v1/try/{id}/answer`.
pub(super) async fn answer(
    Operator(admin): Operator,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let body: AnswerBody = match read_object(&admin, request).await {
        Ok(body) => body.read_members(),
        Err(refused) => return refused,
    };
    let Some(action) = ElicitationAction::from_name(&body.action) else {
        return bad_request("`action` must be accept, decline or cancel");
    };
    // Only with `accept`: people may have typed a secret before they decline.
    let content = body.content.filter(|_| action == ElicitationAction::Accept);
    if content.as_ref().is_some_and(|content| !content.is_object()) {
        return bad_request("`content` must be an object");
    }
    let result = action.result(content);
    if body.ask.is_some_and(|ask| {
        admin
            .operator_calls
            .answer(&id, TryAnswer { ask: &ask, result })
    }) {
        return action_done("answered", id);
    }
    json_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "Nobody waits for this answer; the call may have ended",
    )
}

/// Handles `DELETE /api/v1/try/{id}`.
pub(super) async fn cancel(Operator(admin): Operator, Path(id): Path<String>) -> Response {
    if admin.operator_calls.cancel(&id) {
        return action_done("cancelled", id);
    }
    json_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is no such call; it may have ended",
    )
}

/// Returns the caller of all these calls.
fn operator() -> Arc<Caller> {
    Arc::new(Caller {
        principal: Arc::new(Principal::operator()),
        session: None,
        // No sampling and no roots: the page has neither a model nor folders to offer.
        declared_capabilities: ClientCapabilities::DECLARED_ELICITATION,
        capabilities: ClientCapabilities::ELICITATION,
        client_info: Some(moongate_protocol::gateway_info()),
        log_filter: LogFilter::AtLeast(LogLevel::Debug),
        revision: moongate_protocol::SUPPORTED
            .last()
            .copied()
            .unwrap_or_default(),
        forwarded_headers: Vec::new(),
        // Never cancelled: the stream ends its call, and drops the exchange for that.
        ended: CancellationToken::new(),
        channel: None,
    })
}

/// Reads a body that must be a JSON object.
async fn read_object(admin: &AdminState, request: Request) -> Result<JsonObject, Response> {
    let body = read_json(admin, request, BODY_MAX).await?;
    parse_object(body).ok_or_else(|| bad_request("The body is not a JSON object"))
}

fn parse_object(body: Bytes) -> Option<JsonObject> {
    RawJson::parse(body).ok()?.as_object()
}

fn bad_request(message: &str) -> Response {
    json_response(StatusCode::BAD_REQUEST, "bad_request", message)
}
