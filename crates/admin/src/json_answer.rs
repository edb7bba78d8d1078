//! JSON responses.
//!
//! Owns their serialization, and the report of an action that is done. Does not know what others
//! contain. Invariant: the only header set here is the JSON content type.

use axum::body::Body as AxumBody;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use moongate_api::ActionReport;
use serde::Serialize;

/// Answers that an action on the object with this id is done.
pub(super) fn action_done(outcome: &str, id: String) -> Response {
    let report = ActionReport {
        outcome: outcome.to_owned(),
        id,
    };
    json(StatusCode::OK, &report)
}

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
