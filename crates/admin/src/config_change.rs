//! Config changes by operators: PATCH and DELETE of a server, undo, and the one way (`apply`) that
//! all routes use.
//!
//! Owns the terms and the checks of a request. Does not edit files (`moongate_config::edit`),
//! reload, or write answers (`change_answer.rs`). Invariant: one request makes one write, which one
//! undo takes back.

use std::collections::BTreeSet;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::request::Parts;
use http::{StatusCode, header};
use serde_json::{Map, Value};

use crate::admin_state::AdminState;
use crate::change_answer::{changed, describe_change, refuse};
use crate::control_types::{ChangeKind, ChangeRefusal, ConfigChange};
use crate::json_body::JsonBody;
use crate::key_check::AccessGrant;
use crate::operator_check::Operator;
use crate::server_name::ServerName;
use moongate_api::{ChangeReport, NO_PREFIX, ServerPatch, ToolSwitches, UndoRequest};
use moongate_config::edit::{ConfigOperation, pattern_of};
use moongate_config::nearest;
use moongate_listener::json_response;
use moongate_model::ItemKind;
use moongate_telemetry::logs;

/// Terms of a change: who makes it, and of which contents.
pub(super) struct ChangeTerms {
    /// Tag that the client expects, from `If-Match`. `*` and no header accept any contents.
    expected_tag: Option<String>,
    /// Name of the operator's key. `None` where no key is asked for.
    operator: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for ChangeTerms {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        // A tag that cannot be read fits no file. To ignore it would overwrite changes of others.
        let given = parts
            .headers
            .get(header::IF_MATCH)
            .map(|value| value.to_str().unwrap_or_default().trim());
        // Proxies that compress make a tag weak. It still identifies the file's bytes, so it
        // stays good.
        let tag = given
            .filter(|tag| *tag != "*")
            .map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
        let operator = parts
            .extensions
            .get()
            .and_then(AccessGrant::key_name)
            .map(str::to_owned);
        Ok(ChangeTerms {
            expected_tag: tag,
            operator,
        })
    }
}

/// Handles `PATCH /api/v1/servers/{name}`.
pub(super) async fn patch_server(
    Operator(admin): Operator,
    ServerName(server): ServerName,
    terms: ChangeTerms,
    JsonBody(patch): JsonBody<ServerPatch>,
) -> Response {
    let ServerPatch {
        enabled,
        tools: ToolSwitches { on, off },
        set,
    } = patch;
    if let Some(refused) = check_tools(&admin, &server, &on, &off) {
        return refused;
    }
    // One list makes one write, and one undo takes back all of it.
    let mut operations = Vec::new();
    if !off.is_empty() {
        operations.push(ConfigOperation::DisableTools(server.clone(), off));
    }
    if !on.is_empty() {
        operations.push(ConfigOperation::EnableTools(server.clone(), on));
    }
    let set: Map<String, Value> = set
        .into_iter()
        .map(|(key, value)| (key.clone(), typed_value(&key, value)))
        .collect();
    if !set.is_empty() {
        operations.push(ConfigOperation::SetKeys {
            server: server.clone(),
            values: set,
        });
    }
    operations.extend(enabled.map(|on| match on {
        true => ConfigOperation::EnableServer(server.clone()),
        false => ConfigOperation::DisableServer(server),
    }));
    change(&admin, ChangeKind::Edit(operations), terms).await
}

/// Refuses tools that are to be on and off, and those that the server does not have, as far as its
/// list is known.
fn check_tools(
    admin: &AdminState,
    server: &str,
    on: &[String],
    off: &[String],
) -> Option<Response> {
    if let Some(both) = on.iter().find(|tool| off.contains(tool)) {
        let message = format!("the tool {both:?} is in both `on` and `off`");
        return Some(json_response(
            StatusCode::BAD_REQUEST,
            "bad_value",
            &message,
        ));
    }
    let servers = admin.gateway.servers();
    let entry = servers
        .iter()
        .find(|entry| entry.settings.name == server && !entry.is_unconfirmed())?;
    let lists = entry.lists();
    let names = lists
        .get(ItemKind::Tools)
        .items
        .iter()
        .filter_map(|item| ItemKind::Tools.key_of(item));
    let known: BTreeSet<String> = names.map(|name| name.to_string()).collect();
    if known.is_empty() {
        return None;
    }
    // A rule may outlive its tool, and can still be taken back.
    let rules = &entry.settings.presentation.tools;
    let patterns = rules.deny.patterns().iter().chain(rules.allow.patterns());
    let ruled: BTreeSet<&str> = patterns
        .map(|pattern| pattern.strip_prefix('!').unwrap_or(pattern))
        .collect();
    let unknown = on
        .iter()
        .chain(off)
        .filter(|tool| !known.contains(*tool))
        .find(|tool| pattern_of(tool).is_none_or(|pattern| !ruled.contains(&*pattern)))?;
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = nearest(unknown, &names)
        .map(|near| format!("; did you mean {near:?}?"))
        .unwrap_or_default();
    let message = logs::redact(&format!("{server} has no tool {unknown:?}{near}"));
    Some(json_response(
        StatusCode::UNPROCESSABLE_ENTITY,
        "unknown_tool",
        &message,
    ))
}

/// Reads a value as people type it: two quotes for no prefix.
fn typed_value(key: &str, value: Value) -> Value {
    match value.as_str() {
        // An empty field of a form removes its key, and a prefix can have no quotes.
        Some(text) if key == "prefix" && text.trim() == NO_PREFIX => "".into(),
        _ => value,
    }
}

/// Handles `DELETE /api/v1/servers/{name}`.
pub(super) async fn remove_server(
    Operator(admin): Operator,
    ServerName(server): ServerName,
    terms: ChangeTerms,
) -> Response {
    change(
        &admin,
        ChangeKind::Edit(vec![ConfigOperation::RemoveServer(server)]),
        terms,
    )
    .await
}

/// Handles `POST /api/v1/config/undo`.
pub(super) async fn undo(
    Operator(admin): Operator,
    terms: ChangeTerms,
    JsonBody(request): JsonBody<UndoRequest>,
) -> Response {
    let expected_tag = request.etag.or(terms.expected_tag);
    change(
        &admin,
        ChangeKind::Undo,
        ChangeTerms {
            expected_tag,
            ..terms
        },
    )
    .await
}

async fn change(admin: &AdminState, kind: ChangeKind, terms: ChangeTerms) -> Response {
    match apply(admin, kind, terms).await {
        Ok(report) => changed(StatusCode::OK, &report.etag, &report),
        Err(refused) => refused,
    }
}

/// Makes a change. Returns its report, or the response that refuses it.
pub(super) async fn apply(
    admin: &AdminState,
    kind: ChangeKind,
    terms: ChangeTerms,
) -> Result<ChangeReport, Response> {
    request_change(admin, kind, terms)
        .await
        .map_err(|refusal| refuse(admin, &refusal))
}

/// Makes a change. Returns its report, or the refusal.
pub(super) async fn request_change(
    admin: &AdminState,
    kind: ChangeKind,
    terms: ChangeTerms,
) -> Result<ChangeReport, ChangeRefusal> {
    let ChangeTerms {
        expected_tag,
        operator,
    } = terms;
    let applied = admin
        .editor
        .change_config(ConfigChange {
            kind,
            expected_tag,
            operator,
        })
        .await?;
    Ok(describe_change(admin, applied))
}
