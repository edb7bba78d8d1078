//! Searches of operators: the tools that a model would find.
//!
//! Owns the query with its limits, and how hits are described. Does not rank (`moongate_gateway`).
//! Invariant: searched words are not recorded.

use axum::response::Response;
use http::StatusCode;

use crate::endpoint_path::{endpoint_name, endpoint_path};
use crate::json_answer::json;
use crate::operator_check::Viewer;
use crate::query_map::QueryMap;
use moongate_api::{SearchHit, ToolSearch};
use moongate_gateway::FoundTool;
use moongate_listener::json_response;

/// Hits of a search that names no limit.
const LIMIT_DEFAULT: usize = 5;
/// Most hits of a search.
const LIMIT_MAX: usize = 100;

/// Handles `GET /api/v1/search`.
pub(super) async fn search(Viewer(admin): Viewer, query: QueryMap) -> Response {
    let words = query.text("q").trim();
    if words.is_empty() {
        return json_response(StatusCode::BAD_REQUEST, "no_words", "`q` has no words");
    }
    let limit = match query.get("limit").map(|limit| limit.parse::<usize>()) {
        None => LIMIT_DEFAULT,
        Some(Ok(limit)) if (1..=LIMIT_MAX).contains(&limit) => limit,
        Some(_) => {
            let message = format!("`limit` must be a number from 1 to {LIMIT_MAX}");
            return json_response(StatusCode::BAD_REQUEST, "bad_limit", &message);
        }
    };
    let name = endpoint_name(query.text("endpoint"));
    match admin.gateway.find_tools(name, words, limit).await {
        None => json_response(
            StatusCode::NOT_FOUND,
            "not_found",
            &format!("There is no endpoint {name:?}"),
        ),
        Some(Err(error)) => json_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            &error.message,
        ),
        Some(Ok(found)) => {
            let tools = found.tools.iter().map(describe_hit).collect();
            json(
                StatusCode::OK,
                &ToolSearch {
                    endpoint: endpoint_path(name),
                    total: found.total,
                    tools,
                },
            )
        }
    }
}

fn describe_hit(tool: &FoundTool) -> SearchHit {
    SearchHit {
        name: tool.name.to_string(),
        server: tool.server.to_string(),
        signature: tool.signature.clone(),
        description: tool.about.clone(),
        notes: tool.notes.iter().map(|&note| note.to_owned()).collect(),
        score: (f64::from(tool.score) * 1000.0).round() / 1000.0,
        matched_words: tool.matched_words.clone(),
    }
}
