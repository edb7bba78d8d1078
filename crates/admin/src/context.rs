//! Cost of an endpoint's tools in every conversation, by server and tool.
//!
//! Owns the sums. Does not estimate tokens (`moongate_gateway`) or draw (`page/context.rs`). Invariant: only listed tools count.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::actions::Viewer;
use crate::calls::endpoint_path;
use crate::json;
use crate::query_map::QueryMap;
use crate::tool_catalog::tools_by_server;
use moongate_api::ToolOwner;
use moongate_listener::json_response;

/// Server with its listed tools, the most expensive first.
pub(super) struct ServerCost {
    pub(super) server: ToolOwner,
    pub(super) tools: Vec<Value>,
    pub(super) tokens: u64,
}

impl ServerCost {
    /// Keeps the listed ones of these tools.
    pub(super) fn new(server: ToolOwner, mut tools: Vec<Value>) -> Self {
        tools.retain(|tool| tool["state"] == "on");
        tools.sort_by_key(|tool| std::cmp::Reverse(number(tool, "tokens")));
        let tokens = tools.iter().map(|tool| number(tool, "tokens")).sum();
        ServerCost { server, tools, tokens }
    }

    /// Returns the calls of its tools since the start.
    pub(super) fn calls(&self) -> u64 {
        self.tools.iter().map(|tool| number(tool, "calls")).sum()
    }

    /// Returns the cost of the tools that were called since the start.
    pub(super) fn called_tokens(&self) -> u64 {
        let called = self.tools.iter().filter(|tool| number(tool, "calls") > 0);
        called.map(|tool| number(tool, "tokens")).sum()
    }
}

fn number(value: &Value, member: &str) -> u64 {
    value[member].as_u64().unwrap_or_default()
}

/// Handles `GET /api/v1/context`.
pub(super) async fn context(Viewer(admin): Viewer, query: QueryMap) -> Response {
    // A path is as good as a name.
    let endpoint = query.text("endpoint");
    let name = endpoint.strip_prefix("/mcp").unwrap_or(endpoint).trim_matches('/');
    let Some(coverage) = admin.gateway.endpoint_coverage(name) else {
        return json_response(StatusCode::NOT_FOUND, "not_found", &format!("There is no endpoint {name:?}"));
    };
    let owned = tools_by_server(&admin, &coverage);
    let mut costs: Vec<ServerCost> = owned.into_iter().map(|owned| ServerCost::new(owned.owner, owned.tools)).collect();
    costs.sort_by_key(|cost| std::cmp::Reverse(cost.tokens));
    let tools = costs.iter().map(|cost| cost.tools.len()).sum::<usize>();
    let tokens = costs.iter().map(|cost| cost.tokens).sum::<u64>();
    let search = admin.gateway.search_mode_list(name).filter(|list| list.is_listed);
    let (tools_listed, tokens_listed) = search.map_or((tools, tokens), |list| (list.tools, list.tokens()));
    let body = json!({
        "endpoint": endpoint_path(name),
        "discovery": if search.is_some() { "search" } else { "full" },
        "tools": tools,
        "tokens": tokens,
        "tools_listed": tools_listed,
        "tokens_listed": tokens_listed,
        "tokens_called": costs.iter().map(ServerCost::called_tokens).sum::<u64>(),
        "servers": costs.iter().map(cost_json).collect::<Vec<_>>(),
    });
    json(StatusCode::OK, &body)
}

fn cost_json(cost: &ServerCost) -> Value {
    let tool = |tool: &Value| {
        json!({
            "name": tool["name"], "exposed": tool["exposed"], "tokens": tool["tokens"], "calls": tool["calls"],
            "errors": tool["errors"],
        })
    };
    json!({
        "name": cost.server.name,
        "title": cost.server.title,
        "tokens": cost.tokens,
        "calls": cost.calls(),
        "tools": cost.tools.iter().map(tool).collect::<Vec<_>>(),
    })
}
