//! Admin listener: metrics, health, the API and the page for operators. Owns its routes.
//!
//! Does not serve MCP. Invariant: no response shows a secret, an argument or a result, beside an operator's own call
//! (`try_call/`). Probes never depend on a server or a key.

mod access;
mod actions;
mod calls;
mod connect;
mod config_change;
mod config_control;
mod config_view;
mod context;
mod cookie;
mod differing_server;
mod doctor;
mod event_feed;
mod events;
mod explain;
mod items;
mod json_body;
mod keys;
mod new_servers;
mod openapi;
mod page;
mod popular;
mod probe;
mod query_map;
mod routes;
mod search;
mod server_details;
mod server_name;
mod server_preview;
mod server_source;
mod sessions;
mod sign_in;
mod signin_routes;
mod status;
mod tool_catalog;
mod try_call;

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Request, State as Shared};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, StatusCode, header};
use tokio_util::sync::CancellationToken;

use moongate_access::auth::AdminAccess;
use moongate_config::edit::{ConfigOperation, PastEdit};
use moongate_config::{ParsedServer, SettingPlaces};
use moongate_gateway::{Gateway, RunningServer};
use moongate_listener::{SharedListenerState, has_several_hosts, json_response, request_hosts};
use moongate_telemetry::Metrics;
use serde::Serialize;

pub use config_control::{
    AppliedChange, ChangeKind, ChangePreview, ChangeRefusal, ComparedServers, ConfigChange, ConfigStatus,
};
pub use event_feed::EventFeed;
pub use probe::{ProbeAnswer, ProbeReport};
pub use server_preview::ProbeSlots;
pub use sign_in::SignInState;
pub use try_call::OperatorCalls;

/// State of the admin listener.
pub struct AdminState {
    /// Gateway with all servers.
    pub gateway: Arc<Gateway>,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// State of the MCP listener, for its accepted hosts and origins.
    pub listener_state: SharedListenerState,
    /// True if no browser can connect, so that a request's host says nothing.
    pub local: bool,
    /// Keys of operators. A reload replaces them.
    pub access: Arc<ArcSwap<AdminAccess>>,
    /// Address that clients connect to, for people to copy. Empty if no URL leads to an endpoint.
    pub endpoint_url: String,
    /// True if other machines may reach the listener.
    pub is_reachable_by_others: bool,
    /// Actions on the gateway.
    pub control: Arc<dyn AdminControl>,
    /// Cancelled when the gateway drains. From then on it is not ready.
    pub draining: CancellationToken,
    /// Changes for pages and programs that watch.
    pub events: EventFeed,
    /// Calls that operators make here.
    pub operator_calls: OperatorCalls,
    /// Slots of previews that connect to servers. All listeners share them.
    pub probe_slots: ProbeSlots,
    /// Sessions, tickets and wrong keys. All listeners share them.
    pub sign_in: Arc<SignInState>,
}

impl AdminState {
    /// Returns the address of an endpoint. Empty if no URL leads to one.
    fn url_of_endpoint(&self, name: &str) -> String {
        match (self.endpoint_url.as_str(), name) {
            ("", _) => String::new(),
            (url, "") => url.to_owned(),
            (url, name) => format!("{url}/{name}"),
        }
    }
}

