//! Explanation of who may call a tool, for operators.
//!
//! Owns the query. Does not decide (`moongate_gateway`). Invariant: it changes nothing, and no call is made.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::actions::Viewer;
use crate::json;
use crate::query_map::QueryMap;
use moongate_config::{ProblemOrigin, SettingPlaces};
use moongate_gateway::{NamedThing, ToolExplanation};
use moongate_listener::json_response;

/// Handles `GET /api/v1/explain`.
pub(super) async fn explain(Viewer(admin): Viewer, query: QueryMap) -> Response {
    let (principal, tool) = (query.text("principal"), query.text("tool"));
    if principal.is_empty() || tool.is_empty() {
        return json_response(StatusCode::BAD_REQUEST, "bad_query", "`principal` and `tool` are needed");
    }
    let auth = admin.listener_state.load().auth.clone();
    match admin.gateway.explain_tool(&auth, principal, query.text("endpoint"), tool) {
        Ok(explanation) => {
            let control = admin.control.clone();
            // The decision is right without places, too.
            let places = tokio::task::spawn_blocking(move || control.setting_places()).await.ok().flatten();
            json(StatusCode::OK, &with_places(&explanation, places.as_ref()))
        }
        Err(unknown) => {
            let error = match unknown.thing {
                NamedThing::Key => "unknown_principal",
                NamedThing::Endpoint => "unknown_endpoint",
            };
            json_response(StatusCode::NOT_FOUND, error, &format!("There is {unknown}"))
        }
    }
}

/// Adds to each rule the line of the config that has it.
fn with_places(explanation: &ToolExplanation, places: Option<&SettingPlaces>) -> Value {
    let mut body = json!(explanation);
    for (at, rule) in explanation.rules.iter().enumerate() {
        let origin = places.and_then(|places| places.find(&rule.key)).map(|place| place.origin);
        let (file, line) = match origin {
            Some(ProblemOrigin::File { path, line, .. }) => (Some(path.display().to_string()), Some(line)),
            _ => (None, None),
        };
        (body["rules"][at]["file"], body["rules"][at]["line"]) = (file.into(), line.into());
    }
    body
}
