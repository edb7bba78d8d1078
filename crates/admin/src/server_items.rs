//! Tools, resources and prompts of a server, with their cost and use.
//!
//! Owns the states of items. Does not decide what is exposed (`moongate_gateway`). Invariant:
//! texts of a server are data, and are never interpreted.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::admin_state::AdminState;
use crate::config_view::{RuleTable, describe_rule};
use crate::control_types::ConfigStatus;
use crate::json_answer::json;
use crate::operator_check::Viewer;
use crate::server_use::{listed_bytes, quantile_ms};
use moongate_access::policy::ItemRules;
use moongate_api::{ItemState, ServerItem, ServerItems};
use moongate_gateway::{Gateway, RunningServer, Snapshot, estimate_tokens};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson, or_default, or_null};
use moongate_listener::json_response;
use moongate_model::ItemKind;

/// Members of a definition that a summary has.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ItemSummary {
    #[serde(deserialize_with = "or_default")]
    title: Option<String>,
    #[serde(deserialize_with = "or_default")]
    description: Option<String>,
    #[serde(deserialize_with = "or_null")]
    annotations: Option<RawJson>,
}

/// Members of a definition that say what goes in and comes out.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ItemSchemas {
    #[serde(deserialize_with = "or_null")]
    input_schema: Option<RawJson>,
    #[serde(deserialize_with = "or_null")]
    output_schema: Option<RawJson>,
    #[serde(deserialize_with = "or_null")]
    arguments: Option<RawJson>,
}

/// Handles `GET /api/v1/servers/{name}/items`.
pub(super) async fn items(Viewer(admin): Viewer, Path(name): Path<String>) -> Response {
    let server = match enabled_server(&admin, &name) {
        Ok(server) => server,
        Err(refused) => return refused,
    };
    json(StatusCode::OK, &describe_items(&admin, &server))
}

/// Finds a running server. Fails with the answer for a name that none has.
pub(super) fn enabled_server(
    admin: &AdminState,
    name: &str,
) -> Result<Arc<RunningServer>, Response> {
    let servers = admin.gateway.servers();
    let found = servers.iter().find(|server| server.settings.name == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = servers
            .iter()
            .map(|server| server.settings.name.as_str())
            .collect();
        let message = format!(
            "There is no enabled server {name:?}; the enabled servers are {}",
            names.join(", ")
        );
        json_response(StatusCode::NOT_FOUND, "not_found", &message)
    })
}

/// Describes one tool of a server with its schemas, by its own name there.
pub(super) fn describe_tool(admin: &AdminState, server: &str, local: &str) -> Option<ServerItem> {
    let servers = admin.gateway.servers();
    let server = servers.iter().find(|entry| entry.settings.name == server)?;
    let lists = server.lists();
    let mut tools = lists.get(ItemKind::Tools).items.iter();
    let item = tools.find(|item| {
        ItemKind::Tools
            .key_of(item)
            .is_some_and(|name| name.as_str() == local)
    })?;
    let described = describe_item(
        (&admin.gateway, &admin.gateway.snapshot()),
        ItemKind::Tools,
        server,
        item,
    );
    Some(with_rule(&admin.reloader.config(), server, described))
}

/// Adds the rule that keeps a tool off or out of lists.
pub(super) fn with_rule(
    config: &ConfigStatus,
    server: &RunningServer,
    tool: ServerItem,
) -> ServerItem {
    // A listed tool needs none, and most tools are listed: finding a rule costs more than the rest
    // of a row.
    if !matches!(tool.state, ItemState::Off | ItemState::Hidden) {
        return tool;
    }
    let table = RuleTable {
        server: &server.settings.name,
        kind: "tools",
        rules: &server.settings.presentation.tools,
    };
    let rule = describe_rule(config, table, &tool.name, tool.state == ItemState::Hidden);
    ServerItem { rule, ..tool }
}

/// Lists what a server offers. Returns `None` for a server that is off or unknown.
pub(super) fn find_items(admin: &AdminState, name: &str) -> Option<ServerItems> {
    let servers = admin.gateway.servers();
    let server = servers.iter().find(|server| server.settings.name == name)?;
    Some(describe_items(admin, server))
}

fn describe_items(admin: &AdminState, server: &RunningServer) -> ServerItems {
    let snapshot = admin.gateway.snapshot();
    let config = admin.reloader.config();
    let catalog: (&Gateway, &Snapshot) = (&admin.gateway, &snapshot);
    ServerItems {
        server: server.settings.name.clone(),
        tools: describe_kind(catalog, &config, server, ItemKind::Tools),
        resources: describe_kind(catalog, &config, server, ItemKind::Resources),
        templates: describe_kind(catalog, &config, server, ItemKind::Templates),
        prompts: describe_kind(catalog, &config, server, ItemKind::Prompts),
    }
}

