//! Listener for MCP clients. Owns the routes, their order, and what is answered before a request is MCP.
//!
//! Does not decode messages (`moongate-protocol`). Invariant: Host and Origin are checked before credentials.
//! Credentials are checked before a body is read, except for a body of at most 64 KiB on the fast path.

mod address;
mod admission;
mod origin;
mod systemd;
mod tcp_lines;
mod listener;
mod mcp_routes;
mod certificate_expiry;
mod endpoint_path;
mod head_limit;
mod stdio;
mod connection_limit;
mod eviction;
mod accept_failures;
mod received_bytes;
mod collect_body;
mod panic_guard;
mod refused_keys;
mod request_body;
mod request_rates;
mod serve_request;
mod service;
mod fast_path;
mod socket;
mod stalled_writes;
mod answer_holders;
mod uploads;
mod tls;
mod h2_stall;
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

use moongate_access::auth::{AuthMethods, ProvenIdentity};
use moongate_gateway::EndpointDirectory;
use moongate_jsonrpc::json::ByteString;
use moongate_protocol::DownstreamState;
use moongate_protocol::body::Body;
use moongate_telemetry::{MemoryHolder, MemoryReservation};

pub use address::{INHERITED, ListenAddress, TCP_LINES, UNIX};
pub use admission::{AdmissionControl, AdmissionSettings};
pub use collect_body::{BodyError, WireBytes, collect_body};
pub use connection_limit::ConnectionLimit;
pub use connection_limit::SlotRequest;
pub use h2_stall::StallDetector;
pub use listener::{BoundListener, ListenSettings, serve_connection};
pub use origin::HostRules;
pub use origin::{has_several_hosts, is_loopback_host, request_hosts};
pub use refused_keys::RefusedKeys;
pub use service::{ConnectionService, PeerAddress};
pub use socket::SocketSettings;
pub use stdio::StdioConnection;
pub use systemd::InheritedSockets;
pub use tls::{ListenerTls, TlsProblem, TlsSettings};

/// State that answers clients.
pub struct ListenerState {
    /// Endpoints that clients can connect to.
    pub endpoints: EndpointDirectory,
    /// Step from a client's credentials to its principal.
    pub auth: Arc<AuthMethods>,
    /// State that the dialects need.
    pub downstream: Arc<DownstreamState>,
    /// Accepted hosts and origins.
    pub hosts: HostRules,
    /// Limits of a request.
    pub limits: RequestLimits,
    /// Limits on what may be started.
    pub admission: AdmissionControl,
    /// Watch that drops HTTP/2 responses which their clients stopped reading.
    pub stall_detector: Arc<StallDetector>,
    /// Log of refused keys.
    pub refused_keys: Arc<RefusedKeys>,
}

/// Routes for people, such as those of a login.
pub type PeopleRoutes = Router;

/// Current state. A reload replaces it as a whole.
pub type SharedListenerState = Arc<ArcSwap<ListenerState>>;

/// Limits of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestLimits {
    /// Maximum size of a body, in bytes.
    pub body: usize,
    /// Maximum time to receive a body.
    pub read_timeout: Duration,
    /// Maximum number of messages in one batch.
    pub batch: usize,
}

impl ListenerState {
    /// Begins a reservation for a message of an operator at this address.
    pub fn reserve_for_operator(&self, peer: Option<PeerAddress>) -> MemoryReservation {
        self.admission.reserve(peer.map_or(MemoryHolder::Local, |PeerAddress(address)| MemoryHolder::Peer(address)))
    }

    /// Opens an endpoint for a client on a pipe. An empty name is the endpoint of all servers. `drain` is the time that
    /// its calls may take when the gateway stops.
    pub fn open_stdio(
        self: &Arc<Self>,
        endpoint: &str,
        credentials: &http::HeaderMap,
        drain: Duration,
    ) -> Result<StdioConnection, StdioRefused> {
        let identity = self.auth.authenticate(credentials, None).map_err(|_| StdioRefused::Credentials)?;
        let ProvenIdentity { principal, login, .. } = identity;
        let scope = ByteString::from(endpoint);
        let endpoint = self.endpoints.find_endpoint(endpoint, &principal).ok_or(StdioRefused::Endpoint)?;
        let login = login.unwrap_or_default();
        Ok(StdioConnection { state: self.clone(), principal, login, endpoint, scope, drain, network: None })
    }
}

/// Refusal of a client on a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdioRefused {
    /// Credentials are wrong.
    Credentials,
    /// Endpoint does not exist, or not for this principal.
    Endpoint,
}

/// Builds the routes of the MCP listener. `local` means that no browser can connect, so that any host is accepted.
pub fn router(shared_state: SharedListenerState, local: bool) -> Router {
    router_with_people(Router::new(), shared_state, local)
}

/// Builds them with routes for people. These come first, and hide any other of the same path.
pub fn router_with_people(people: PeopleRoutes, shared_state: SharedListenerState, local: bool) -> Router {
    let mcp = mcp_router().with_state(shared_state.clone());
    let all = if people.has_routes() { people.fallback_service(mcp) } else { mcp };
    // Last, since a layer covers only what stands above it. The fallback must be covered, too.
    all.layer(middleware::from_fn_with_state((shared_state, local), origin::check_origin))
}

fn mcp_router() -> Router<SharedListenerState> {
    // A clear "no" as JSON, since clients parse it. Any other answer looks to them like something to log in to.
    let no_oauth = ["/.well-known/{*path}", "/mcp/.well-known/{*path}", "/register", "/authorize", "/token"];
    let mut router = Router::new()
        .route("/mcp", any(mcp_routes::all_servers))
        // No redirect: RFC 9110, section 15.4.2, lets a client "change the request method from POST to GET".
        .route("/mcp/", any(mcp_routes::all_servers))
        .route("/mcp/{name}", any(mcp_routes::one_endpoint))
        .route("/mcp/{name}/", any(mcp_routes::one_endpoint))
        .route("/sse", any(mcp_routes::sse_all_servers))
        .route("/sse/", any(mcp_routes::sse_all_servers))
        .route("/sse/{name}", any(mcp_routes::sse_one_endpoint))
        .route("/sse/{name}/", any(mcp_routes::sse_one_endpoint));
    for path in no_oauth {
        router = router.route(path, any(no_oauth_here));
    }
    router.route("/healthz", any(alive)).route("/livez", any(alive)).fallback(not_found)
}

/// Returns a small JSON response to a request that never became MCP.
pub fn json_response(status: StatusCode, error: &str, message: &str) -> Response {
    small_response(status, error, message).map(AxumBody::new)
}

fn small_response(status: StatusCode, error: &str, message: &str) -> http::Response<Body> {
    json(status, &serde_json::json!({ "error": error, "message": message }))
}

fn json(status: StatusCode, body: &serde_json::Value) -> http::Response<Body> {
    let mut response = http::Response::new(Body::full(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn no_oauth_here() -> Response {
    json_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "This server has no OAuth; if it asks for a key, send it as Authorization: Bearer",
    )
}

async fn not_found() -> Response {
    json_response(StatusCode::NOT_FOUND, "not_found", "There is nothing here; the MCP endpoint is /mcp")
}

async fn alive() -> Response {
    json(StatusCode::OK, &serde_json::json!({ "message": "alive" })).map(AxumBody::new)
}
