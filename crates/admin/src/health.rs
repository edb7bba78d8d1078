//! Handlers for metrics, health and readiness.
//!
//! Owns their responses. Does not decide who may read the metrics (`key_check.rs`). Invariant: no
//! response depends on a server.

use std::sync::Arc;

use axum::body::Body as AxumBody;
use axum::extract::State as Shared;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

use crate::admin_state::AdminState;
use crate::json_answer::json;
use moongate_api::HealthMessage;
use moongate_listener::json_response;

/// Handles `GET /metrics`.
pub(super) async fn metrics(Shared(admin): Shared<Arc<AdminState>>) -> Response {
    let mut response = Response::new(AxumBody::from(admin.metrics.render()));
    // Text exposition format 0.0.4 of Prometheus.
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// Handles `GET /healthz` and `GET /livez`.
pub(super) async fn alive() -> Response {
    json(
        StatusCode::OK,
        &HealthMessage {
            message: "alive".to_owned(),
        },
    )
}

/// Handles `GET /readyz`.
pub(super) async fn ready(Shared(admin): Shared<Arc<AdminState>>) -> Response {
    // Not ready while draining, so that a load balancer sends no further clients.
    if admin.draining.is_cancelled() {
        return json_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "draining",
            "The gateway is about to stop",
        );
    }
    json(
        StatusCode::OK,
        &HealthMessage {
            message: "ready".to_owned(),
        },
    )
}
