//! The listener that clients connect to.
//!
//! Owns routes, their order, and what is answered before anything is MCP. Does not read messages (`revision`).
//! Invariant: Host and Origin are checked before credentials, credentials before the body is read.

mod gate;
mod guard;
mod listen;
mod mcp;
mod patience;
mod service;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::middleware;
use axum::response::Response;
use axum::routing::any;
use http::{HeaderValue, StatusCode, header};

use crate::auth::KeyRing;
use crate::body::Body;
use crate::gateway::Endpoints;
use crate::revision::FrontState;

pub use gate::{Gate, GateSettings};
pub use guard::HostRules;
pub use listen::{ListenSettings, Listener};
pub use service::Service;

/// What the front needs to answer clients.
pub struct Front {
    /// What clients can connect to.
    pub endpoints: Endpoints,
    /// Who may come in.
    pub keys: KeyRing,
    /// What the revisions need.
    pub state: Arc<FrontState>,
    /// Hosts and origins.
    pub hosts: HostRules,
    /// Limits of a request.
    pub limits: RequestLimits,
    /// What may be started.
    pub gate: Gate,
}

/// Limits of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestLimits {
    /// Largest body, in bytes.
    pub body: usize,
    /// Longest time to receive a body.
    pub read_timeout: Duration,
    /// Messages in one batch.
    pub batch: usize,
}

/// The routes of the MCP listener.
pub fn router(front: Arc<Front>) -> Router {
    // Whatever a client may try that only has a meaning where OAuth is spoken: a clear "no", as JSON, since clients
    // parse it; anything else is taken as a sign that there is something to log in to.
    let no_oauth = ["/.well-known/{*path}", "/mcp/.well-known/{*path}", "/register", "/authorize", "/token"];
    let mut router = Router::new()
        .route("/mcp", any(mcp::over_everything))
        .route("/mcp/", any(mcp::over_everything))
        .route("/mcp/{name}", any(mcp::over_one))
        .route("/mcp/{name}/", any(mcp::over_one))
        .route("/sse", any(mcp::sse_over_everything))
        .route("/sse/", any(mcp::sse_over_everything))
        .route("/sse/{name}", any(mcp::sse_over_one))
        .route("/sse/{name}/", any(mcp::sse_over_one));
    for path in no_oauth {
        router = router.route(path, any(no_oauth_here));
    }
    router
        .route("/healthz", any(alive))
        .route("/livez", any(alive))
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(front.clone(), guard::check))
        .with_state(front)
}

/// A small JSON body, for what never became MCP.
pub(crate) fn plain(status: StatusCode, error: &str, message: &str) -> Response {
    small(status, error, message).map(AxumBody::new)
}

fn small(status: StatusCode, error: &str, message: &str) -> http::Response<Body> {
    let body = serde_json::json!({ "error": error, "message": message });
    let mut response = http::Response::new(Body::full(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn no_oauth_here() -> Response {
    plain(
        StatusCode::NOT_FOUND,
        "not_found",
        "This server has no OAuth; if it asks for a key, send it as Authorization: Bearer",
    )
}

async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "not_found", "There is nothing here; the MCP endpoint is /mcp")
}

async fn alive() -> Response {
    plain(StatusCode::OK, "none", "alive")
}
