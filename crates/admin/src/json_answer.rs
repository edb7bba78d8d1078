//! JSON responses.
//!
//! Owns their serialization. Does not know what they contain. Invariant: the only header set here
//! is the JSON content type.

use axum::body::Body as AxumBody;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// Answers with an object.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    // Fails only for maps whose keys are not strings, and there are none.
    let mut response = Response::new(AxumBody::from(serde_json::to_vec(body).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}
