//! Recent calls, for operators.
//!
//! Owns their list with its filters, and the handler that cancels a call. Does not record calls
//! (`moongate_gateway`). Invariant: arguments and results are never shown.

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use crate::endpoint_path::endpoint_path;
use crate::json_answer::{action_done, json};
use crate::operator_check::{Operator, Viewer};
use crate::query_map::QueryMap;
use crate::time_format::{milliseconds, timestamp};
use moongate_api::{CallError, CallList, CallRow, ClientName};
use moongate_gateway::RecentCall;
use moongate_listener::json_response;

/// Handles `GET /api/v1/calls`.
pub(super) async fn calls(Viewer(admin): Viewer, query: QueryMap) -> Response {
    let limit = match query.get("limit").map(|limit| limit.parse::<usize>()) {
        None => usize::MAX,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => {
            return json_response(
                StatusCode::BAD_REQUEST,
                "bad_limit",
                "`limit` must be a number",
            );
        }
    };
    let recent = admin.gateway.recent_calls().changed_since(0);
    let matching = recent.iter().filter(|call| {
        query.admits("server", &call.facts.server) && query.admits("state", call.state().name())
    });
    json(
        StatusCode::OK,
        &CallList {
            calls: matching.take(limit).map(call_row).collect(),
        },
    )
}

/// Handles `POST /api/v1/calls/{id}/cancel`.
pub(super) async fn cancel(Operator(admin): Operator, Path(id): Path<String>) -> Response {
    let number = id.strip_prefix("c-").and_then(|number| number.parse().ok());
    if number.is_some_and(|number| admin.gateway.recent_calls().cancel(number)) {
        return action_done("cancelled", id);
    }
    json_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is no running call with this id; it may have ended",
    )
}

/// Describes one call.
pub(super) fn call_row(call: &RecentCall) -> CallRow {
    let facts = &call.facts;
    let result = call.result.as_ref();
    let (name, version) = call.client();
    // A running call has taken the time since its arrival.
    let took = result.map_or_else(|| facts.received.elapsed(), |result| result.took);
    let revision = result
        .map(|result| result.server_revision)
        .filter(|revision| !revision.is_empty());
    let error = result.and_then(|result| result.error.as_ref());
    CallRow {
        id: format!("c-{}", call.id),
        at: timestamp(call.at),
        state: call.state(),
        ms: milliseconds(took),
        own_ms: result.map(|result| milliseconds(result.took.saturating_sub(result.server_time))),
        wait_ms: result.and_then(|result| result.wait).map(milliseconds),
        retries: result.map(|result| result.retries),
        server: facts.server.to_string(),
        method: facts.method.label().to_owned(),
        name: facts.item.to_string(),
        principal: facts.principal.name.clone(),
        client: ClientName {
            name: Some(name),
            version: Some(version),
        },
        endpoint: endpoint_path(&facts.endpoint),
        from: facts.client_revision.to_owned(),
        to: revision.map(str::to_owned),
        bytes_in: facts.request_bytes as u64,
        bytes_out: result.map(|result| result.response_bytes as u64),
        error: error.map(|(kind, text)| CallError {
            kind: (*kind).to_owned(),
            message: text.to_string(),
        }),
    }
}
