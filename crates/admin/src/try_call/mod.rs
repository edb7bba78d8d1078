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
use tokio_util::sync::CancellationToken;

use crate::admin_state::AdminState;
use crate::json_answer::json;
use crate::json_body::read_json;
use crate::key_check::AccessGrant;
use crate::operator_check::Operator;
use moongate_api::ActionReport;
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_listener::json_response;
use moongate_model::{
    Call, Caller, ClientCapabilities, LogFilter, LogLevel, McpMethod, McpServer, Principal,
};

use running::TryAnswer;

/// Longest body of a request, in bytes.
const BODY_MAX: usize = 1 << 20;

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
    let (Some(server), Some(tool)) = (body.get_string("server"), body.get_string("tool")) else {
        return bad_request("`server` and `tool` must be strings");
    };
    let arguments = body
        .get("arguments")
        .cloned()
        .unwrap_or_else(|| JsonObject::new().to_raw());
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
    let params = JsonObject::new()
        .with("name", RawJson::string(&tool))
        .with("arguments", arguments);
    let call = Call {
        progress: true,
        ..Call::new(McpMethod::CallTool, params)
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
    let body = match read_object(&admin, request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let action = body.get_string("action");
    let action = match action.as_deref() {
        Some("accept") => "accept",
        Some("decline") => "decline",
        Some("cancel") => "cancel",
        _ => return bad_request("`action` must be accept, decline or cancel"),
    };
    let mut result = JsonObject::new().with("action", RawJson::string(action));
    // Only with `accept`: people may have typed a secret before they decline.
    if let Some(content) = body.get("content").filter(|_| action == "accept") {
        if !content.is_object() {
            return bad_request("`content` must be an object");
        }
        result.set("content", content.clone());
    }
    let ask = body.get_string("ask");
    if ask.is_some_and(|ask| {
        admin
            .operator_calls
            .answer(&id, TryAnswer { ask: &ask, result })
    }) {
        return json(
            StatusCode::OK,
            &ActionReport {
                outcome: "answered".to_owned(),
                id,
            },
        );
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
        return json(
            StatusCode::OK,
            &ActionReport {
                outcome: "cancelled".to_owned(),
                id,
            },
        );
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
        declared_capabilities: RawJson::literal(r#"{"elicitation":{"form":{},"url":{}}}"#),
        capabilities: ClientCapabilities {
            elicit_form: true,
            elicit_url: true,
            ..ClientCapabilities::default()
        },
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
