//! The listener that clients connect to.
//!
//! Owns routes, their order, and what is answered before anything is MCP. Does not read messages (`revision`).
//! Invariant: Host and Origin are checked before credentials, credentials before a body is read that is larger than what
//! comes along with a head (`short`).

mod address;
mod gate;
mod guard;
mod inherited;
mod lines;
mod listen;
mod mcp;
mod not_after;
mod patience;
mod pipe;
mod places;
mod refused_keys;
mod service;
mod short;
mod socket;
mod tls;
mod unread;
mod write_timeout;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body as AxumBody;
use axum::middleware;
use axum::response::Response;
use axum::routing::any;
use http::{HeaderValue, StatusCode, header};

use crate::auth::KeyRing;
use crate::body::Body;
use crate::gateway::Endpoints;
use crate::json::Text;
use crate::revision::FrontState;

pub use address::{INHERITED, ListenAddress, TCP_LINES, UNIX};
pub use gate::{Gate, GateSettings};
pub use guard::HostRules;
pub(crate) use guard::{has_several_hosts, hosts};
pub use inherited::Inherited;
pub use listen::{ListenSettings, Listener, converse};
pub use pipe::PipeFront;
pub use places::ConnectionPlaces;
pub(crate) use places::PlaceUse;
pub use refused_keys::RefusedKeys;
pub use service::{Peer, Service};
pub use socket::SocketSettings;
pub use tls::{Tls, TlsProblem, TlsSettings};
pub use unread::Unread;

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
    /// Drops answers that nobody reads.
    pub unread: Arc<Unread>,
    /// Logs keys that open nothing.
    pub refused_keys: Arc<RefusedKeys>,
}

/// What answers clients now; replaced as a whole.
pub type Fronts = Arc<ArcSwap<Front>>;

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

impl Front {
    /// A client on a pipe that uses this endpoint (empty: the one over everything), with these credentials. `drain`: how
    /// long its calls may go on when the gateway stops.
    pub fn pipe(
        self: &Arc<Self>,
        endpoint: &str,
        credentials: &http::HeaderMap,
        drain: Duration,
    ) -> Result<PipeFront, NoPipe> {
        let principal = self.keys.authenticate(credentials).map_err(|_| NoPipe::Credentials)?;
        let server = self.endpoints.find(endpoint, &principal).ok_or(NoPipe::Endpoint)?;
        let scope = Text::from(endpoint);
        Ok(PipeFront { front: self.clone(), principal, server, scope, drain, network: None })
    }
}

/// Why a client on a pipe gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPipe {
    /// Its credentials are wrong.
    Credentials,
    /// There is no such endpoint, or not for it.
    Endpoint,
}

/// The routes of the MCP listener; `local`: connections cannot come from a browser, whatever they call the host.
pub fn router(fronts: Fronts, local: bool) -> Router {
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
        .layer(middleware::from_fn_with_state((fronts.clone(), local), guard::check))
        .with_state(fronts)
}

/// A small JSON body, for what never became MCP.
pub(crate) fn plain(status: StatusCode, error: &str, message: &str) -> Response {
    small(status, error, message).map(AxumBody::new)
}

fn small(status: StatusCode, error: &str, message: &str) -> http::Response<Body> {
    json(status, &serde_json::json!({ "error": error, "message": message }))
}

fn json(status: StatusCode, body: &serde_json::Value) -> http::Response<Body> {
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
