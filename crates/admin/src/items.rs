//! Tools, resources and prompts of a server, with their cost and use.
//!
//! Owns the states of tools. Does not decide what is exposed (`moongate_gateway`). Invariant:
//! texts of a server are data, and are never interpreted.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::actions::Viewer;
use crate::config_control::ConfigStatus;
use crate::config_view::{RuleTable, rule_json};
use crate::{AdminState, json};
use moongate_access::policy::ItemRules;
use moongate_api::{CallCounts, ServerCounters};
use moongate_gateway::{CatalogRoute, ExcludedItem, Gateway, RunningServer, Snapshot, estimate_tokens};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_listener::json_response;
use moongate_model::ItemKind;
use moongate_telemetry::CallTotals;

/// Calls of a server's items, and the cost of its listed tools.
#[derive(Clone, Default)]
pub(super) struct ServerUse {
    calls: CallTotals,
    /// Number of listed tools.
    listed: usize,
    /// Bytes of their definitions.
    bytes: usize,
}

/// Sums up the use of each server, in one pass over the catalogue.
pub(super) fn use_by_server(snapshot: &Snapshot) -> HashMap<&str, ServerUse> {
    let mut all: HashMap<&str, ServerUse> = HashMap::new();
    for kind in [ItemKind::Tools, ItemKind::Prompts] {
        for route in snapshot.iter(kind) {
            let server = all.entry(&route.upstream.settings.name).or_default();
            server.calls.add(&route.meter.totals());
            // Hidden tools are in no list that a model reads, so they cost nothing.
            if kind == ItemKind::Tools && !route.hidden {
                server.listed += 1;
                server.bytes += route.form.listed.bytes().len();
            }
        }
    }
    all
}

/// Counts what a server costs a model, and how it is used. The other counters are 0.
pub(super) fn count_use(server: &RunningServer, used: Option<&ServerUse>, snapshot: &Snapshot) -> ServerCounters {
    let ServerUse { calls: totals, listed, bytes } = used.cloned().unwrap_or_default();
    let lists = server.lists();
    let local = |tool: &JsonObject| tool.get_string(ItemKind::Tools.item_key());
    let route = |tool: &JsonObject| snapshot.find_local(ItemKind::Tools, &server.name, &local(tool)?);
    let all = lists.get(ItemKind::Tools).items.iter().map(|tool| listed_bytes(tool, route(tool))).sum();
    let ms = |part| totals.quantile(part).map(|seconds| (seconds * 1e4).round() / 10.0);
    let (p50_ms, p95_ms) = (ms(0.5), ms(0.95));
    ServerCounters {
        tools_on: listed as u64,
        tokens: estimate_tokens(bytes),
        tokens_all: estimate_tokens(all),
        calls: CallCounts { ok: totals.ok, tool_error: totals.tool_errors, error: totals.errors },
        p50_ms,
        p95_ms,
        ..ServerCounters::default()
    }
}

/// Handles `GET /api/v1/servers/{name}/items`.
pub(super) async fn items(Viewer(admin): Viewer, Path(name): Path<String>) -> Response {
    let servers = admin.gateway.servers();
    let Some(server) = servers.iter().find(|server| server.settings.name == name) else {
        let names: Vec<&str> = servers.iter().map(|server| server.settings.name.as_str()).collect();
        let message = format!("There is no server {name:?} that is switched on; those are {}", names.join(", "));
        return json_response(StatusCode::NOT_FOUND, "not_found", &message);
    };
    json(StatusCode::OK, &describe_items(&admin, server))
}

/// Describes one tool of a server with its schemas, by its own name there.
pub(super) fn tool_json(admin: &AdminState, server: &str, local: &str) -> Option<Value> {
    let servers = admin.gateway.servers();
    let server = servers.iter().find(|entry| entry.settings.name == server)?;
    let lists = server.lists();
    let is_wanted = |item: &&Arc<JsonObject>| {
        item.get_string(ItemKind::Tools.item_key()).is_some_and(|name| name.as_str() == local)
    };
    let item = lists.get(ItemKind::Tools).items.iter().find(is_wanted)?;
    let described = item_json((&admin.gateway, &admin.gateway.snapshot()), ItemKind::Tools, server, item);
    Some(with_rule(&admin.control.config(), server, described))
}

/// Adds the rule that keeps a tool off or out of lists.
pub(super) fn with_rule(config: &ConfigStatus, server: &RunningServer, mut tool: Value) -> Value {
    // A tool that is listed needs none, and most are: to look for one costs more than the rest of a row.
    if matches!(tool["state"].as_str(), Some("off" | "hidden")) {
        let table = RuleTable { server: &server.settings.name, kind: "tools", rules: &server.settings.tools };
        let is_hidden = tool["state"] == "hidden";
        tool["rule"] = rule_json(config, table, tool["name"].as_str().unwrap_or_default(), is_hidden);
    }
    tool
}

/// Lists what a server offers. Returns `None` for a server that is off or unknown.
pub(super) fn items_json(admin: &AdminState, name: &str) -> Option<Value> {
    let servers = admin.gateway.servers();
    let server = servers.iter().find(|server| server.settings.name == name)?;
    Some(describe_items(admin, server))
}

