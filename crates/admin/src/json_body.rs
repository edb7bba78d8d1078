//! JSON request bodies, limited in size and time.
//!
//! Owns how they are read. Does not know what they contain. Invariant: a body is read only if its
//! content type is JSON, so a plain HTML form on another page cannot send one.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use crate::admin_state::AdminState;
use moongate_listener::{
    BodyError, PeerAddress, SlotRequest, WireBytes, collect_body, json_response,
};

/// Size of the largest body, in bytes. A pasted config may be long.
const BODY_MAX: usize = 256 * 1024;
/// Time in which a body must be there.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Body that was read and parsed.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<AdminState>> for JsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, admin: &Arc<AdminState>) -> Result<Self, Response> {
        let bytes = read_json(admin, request, BODY_MAX).await?;
        serde_json::from_slice(&bytes)
            .map(JsonBody)
            .map_err(|error| {
                let message = format!("Invalid request body: {error}");
                json_response(StatusCode::BAD_REQUEST, "bad_body", &message)
            })
    }
}

/// Reads a body of at most so many bytes that says it is JSON.
pub(super) async fn read_json(
    admin: &AdminState,
    request: Request,
    bytes_max: usize,
) -> Result<Bytes, Response> {
    if media_type(request.headers()) != Some("application/json".to_owned()) {
        let message = "Send the body as Content-Type: application/json";
        return Err(json_response(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_json",
            message,
        ));
    }
    let wire = WireBytes::of(
        request.version(),
        request.extensions().get::<Arc<SlotRequest>>().cloned(),
    );
    let peer = request.extensions().get::<PeerAddress>().copied();
    let reservation = admin.listener_state.load().reserve_for_operator(peer);
    collect(
        collect_body(request.into_body(), bytes_max, wire, reservation),
        bytes_max,
    )
    .await
}

/// Waits for a body, and says what is wrong with it.
async fn collect(
    body: impl Future<Output = Result<Bytes, BodyError>>,
    bytes_max: usize,
) -> Result<Bytes, Response> {
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BodyError::MemoryExhausted(exhausted))) => {
            let message = format!("Not enough memory for the body: {exhausted}");
            Err(json_response(
                StatusCode::SERVICE_UNAVAILABLE,
                "no_memory",
                &message,
            ))
        }
        Ok(Err(_)) => {
            let message = format!(
                "The body was cut off or is larger than {} KiB",
                bytes_max / 1024
            );
            Err(json_response(
                StatusCode::PAYLOAD_TOO_LARGE,
                "bad_body",
                &message,
            ))
        }
        Err(_) => Err(json_response(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            "The body took too long to arrive",
        )),
    }
}

/// Returns the type of a body, without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers
        .get(header::CONTENT_TYPE)?
        .to_str()
        .unwrap_or_default();
    Some(
        kind.split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_is_given_up() {
        let never = collect(std::future::pending(), 10).await;
        assert_eq!(never.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[test]
    fn a_type_counts_without_its_parameters() {
        let headers = HeaderMap::from_iter([(
            header::CONTENT_TYPE,
            http::HeaderValue::from_static("Application/JSON; charset=utf-8"),
        )]);
        assert_eq!(media_type(&headers).as_deref(), Some("application/json"));
    }
}
