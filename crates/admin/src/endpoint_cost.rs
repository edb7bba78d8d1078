//! Cost of an endpoint's tools in every conversation, by server and tool: the answer of `GET
//! /api/v1/context`.
//!
//! Owns the sums. Does not estimate tokens (`moongate_gateway`) or draw. Invariant: only listed
//! tools count.

use std::cmp::Reverse;

use axum::response::Response;
use http::StatusCode;

use crate::endpoint_path::{endpoint_name, endpoint_path};
use crate::json_answer::json;
use crate::operator_check::Viewer;
use crate::query_map::QueryMap;
use crate::tool_catalog::tools_by_server;
use moongate_api::{
    DiscoveryMode, EndpointCost, ItemState, ServerCost, ServerItem, ToolCost, ToolOwner,
};
use moongate_listener::json_response;

/// Handles `GET /api/v1/context`.
pub(super) async fn context(Viewer(admin): Viewer, query: QueryMap) -> Response {
    let name = endpoint_name(query.text("endpoint"));
    let Some(coverage) = admin.gateway.endpoint_coverage(name) else {
        return json_response(
            StatusCode::NOT_FOUND,
            "not_found",
            &format!("There is no endpoint {name:?}"),
        );
    };
    let owned = tools_by_server(&admin, &coverage);
    let mut servers: Vec<ServerCost> = owned
        .into_iter()
        .map(|owned| server_cost(&owned.owner, owned.tools))
        .collect();
    servers.sort_by_key(|cost| Reverse(cost.tokens));
    let tools = servers.iter().map(|cost| cost.tools.len()).sum();
    let tokens = servers.iter().map(|cost| cost.tokens).sum();
    let search = admin
        .gateway
        .search_mode_list(name)
        .filter(|list| list.is_listed);
    let body = EndpointCost {
        endpoint: endpoint_path(name),
        discovery: if search.is_some() {
            DiscoveryMode::Search
        } else {
            DiscoveryMode::Full
        },
        tools,
        tokens,
        tools_listed: search.map_or(tools, |list| list.tools),
        tokens_listed: search.map_or(tokens, |list| list.tokens()),
        tokens_called: servers.iter().map(ServerCost::called_tokens).sum(),
        servers,
    };
    json(StatusCode::OK, &body)
}

/// Sums up the listed ones of a server's tools, the most expensive first.
pub(super) fn server_cost(server: &ToolOwner, tools: Vec<ServerItem>) -> ServerCost {
    let listed = tools.into_iter().filter(|tool| tool.state == ItemState::On);
    let mut tools: Vec<ToolCost> = listed.map(tool_cost).collect();
    tools.sort_by_key(|tool| Reverse(tool.tokens));
    ServerCost {
        name: server.name.clone(),
        title: server.title.clone(),
        tokens: tools.iter().map(|tool| tool.tokens).sum(),
        calls: tools.iter().map(|tool| tool.calls).sum(),
        tools,
    }
}

fn tool_cost(tool: ServerItem) -> ToolCost {
    let ServerItem {
        name,
        exposed,
        tokens,
        calls,
        errors,
        ..
    } = tool;
    ToolCost {
        name,
        exposed,
        tokens,
        calls,
        errors,
    }
}
