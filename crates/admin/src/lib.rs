//! Admin listener: metrics, health, the API and the page for operators.
//!
//! Owns the order of the checks, and the routes for metrics and health. Leaves the other routes to
//! `routes.rs` and `page_routes.rs`, and does not serve MCP. Invariant: the only secret in a
//! response is a key, ticket, session or login address that the request has just made. Arguments
//! and results are only in an operator's own call (`try_call/`). Probes never depend on a server or
//! a key.

mod admin_control;
mod admin_state;
mod calls;
mod change_answer;
mod change_poller;
mod config_change;
mod config_view;
mod connect;
mod control_types;
mod differing_server;
mod doctor;
mod endpoint_cost;
mod endpoint_path;
mod event_feed;
mod event_stream;
mod explain;
mod health;
mod json_answer;
mod json_body;
mod key_check;
mod keys;
mod new_servers;
mod openapi;
mod operator_actions;
mod operator_check;
mod origin_check;
mod page_answer;
mod page_headers;
mod page_routes;
mod page_viewer;
mod page_views;
mod people;
mod popular;
mod probe_report;
mod probe_slots;
mod query_map;
mod route_types;
mod routes;
mod search;
mod server_details;
mod server_items;
mod server_login;
mod server_name;
mod server_preview;
mod server_signs;
mod server_source;
mod server_use;
mod sessions;
mod sign_in;
mod sign_in_handlers;
mod status;
mod time_format;
mod tool_catalog;
mod try_call;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;

use moongate_listener::json_response;

pub use admin_control::{ConfigEditor, Examiner, LoginControl, PeopleControl, Reloader};
pub use admin_state::AdminState;
pub use control_types::{
    AppliedChange, ChangeKind, ChangePreview, ChangeRefusal, ComparedServers, ConfigChange,
    ConfigStatus, LoginRefusal, LoginRefusalReason, RevokeRefusal,
};
pub use event_feed::EventFeed;
pub use probe_report::{ProbeAnswer, ProbeReport};
pub use probe_slots::ProbeSlots;
pub use sign_in::SignInState;
pub use try_call::running::OperatorCalls;

/// Builds the routes of the admin listener.
pub fn router(admin: Arc<AdminState>) -> Router {
    let open = Router::new()
        .route("/metrics", get(health::metrics))
        .route("/healthz", get(health::alive))
        .route("/livez", get(health::alive))
        .route("/readyz", get(health::ready));
    routes::mount(open)
        .merge(page_routes::routes())
        // Above the layers, so that an unknown path needs a key, too.
        .fallback(not_found)
        // The last layer runs first: host and origin are checked before the key.
        .layer(middleware::from_fn_with_state(
            admin.clone(),
            key_check::require_key,
        ))
        .layer(middleware::from_fn(page_answer::explain_refusal))
        .layer(middleware::from_fn_with_state(
            admin.clone(),
            origin_check::check_origin,
        ))
        .with_state(admin)
}

async fn not_found() -> Response {
    json_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is nothing here; see /metrics, /healthz, /readyz and /api/v1/status",
    )
}