/// Headers of every response. It is data for whoever may ask for it: no browser guesses that it is a page, tells another
/// page where it was read, or shows it inside of one.
const GUARDING_HEADERS: [(HeaderName, &str); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Actions that operators can request. Each returns its success and a report.
pub trait AdminControl: Send + Sync {
    /// Reads the config again and applies it.
    fn reload(&self) -> BoxFuture<'_, (bool, serde_json::Value)>;

    /// Reports the changes that a reload would make.
    fn plan(&self) -> BoxFuture<'_, (bool, serde_json::Value)>;

    /// Returns the config in use, and its last reload.
    fn config(&self) -> Arc<ConfigStatus>;

    /// Writes a change into the config, and applies it.
    fn change_config(&self, change: ConfigChange) -> BoxFuture<'_, Result<AppliedChange, ChangeRefusal>>;

    /// Compares servers with those of the config. `own_url` is an endpoint of this gateway.
    fn plan_import(
        &self,
        found: Vec<ParsedServer>,
        own_url: String,
    ) -> BoxFuture<'_, Result<ComparedServers, ChangeRefusal>>;

    /// Prepares a change of the config, and writes nothing.
    fn preview_change(&self, operations: Vec<ConfigOperation>) -> BoxFuture<'_, Result<ChangePreview, ChangeRefusal>>;

    /// Connects once to the server that an operation would add.
    fn probe(&self, operation: ConfigOperation) -> BoxFuture<'_, ProbeReport>;

    /// Runs the checks of the config, this machine and the servers. `None` without a config.
    fn doctor(&self) -> BoxFuture<'_, Option<Vec<serde_json::Value>>>;

    /// Returns what would help a server that does not work. `None` for one that works, and where its reason says it.
    fn server_hint(&self, server: &RunningServer) -> Option<ServerHint>;

    /// Reads the edits that can be undone, the last one first. Reads a file, so it may block.
    fn past_edits(&self) -> Vec<PastEdit>;

    /// Reads where each setting of the config stands. Reads files, so it may block.
    fn setting_places(&self) -> Option<SettingPlaces>;
}

/// Advice for a server that does not work.
#[derive(Clone, Debug)]
pub struct ServerHint {
    /// Code of the finding that `moongate doctor` has for it.
    pub code: &'static str,
    /// Words for people: what to do.
    pub text: String,
}

/// Builds the routes of the admin listener.
pub fn router(admin: Arc<AdminState>) -> Router {
    let open = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(alive))
        .route("/livez", get(alive))
        .route("/readyz", get(ready));
    routes::mount(open)
        .merge(page::routes())
        // Above the layers, so that an unknown path needs a key, too.
        .fallback(not_found)
        // The last layer runs first: host and origin are checked before the key.
        .layer(middleware::from_fn_with_state(admin.clone(), access::require_key))
        .layer(middleware::from_fn(page::explain_refusal))
        .layer(middleware::from_fn_with_state(admin.clone(), check_origin))
        .with_state(admin)
}

/// Refuses pages of other origins. Scrapers and probes may use any host name.
async fn check_origin(Shared(admin): Shared<Arc<AdminState>>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = match origin_rejection(&admin, &request) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in GUARDING_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_api {
        // States, names and keys: a cache would show them to the next user of a browser, or old.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Returns the response to a request whose host or origin is not accepted, or `None`.
fn origin_rejection(admin: &AdminState, request: &Request) -> Option<Response> {
    let (headers, uri) = (request.headers(), request.uri());
    let listener_state = admin.listener_state.load_full();
    if has_several_hosts(headers) {
        return Some(json_response(
            StatusCode::BAD_REQUEST,
            "several_hosts",
            "The request names its host more than once",
        ));
    }
    // Prometheus and probes address a pod by its IP or service name.
    let open = matches!(uri.path(), "/metrics" | "/healthz" | "/livez" | "/readyz");
    if !open && !admin.local && listener_state.hosts.accepts_request(headers, uri).is_err() {
        let message = "This Host is not allowed; add it to gateway.allowed_hosts";
        return Some(json_response(StatusCode::FORBIDDEN, "host_not_allowed", message));
    }
    let host = request_hosts(headers, uri).next().flatten();
    let origin = headers.get(header::ORIGIN)?;
    let accepted = origin.to_str().is_ok_and(|origin| listener_state.hosts.accepts_origin(origin, host));
    let message = "This Origin is not allowed; add it to gateway.allowed_origins";
    (!accepted).then(|| json_response(StatusCode::FORBIDDEN, "origin_not_allowed", message))
}

async fn metrics(Shared(admin): Shared<Arc<AdminState>>) -> Response {
    let mut response = Response::new(AxumBody::from(admin.metrics.render()));
    // Text exposition format 0.0.4 of Prometheus.
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

async fn alive() -> Response {
    json(StatusCode::OK, &serde_json::json!({ "message": "alive" }))
}

async fn ready(Shared(admin): Shared<Arc<AdminState>>) -> Response {
    // Not ready while draining, so that a load balancer sends no further clients.
    if admin.draining.is_cancelled() {
        return json_response(StatusCode::SERVICE_UNAVAILABLE, "draining", "The gateway is about to stop");
    }
    json(StatusCode::OK, &serde_json::json!({ "message": "ready" }))
}

async fn not_found() -> Response {
    json_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is nothing here; see /metrics, /healthz, /readyz and /api/v1/status",
    )
}

fn json(status: StatusCode, body: &impl Serialize) -> Response {
    // Fails only for maps whose keys are not strings, and there are none.
    let mut response = Response::new(AxumBody::from(serde_json::to_vec(body).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
