//! Explanation of who may call a tool, for operators.
//!
//! Owns the query. Does not decide (`moongate_gateway`). Invariant: it changes nothing, and no call is made.

use std::collections::HashMap;

use axum::extract::RawQuery;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use crate::actions::Viewer;
use crate::json;
use moongate_gateway::UnknownPrincipal;
use moongate_server::json_response;

/// Handles `GET /api/v1/explain`.
pub(super) async fn explain(Viewer(admin): Viewer, RawQuery(query): RawQuery) -> Response {
    let query: HashMap<_, _> = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect();
    let text = |key: &str| query.get(key).map(String::as_str).unwrap_or_default();
    let (principal, tool) = (text("principal"), text("tool"));
    if principal.is_empty() || tool.is_empty() {
        return json_response(StatusCode::BAD_REQUEST, "bad_query", "`principal` and `tool` are needed");
    }
    let auth = admin.server_state.load().auth.clone();
    match admin.gateway.explain_tool(&auth, principal, text("endpoint"), tool) {
        Ok(explanation) => json(StatusCode::OK, &json!(explanation)),
        Err(UnknownPrincipal(known)) => {
            let message = format!("There is no key {principal:?}; known are {}", known.join(", "));
            json_response(StatusCode::NOT_FOUND, "unknown_principal", &message)
        }
    }
}
