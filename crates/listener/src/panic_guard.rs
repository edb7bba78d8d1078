//! Panics of requests: confined, counted and answered.
//!
//! Owns the response after a panic. Does not repair anything. Invariant: the connection and all
//! other requests go on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Method, StatusCode};

use moongate_model::Error;
use moongate_protocol::body::Body;
use moongate_protocol::{BodyHint, RequestHead};
use moongate_telemetry::Metrics;

/// Response in progress, or one that is complete before its request reached a dialect.
pub(super) type StartedResponse<'a> =
    Result<BoxFuture<'a, http::Response<Body>>, Box<http::Response<Body>>>;

/// Starts a response, and confines a panic before its first wait. Returns `None` after a panic.
pub(super) fn start_caught<'a>(
    start: impl FnOnce() -> StartedResponse<'a>,
) -> Option<StartedResponse<'a>> {
    catch_unwind(AssertUnwindSafe(start)).ok()
}

/// Finishes a response, and confines a panic to its request. The next user takes over any lock that
/// it held.
pub(super) async fn finish_caught(
    metrics: &Metrics,
    started: Option<StartedResponse<'_>>,
) -> http::Response<Body> {
    let response = match started {
        Some(Ok(serving)) => AssertUnwindSafe(serving).catch_unwind().await.ok(),
        Some(Err(response)) => Some(*response),
        None => None,
    };
    response.unwrap_or_else(|| panic_response(metrics))
}

fn panic_response(metrics: &Metrics) -> http::Response<Body> {
    metrics.calls.panics.inc();
    tracing::error!(
        "request failed because of a bug in the gateway; its client got an internal error"
    );
    // Nothing of the request survives the panic: the dialect is a guess, and the error has no id.
    let head = RequestHead {
        method: &Method::POST,
        headers: &http::HeaderMap::new(),
    };
    let dialect = moongate_protocol::select_dialect(&head, &BodyHint { message: None });
    let mut response = dialect.error_response(
        None,
        &Error::internal("The gateway failed; please report this as a bug"),
    );
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered_and_counted() {
        let metrics = Metrics::new();
        let panics = async {
            tokio::task::yield_now().await;
            panic!("on purpose")
        };
        let response = finish_caught(&metrics, Some(Ok(panics.boxed()))).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(metrics.calls.panics.get(), 1);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], -32603);
        assert_eq!(body["id"], serde_json::Value::Null);
        let early = finish_caught(&metrics, start_caught(|| panic!("on purpose"))).await;
        assert_eq!(early.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(metrics.calls.panics.get(), 2);
        let fine = async { http::Response::new(Body::empty()) };
        let fine = finish_caught(&metrics, start_caught(|| Ok(fine.boxed()))).await;
        assert_eq!(fine.status(), StatusCode::OK);
        assert_eq!(metrics.calls.panics.get(), 2);
    }
}
