//! Listener for MCP clients. Owns the routes, their order, and what is answered before a request is
//! MCP.
//!
//! Does not decode messages (`moongate-protocol`). Invariant: Host and Origin are checked before
//! credentials. Credentials are checked before a body is read, except for a body of at most 64 KiB
//! on the fast path.

mod address;
mod admission;
mod host_rules;
mod origin;
mod systemd;
mod trusted_proxies;
mod tcp_lines;
mod listener;
mod listener_limits;
mod listener_state;
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
mod small_response;
mod socket;
mod stalled_writes;
mod answer_holders;
mod uploads;
mod tls;
mod h2_stall;
mod write_timeout;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Request, State};
use axum::middleware;
use axum::response::Response;
use axum::routing::any;
use http::{HeaderValue, Method, StatusCode, header};

use small_response::{json, not_found};

pub use address::{INHERITED, ListenAddress, PeerAddress, TCP_LINES, UNIX};
pub use admission::{AdmissionControl, AdmissionSettings};
pub use collect_body::{BodyError, WireBytes, collect_body};
pub use connection_limit::ConnectionLimit;
pub use connection_limit::SlotRequest;
pub use h2_stall::StallDetector;
pub use host_rules::{HostRules, has_several_hosts, is_loopback_host, request_hosts};
pub use listener::{BoundListener, ListenSettings, serve_connection};
pub use listener_state::{ListenerState, RequestLimits, SharedListenerState};
pub use refused_keys::RefusedKeys;
pub use service::ConnectionService;
pub use small_response::json_response;
pub use socket::SocketSettings;
pub use stdio::{StdioConnection, StdioRefused};
pub use systemd::InheritedSockets;
pub use tls::{ListenerTls, TlsProblem, TlsSettings};
pub use trusted_proxies::TrustedProxies;

/// Routes for people, such as those of a login.
pub type PeopleRoutes = Router;

/// Builds the routes of the MCP listener. `local` means that no browser can connect, so that any
/// host is accepted.
pub fn router(shared_state: SharedListenerState, local: bool) -> Router {
    router_with_people(Router::new(), shared_state, local)
}

/// Builds them with routes for people. These come first, and hide any other of the same path.
pub fn router_with_people(
    people: PeopleRoutes,
    shared_state: SharedListenerState,
    local: bool,
) -> Router {
    let mcp = mcp_router().with_state(shared_state.clone());
    let all = if people.has_routes() {
        people.fallback_service(mcp)
    } else {
        mcp
    };
    // Last, since a layer covers only what is above it. The fallback must be covered, too.
    all.layer(middleware::from_fn_with_state(
        (shared_state, local),
        origin::check_origin,
    ))
}

fn mcp_router() -> Router<SharedListenerState> {
    // A clear "no" as JSON, since clients parse it. Any other answer looks to them like something
    // to log in to.
    let no_oauth = [
        "/.well-known/{*path}",
        "/mcp/.well-known/{*path}",
        "/register",
        "/authorize",
        "/token",
    ];
    let mut router = Router::new()
        .route("/mcp", any(mcp_routes::all_servers))
        // No redirect: RFC 9110, section 15.4.2, lets a client "change the request method from POST
        // to GET".
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
    router = router.route(
        "/.well-known/oauth-protected-resource/{*path}",
        any(resource_metadata),
    );
    router
        .route("/healthz", any(alive))
        .route("/livez", any(alive))
        .fallback(not_found)
}

/// Serves the metadata of an endpoint, which leads clients to the authorization servers. Without
/// any, the answer is that of all other paths of OAuth.
async fn resource_metadata(
    State(shared_state): State<SharedListenerState>,
    request: Request,
) -> Response {
    let head = request.into_parts().0;
    let state = shared_state.load_full();
    let host = request_hosts(&head.headers, &head.uri).next().flatten();
    let document = match head.method {
        Method::GET | Method::HEAD => state.auth.document(head.uri.path(), host),
        _ => None,
    };
    let Some(document) = document else {
        return no_oauth_here().await;
    };
    let mut response = Response::new(AxumBody::from(document));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

async fn no_oauth_here() -> Response {
    json_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "This server has no OAuth; if it asks for a key, send it as Authorization: Bearer",
    )
}

async fn alive() -> Response {
    json(StatusCode::OK, &serde_json::json!({ "message": "alive" })).map(AxumBody::new)
}
