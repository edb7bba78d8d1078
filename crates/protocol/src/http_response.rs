//! Plain HTTP responses of all dialects: a JSON body, or none.
//!
//! Owns their status and media type. Does not encode messages (`encode.rs` of each era). Invariant:
//! a response that reports a limit says when to try again.

use bytes::Bytes;
use http::Response;

use crate::body::Body;

/// Builds a response with a JSON body in parts.
pub(super) fn json_response(status: u16, parts: impl IntoIterator<Item = Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Parts(parts.into_iter().collect()));
    *response.status_mut() =
        http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let json = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    if status == 503 {
        // A limit was hit. Room may be free soon, but a retry at once does not help.
        response.headers_mut().insert(
            http::header::RETRY_AFTER,
            http::HeaderValue::from_static("1"),
        );
    }
    response
}

/// Builds the response to accepted messages that need no answer.
pub(crate) fn accepted_response() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    // 2025-11-25/basic/transports.mdx, Sending Messages to the Server: "If the server accepts the
    // input, the server MUST return HTTP status code 202 Accepted with no body."
    *response.status_mut() = http::StatusCode::ACCEPTED;
    response
}
