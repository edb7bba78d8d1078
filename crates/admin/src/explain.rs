//! Explanation of who may call a tool, for operators.
//!
//! Owns the query. Does not decide (`moongate_gateway`). Invariant: it changes nothing, and no call is made.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use crate::actions::Viewer;
use crate::json;
use crate::query_map::QueryMap;
use moongate_gateway::UnknownPrincipal;
use moongate_server::json_response;

/// Handles `GET /api/v1/explain`.
pub(super) async fn explain(Viewer(admin): Viewer, query: QueryMap) -> Response {
    let (principal, tool) = (query.text("principal"), query.text("tool"));
    if principal.is_empty() || tool.is_empty() {
        return json_response(StatusCode::BAD_REQUEST, "bad_query", "`principal` and `tool` are needed");
    }
    let auth = admin.server_state.load().auth.clone();
    match admin.gateway.explain_tool(&auth, principal, query.text("endpoint"), tool) {
        Ok(explanation) => json(StatusCode::OK, &json!(explanation)),
        Err(UnknownPrincipal(known)) => {
            let message = format!("There is no key {principal:?}; known are {}", known.join(", "));
            json_response(StatusCode::NOT_FOUND, "unknown_principal", &message)
        }
    }
}
