//! JSON bodies of requests, within limits of size and time.
//!
//! Owns their reading. Does not know what they say. Invariant: a body that a plain form of another page could send is
//! refused, since its type is not JSON.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use moongate_server::{SlotRequest, WireBytes, collect_body, json_response};

/// Size of the largest body, in bytes. A pasted config may be long.
const BODY_MAX: usize = 256 * 1024;
/// Time in which a body must be there.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Body that was read and parsed.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        let bytes = read_json(request, BODY_MAX).await?;
        serde_json::from_slice(&bytes).map(JsonBody).map_err(|error| {
            let message = format!("The body is not as it should be: {error}");
            json_response(StatusCode::BAD_REQUEST, "bad_body", &message)
        })
    }
}

/// Reads a body of at most so many bytes that says it is JSON.
pub(super) async fn read_json(request: Request, bytes_max: usize) -> Result<Bytes, Response> {
    if media_type(request.headers()) != Some("application/json".to_owned()) {
        let message = "Send the body as Content-Type: application/json";
        return Err(json_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
    }
    let wire = WireBytes::of(request.version(), request.extensions().get::<Arc<SlotRequest>>().cloned());
    match tokio::time::timeout(BODY_TIMEOUT, collect_body(request.into_body(), bytes_max, wire)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let message = format!("The body broke off, or is larger than {} KiB", bytes_max / 1024);
            Err(json_response(StatusCode::PAYLOAD_TOO_LARGE, "bad_body", &message))
        }
        Err(_) => Err(json_response(StatusCode::REQUEST_TIMEOUT, "timeout", "The body took too long")),
    }
}

/// Returns the type of a body, without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().unwrap_or_default();
    Some(kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::body::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_is_given_up() {
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::convert::Infallible>>());
        let request = Request::builder().header("content-type", "Application/JSON; charset=utf-8").body(body).unwrap();
        assert_eq!(read_json(request, 10).await.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
    }
}
