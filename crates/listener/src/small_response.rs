//! Responses to requests that never became MCP.
//!
//! Owns their JSON form. Does not choose them. Invariant: each has a code for programs and a
//! message for people.

use axum::body::Body as AxumBody;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

use moongate_protocol::body::Body;

/// Returns a small JSON response to a request that never became MCP.
pub fn json_response(status: StatusCode, error: &str, message: &str) -> Response {
    small_response(status, error, message).map(AxumBody::new)
}

pub(super) fn small_response(
    status: StatusCode,
    error: &str,
    message: &str,
) -> http::Response<Body> {
    json(
        status,
        &serde_json::json!({ "error": error, "message": message }),
    )
}

pub(super) fn json(status: StatusCode, body: &serde_json::Value) -> http::Response<Body> {
    let mut response = http::Response::new(Body::full(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// Returns the answer for a path without a route.
pub(super) async fn not_found() -> Response {
    json_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is nothing here; the MCP endpoint is /mcp",
    )
}