fn describe_items(admin: &AdminState, server: &RunningServer) -> Value {
    let (snapshot, config) = (admin.gateway.snapshot(), admin.control.config());
    let name = server.settings.name.as_str();
    let listed = |kind| {
        let (table, rules) = rules_of(server, kind);
        let table = RuleTable { server: name, kind: table, rules };
        let item = |item: &JsonObject| {
            let mut described = item_json((&admin.gateway, &snapshot), kind, server, item);
            let local = item.get_string(kind.item_key()).unwrap_or_else(|| ByteString::literal(""));
            described["rule"] = rule_json(&config, table, &local, described["state"] == "hidden");
            described
        };
        server.lists().get(kind).items.iter().map(|each| item(each)).collect::<Vec<_>>()
    };
    json!({
        "server": server.settings.name,
        "tools": listed(ItemKind::Tools),
        "resources": listed(ItemKind::Resources),
        "templates": listed(ItemKind::Templates),
        "prompts": listed(ItemKind::Prompts),
    })
}

fn item_json(catalog: (&Gateway, &Snapshot), kind: ItemKind, server: &RunningServer, item: &JsonObject) -> Value {
    let mut described = item_summary(catalog, kind, server, item);
    for (member, key) in
        [("input_schema", "inputSchema"), ("output_schema", "outputSchema"), ("arguments", "arguments")]
    {
        described[member] = item.get(key).and_then(as_value).into();
    }
    described
}

/// Describes an item without its schemas, which cost most of the time.
pub(super) fn item_summary(
    (gateway, snapshot): (&Gateway, &Snapshot),
    kind: ItemKind,
    server: &RunningServer,
    item: &JsonObject,
) -> Value {
    let local = item.get_string(kind.item_key()).unwrap_or_else(|| ByteString::literal(""));
    let route = snapshot.find_local(kind, &server.name, &local);
    let named = format!("{} {local}", kind.member());
    // An item that cannot be exposed has no route. Its reason is found by the words it was noted with. Those of an item
    // with a route are about another one of that name, or about a part of the clients.
    let is_named = |out: &&ExcludedItem| out.server == server.settings.name && out.item == named;
    let excluded = snapshot.excluded.iter().find(|out| route.is_none() && is_named(out));
    let state = if excluded.is_some() { "left_out" } else { state_by_rules(rules_of(server, kind).1, &local) };
    let text = |key: &str| item.get_string(key).map(|text| text.to_string());
    let totals = route.map(|route| route.meter.totals()).unwrap_or_default();
    json!({
        "server": server.settings.name,
        "name": &*local,
        "exposed": route.map(|route| route.exposed.to_string()),
        "expected": (kind == ItemKind::Tools && route.is_none()).then(|| gateway.expected_name(server, &local).to_string()),
        "title": text("title"),
        "description": text("description"),
        "state": state,
        "reason": excluded.map(|out| out.reason.clone()),
        "tokens": estimate_tokens(listed_bytes(item, route)),
        "annotations": item.get("annotations").and_then(as_value),
        "calls": totals.calls(),
        "errors": totals.errors + totals.tool_errors,
        "p95_ms": totals.quantile(0.95).map(|seconds| (seconds * 1e4).round() / 10.0),
    })
}

/// Returns the state that the rules of a server give to an item. The catalogue follows them a moment later, so a new
/// server's items are never shown as switched off.
fn state_by_rules(rules: &ItemRules, local: &str) -> &'static str {
    match (rules.allows_name(local), rules.hide.matches(local)) {
        (false, _) => "off",
        (true, true) => "hidden",
        (true, false) => "on",
    }
}

/// Returns the rules for a server's items of a kind, with the table of the config that has them.
fn rules_of(server: &RunningServer, kind: ItemKind) -> (&'static str, &ItemRules) {
    match kind {
        ItemKind::Tools => ("tools", &server.settings.tools),
        ItemKind::Prompts => ("prompts", &server.settings.prompts),
        ItemKind::Resources | ItemKind::Templates => ("resources", &server.settings.resources),
    }
}

/// Returns the size of an item as lists show it. One in no list counts as its server wrote it.
fn listed_bytes(item: &JsonObject, route: Option<&Arc<CatalogRoute>>) -> usize {
    route.map_or_else(|| item.bytes().len(), |route| route.form.listed.bytes().len())
}

/// Parses a member for the page. It is a definition, not a payload.
fn as_value(raw: &RawJson) -> Option<Value> {
    serde_json::from_slice(raw.bytes()).ok()
}

#[cfg(test)]
mod tests {
    use moongate_access::policy::GlobList;

    use super::*;

    #[test]
    fn only_a_rule_switches_an_item_off() {
        let globs = |patterns: &[&str]| GlobList::new(&patterns.iter().map(|&p| p.to_owned()).collect::<Vec<_>>());
        let mut rules = ItemRules::allow_all();
        rules.deny = globs(&["delete_*", "!delete_draft"]).unwrap();
        rules.hide = globs(&["*_all", "delete_*"]).unwrap();
        for (name, state) in [("get", "on"), ("get_all", "hidden"), ("delete_all", "off"), ("delete_draft", "hidden")] {
            assert_eq!(state_by_rules(&rules, name), state, "{name}");
        }
    }
}