/// Describes a server's items of one kind, with the rule that decides about each.
fn describe_kind(
    catalog: (&Gateway, &Snapshot),
    config: &ConfigStatus,
    server: &RunningServer,
    kind: ItemKind,
) -> Vec<ServerItem> {
    let (table, rules) = rules_of(server, kind);
    let table = RuleTable {
        server: &server.settings.name,
        kind: table,
        rules,
    };
    let lists = server.lists();
    let items = lists.get(kind).items.iter().map(|item| {
        let described = describe_item(catalog, kind, server, item);
        let is_hidden = described.state == ItemState::Hidden;
        let rule = describe_rule(config, table, &described.name, is_hidden);
        ServerItem { rule, ..described }
    });
    items.collect()
}

fn describe_item(
    catalog: (&Gateway, &Snapshot),
    kind: ItemKind,
    server: &RunningServer,
    item: &JsonObject,
) -> ServerItem {
    let schemas: ItemSchemas = item.read_members();
    ServerItem {
        input_schema: parsed(schemas.input_schema),
        output_schema: parsed(schemas.output_schema),
        arguments: parsed(schemas.arguments),
        ..summarize_item(catalog, kind, server, item)
    }
}

/// Describes an item without its schemas, which cost most of the time.
pub(super) fn summarize_item(
    (gateway, snapshot): (&Gateway, &Snapshot),
    kind: ItemKind,
    server: &RunningServer,
    item: &JsonObject,
) -> ServerItem {
    let local = kind.key_of(item).unwrap_or_else(|| ByteString::literal(""));
    let route = snapshot.find_local(kind, &server.name, &local);
    let named = format!("{} {local}", kind.member());
    // An item that cannot be exposed has no route. Its reason is found by the words it was noted
    // with. Those of an item with a route are about another one of that name, or about a part of
    // the clients.
    let excluded = snapshot
        .excluded
        .iter()
        .find(|out| route.is_none() && out.server == server.settings.name && out.item == named);
    let is_unexposed_tool = kind == ItemKind::Tools && route.is_none();
    let totals = route.map(|route| route.meter.totals()).unwrap_or_default();
    let summary: ItemSummary = item.read_members();
    ServerItem {
        server: server.settings.name.clone(),
        name: local.to_string(),
        exposed: route.map(|route| route.exposed.to_string()),
        expected: is_unexposed_tool.then(|| gateway.expected_name(server, &local).to_string()),
        title: summary.title,
        description: summary.description,
        state: match excluded {
            Some(_) => ItemState::LeftOut,
            None => state_by_rules(rules_of(server, kind).1, &local),
        },
        reason: excluded.map(|out| out.reason.clone()),
        tokens: estimate_tokens(listed_bytes(item, route)),
        annotations: parsed(summary.annotations),
        calls: totals.calls(),
        errors: totals.errors + totals.tool_errors,
        p95_ms: quantile_ms(&totals, 0.95),
        ..ServerItem::default()
    }
}

/// Returns the state that the rules of a server give to an item. The catalogue follows them a
/// moment later, so a new server's items are never shown as switched off.
fn state_by_rules(rules: &ItemRules, local: &str) -> ItemState {
    match (rules.allows_name(local), rules.hide.matches(local)) {
        (false, _) => ItemState::Off,
        (true, true) => ItemState::Hidden,
        (true, false) => ItemState::On,
    }
}

/// Returns the rules for a server's items of a kind, with the table of the config that has them.
fn rules_of(server: &RunningServer, kind: ItemKind) -> (&'static str, &ItemRules) {
    match kind {
        ItemKind::Tools => ("tools", &server.settings.presentation.tools),
        ItemKind::Prompts => ("prompts", &server.settings.presentation.prompts),
        ItemKind::Resources | ItemKind::Templates => {
            ("resources", &server.settings.presentation.resources)
        }
    }
}

/// Parses a member of a definition.
fn parsed(member: Option<RawJson>) -> Option<Value> {
    member?.parse_as().ok()
}

#[cfg(test)]
mod tests {
    use moongate_access::policy::GlobList;

    use super::*;

    fn globs(patterns: &[&str]) -> GlobList {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        GlobList::new(&patterns).unwrap()
    }

    #[test]
    fn only_a_rule_switches_an_item_off() {
        let mut rules = ItemRules::allow_all();
        rules.deny = globs(&["delete_*", "!delete_draft"]);
        rules.hide = globs(&["*_all", "delete_*"]);
        for (name, state) in [
            ("get", ItemState::On),
            ("get_all", ItemState::Hidden),
            ("delete_all", ItemState::Off),
            ("delete_draft", ItemState::Hidden),
        ] {
            assert_eq!(state_by_rules(&rules, name), state, "{name}");
        }
    }
}
