//! Status of every server: the answer of `/api/v1/status`.
//!
//! Owns its members. Does not change anything. Invariant: each text of a peer is redacted and in one line.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::actions::SameSite;
use crate::calls::timestamp;
use crate::config_view::source_json;
use crate::server_name::ServerName;
use crate::{AdminState, items, json, server_details};
use moongate_gateway::{FindingTopic, Snapshot};
use moongate_listener::json_response;
use moongate_model::{ItemKind, UpstreamState};
use moongate_telemetry::logs;
use moongate_upstream::Upstream;

/// Reports the state of every server, and its cause.
pub(super) async fn status(_: SameSite, Shared(admin): Shared<Arc<AdminState>>) -> Response {
    json(StatusCode::OK, &status_json(&admin))
}

/// Handles `GET /api/v1/servers/{name}`.
pub(super) async fn server(
    _: SameSite,
    Shared(admin): Shared<Arc<AdminState>>,
    ServerName(name): ServerName,
) -> Response {
    match servers_json(&admin).into_iter().find(|server| server["name"] == *name) {
        Some(server) => json(StatusCode::OK, &server),
        None => {
            let message = format!("There is no server {name:?}; /api/v1/status lists them");
            json_response(StatusCode::NOT_FOUND, "not_found", &message)
        }
    }
}

/// Builds the body of the status page.
pub(super) fn status_json(admin: &AdminState) -> Value {
    let snapshot = admin.gateway.snapshot();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "servers": servers_json(admin),
        // Findings about views and keys, which belong to no server.
        (FindingTopic::Filter.name()): snapshot.findings_about(None, FindingTopic::Filter),
    })
}

/// Describes every configured server, disabled ones last.
pub(super) fn servers_json(admin: &AdminState) -> Vec<Value> {
    let snapshot = admin.gateway.snapshot();
    let members = admin.gateway.servers();
    let uses = items::use_by_server(&snapshot);
    let config = admin.control.config();
    let errors = admin.gateway.recent_calls().last_errors();
    let servers = members.iter().map(|upstream| {
        let pending = admin
            .gateway
            .replacement_status(&upstream.settings.name)
            .map(|pending| json!({ "state": pending.state.name(), "reason": logs::redact(&pending.reason) }));
        let status = upstream.status();
        let items = upstream.lists();
        let left_out = snapshot.excluded.iter().filter(|l| l.server == upstream.settings.name);
        let wait =
            status.next_attempt.map(|at| at.saturating_duration_since(tokio::time::Instant::now()).as_secs_f64());
        let mut server = json!({
            "name": upstream.settings.name,
            "state": status.state.name(),
            "reason": logs::redact(&status.reason),
            "hint": admin.control.server_hint(upstream).map(|hint| json!({ "code": hint.code, "text": logs::redact(&hint.text) })),
            "next_attempt_seconds": wait,
            // Replacement that has not connected yet.
            "replacement": pending,
            "revision": upstream.revision(),
            "pid": status.pid,
            "shared": shared_connections_json(upstream),
            "connections": upstream.dedicated_count(),
            "waiting": upstream.queue_len(),
            "inflight": upstream.inflight(),
            "last_error": errors.get(&upstream.settings.name).map(|(at, message)| json!({ "at": timestamp(*at), "message": message })),
            "tools": items.get(ItemKind::Tools).items.len(),
            "resources": items.get(ItemKind::Resources).items.len(),
            "prompts": items.get(ItemKind::Prompts).items.len(),
            "stale": upstream.is_unconfirmed(),
            "left_out": left_out.map(|l| format!("{}: {}", l.item, l.reason)).collect::<Vec<_>>(),
            // Programs print keys when they fail, and operators paste this page into reports.
            "stderr": upstream.stderr().iter().map(|line| logs::redact(line)).collect::<Vec<_>>(),
            "source": source_json(&config, &upstream.settings.name),
            "name_prefix": admin.gateway.name_beginning(&upstream.settings.prefix),
        });
        if let Some(server) = server.as_object_mut() {
            server.extend(findings_of(&snapshot, &upstream.settings.name));
            server.extend(server_details::describe_server(upstream, &admin.metrics));
            server.extend(items::describe_use(upstream, uses.get(upstream.settings.name.as_str()), &snapshot));
        }
        server
    });
    let disabled = admin.gateway.disabled();
    // The same members as above: clients of the API need no case for disabled servers.
    let disabled = disabled.iter().map(|server| {
        let mut about = json!({
            "name": server.name, "state": UpstreamState::Disabled.name(), "reason": "the config says enabled = false",
            "hint": null, "next_attempt_seconds": null, "revision": null, "pid": null, "shared": [], "connections": 0, "waiting": 0,
            "inflight": 0, "last_error": null, "start": null, "share": null,
            "tools": 0, "resources": 0, "prompts": 0, "stale": false, "left_out": [], "stderr": [],
            "server": { "name": null, "version": null }, "since": null, "since_seconds": null, "restarts": 0, "tokens": 0,
            "enabled": false, "source": source_json(&config, &server.name), "name_prefix": admin.gateway.name_beginning(&server.prefix), "tools_on": 0, "tokens_all": 0, "calls": { "ok": 0, "tool_error": 0, "error": 0 }, "p50_ms": null, "p95_ms": null,
        });
        if let Some(about) = about.as_object_mut() {
            about.extend(findings_of(&snapshot, &server.name));
            about.extend(server_details::describe_disabled(server));
        }
        about
    });
    servers.chain(disabled).collect()
}

/// Lists the connections that all clients of an era share.
fn shared_connections_json(upstream: &Upstream) -> Vec<Value> {
    let shared = upstream.shared_connections().into_iter();
    shared.map(|(revision, pid)| json!({ "revision": revision, "pid": pid })).collect()
}

/// Returns the findings about a server, by topic.
fn findings_of(snapshot: &Snapshot, server: &str) -> impl Iterator<Item = (String, Value)> {
    FindingTopic::ALL.into_iter().map(move |topic| {
        let texts = snapshot.findings_about(Some(server), topic);
        (topic.name().to_owned(), json!(texts))
    })
}
