//! Route `/register`.
//!
//! Owns the order of its steps: rate, readiness, body. Does not read a registration
//! (`client_registration.rs`). Invariant: nothing is stored, however many clients register.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;

use crate::broker::Broker;
use crate::client_registration::RegisteredClient;
use crate::oauth_error::{OAuthCode, OAuthError, json_reply};
use crate::request_rates::RatedRoute;

/// Maximum size of a registration, in bytes.
const BODY_MAX: usize = 4 * 1024;
/// Longest wait for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the keys of the previous process.
const READY_PATIENCE: Duration = Duration::from_secs(2);

/// Error for too many requests.
const TOO_MANY: OAuthError = OAuthError::new(
    OAuthCode::SlowDown,
    "Too many registrations: try again in a minute",
);
/// Error while the keys are not loaded yet.
const NOT_READY: OAuthError = OAuthError::new(
    OAuthCode::TemporarilyUnavailable,
    "Logins have not been loaded yet: try again later",
);
/// Error for a body that is too large or does not arrive.
const TOO_LARGE: OAuthError = OAuthError::new(
    OAuthCode::InvalidClientMetadata,
    "A registration may have at most 4 KiB",
);

/// Answers `POST /register`.
pub(crate) async fn register(State(broker): State<Arc<Broker>>, request: Request) -> Response {
    match register_from(&broker, request).await {
        Ok(client) => json_reply(StatusCode::CREATED, &client),
        Err(error) => error.response(),
    }
}

async fn register_from(broker: &Broker, request: Request) -> Result<RegisteredClient, OAuthError> {
    let peer = broker.peer_of(&request);
    if !broker.rates.admit(RatedRoute::Register, peer) {
        return Err(TOO_MANY);
    }
    if !broker.store.ready(READY_PATIENCE).await {
        return Err(NOT_READY);
    }
    let reading = to_bytes(request.into_body(), BODY_MAX);
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    let Ok(Ok(body)) = read else {
        return Err(TOO_LARGE);
    };
    broker.clients.register(&body)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use crate::test_broker::TestBroker;

    use super::*;

    async fn post(test: &TestBroker, body: Vec<u8>) -> (StatusCode, String) {
        let request = Request::post("/register").body(Body::from(body)).unwrap();
        let response = register(State(test.broker.clone()), request).await;
        let status = response.status();
        assert_eq!(response.headers()["cache-control"], "no-store");
        let body = to_bytes(response.into_body(), 8192).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_registration_is_small_and_its_errors_are_those_of_oauth() {
        let test = TestBroker::in_memory();
        for (body, error) in [
            (vec![b' '; BODY_MAX + 1], "invalid_client_metadata"),
            (b"<html>".to_vec(), "invalid_client_metadata"),
            (b"{}".to_vec(), "invalid_redirect_uri"),
        ] {
            let (status, answer) = post(&test, body).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
            assert!(answer.contains(error), "{answer}");
        }
        let body = br#"{"redirect_uris":["http://127.0.0.1/cb"],"client_name":"shape"}"#;
        let (status, answer) = post(&test, body.to_vec()).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        assert!(answer.contains(r#""client_id":"mgc_"#), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_refused() {
        let test = TestBroker::in_memory();
        let mut last = StatusCode::OK;
        for _ in 0..31 {
            last = post(&test, b"{}".to_vec()).await.0;
        }
        assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_without_its_keys_says_try_again() {
        let test = TestBroker::not_restored();
        let (status, answer) = post(&test, b"{}".to_vec()).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    }
}
