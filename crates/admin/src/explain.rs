//! Explanation of who may call a tool, for operators.
//!
//! Owns the query, the status of names that are unknown or unclear, and the config line of each
//! rule. Does not decide (`moongate_gateway`). Invariant: it changes nothing, and no call is made.

use axum::response::Response;
use http::StatusCode;

use crate::json_answer::json;
use crate::operator_check::Viewer;
use crate::query_map::QueryMap;
use moongate_api::{ExplainedRule, PlacedRule};
use moongate_config::{ProblemOrigin, SettingLocations};
use moongate_gateway::{NamedThing, UnclearName};
use moongate_listener::json_response;

/// Handles `GET /api/v1/explain`.
pub(super) async fn explain(Viewer(admin): Viewer, query: QueryMap) -> Response {
    let principal = query.text("principal");
    let tool = query.text("tool");
    if principal.is_empty() || tool.is_empty() {
        return json_response(
            StatusCode::BAD_REQUEST,
            "bad_query",
            "`principal` and `tool` are required",
        );
    }
    let auth = admin.listener_state.load().auth.clone();
    match admin
        .gateway
        .explain_tool(&auth, principal, query.text("endpoint"), tool)
    {
        Ok(explanation) => {
            let editor = admin.editor.clone();
            // The decision is right without locations, too.
            let places = tokio::task::spawn_blocking(move || editor.setting_places())
                .await
                .ok()
                .flatten();
            json(
                StatusCode::OK,
                &explanation.map_rules(|rule| with_place(rule, places.as_ref())),
            )
        }
        Err(unclear) => {
            let (status, error) = error_of(&unclear);
            json_response(status, error, &format!("There is {unclear}"))
        }
    }
}

fn error_of(unclear: &UnclearName) -> (StatusCode, &'static str) {
    match unclear {
        UnclearName::Unknown { thing, .. } => {
            let error = match thing {
                NamedThing::Key | NamedThing::Caller | NamedThing::Role => "unknown_principal",
                NamedThing::Endpoint => "unknown_endpoint",
            };
            (StatusCode::NOT_FOUND, error)
        }
        UnclearName::Ambiguous { .. } => (StatusCode::CONFLICT, "ambiguous_principal"),
    }
}

/// Adds the line of the config that has a rule.
fn with_place(rule: ExplainedRule, places: Option<&SettingLocations>) -> PlacedRule {
    match places
        .and_then(|places| places.find(&rule.key))
        .map(|place| place.origin)
    {
        Some(ProblemOrigin::File { path, line, .. }) => PlacedRule {
            rule,
            file: Some(path.display().to_string()),
            line: Some(line),
        },
        _ => PlacedRule {
            rule,
            file: None,
            line: None,
        },
    }
}
