//! JSON bodies of requests, within limits of size and time.
//!
//! Owns their reading. Does not know what they say. Invariant: a body that a plain form of another page could send is
//! refused, since its type is not JSON.

use std::time::Duration;

use axum::body::Body as AxumBody;
use axum::extract::{FromRequest, Request};
use axum::response::Response;
use http::{StatusCode, header};
use serde::de::DeserializeOwned;

use moongate_server::json_response;

/// Size of the largest body, in bytes. A pasted config may be long.
const BODY_MAX: usize = 256 * 1024;
/// Time in which a body must be there.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Body that was read and parsed.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
            let message = "Send the body as Content-Type: application/json";
            return Err(json_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
        }
        let bytes = read(request.into_body()).await?;
        serde_json::from_slice(&bytes).map(JsonBody).map_err(|error| {
            let message = format!("The body is not as it should be: {error}");
            json_response(StatusCode::BAD_REQUEST, "bad_body", &message)
        })
    }
}

async fn read(body: AxumBody) -> Result<axum::body::Bytes, Response> {
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, BODY_MAX)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let message = format!("The body broke off, or is larger than {} KiB", BODY_MAX / 1024);
            Err(json_response(StatusCode::PAYLOAD_TOO_LARGE, "bad_body", &message))
        }
        Err(_) => Err(json_response(StatusCode::REQUEST_TIMEOUT, "timeout", "The body took too long")),
    }
}
