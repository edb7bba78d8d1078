//! Changes of the config by operators: switch servers and tools, set how they look, remove, undo.
//!
//! Owns the bodies and the answers. Does not edit files (`moongate_config::edit`) or reload. Invariant: an answer says
//! what is true afterwards, and shows no secret.

use std::collections::BTreeSet;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::access::AccessGrant;
use crate::actions::Operator;
use crate::config_control::{AppliedChange, ChangeKind, ChangeRefusal, ConfigChange};
use crate::json_body::JsonBody;
use crate::server_name::ServerName;
use crate::status::server_statuses;
use crate::{AdminState, json};
use moongate_config::edit::{ConfigOperation, pattern_of};
use moongate_config::{ConfigProblem, ProblemOrigin, nearest};
use moongate_listener::json_response;
use moongate_model::ItemKind;
use moongate_telemetry::logs;

/// Text that stands for no prefix, where an empty one cannot be sent.
pub(super) const NO_PREFIX: &str = "\"\"";

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
        let given = parts.headers.get(header::IF_MATCH).map(|value| value.to_str().unwrap_or_default().trim());
        // Proxies that compress make a tag weak. It stands for the bytes of the file, so it stays good.
        let tag = given.filter(|tag| *tag != "*").map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
        let operator = parts.extensions.get().and_then(AccessGrant::key_name).map(str::to_owned);
        Ok(ChangeTerms { expected_tag: tag, operator })
    }
}

/// Body of `PATCH /api/v1/servers/{name}`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerPatch {
    enabled: Option<bool>,
    tools: ToolSwitches,
    /// Keys of the server's entry. Null removes one.
    set: Map<String, Value>,
}

/// Tools to switch, by the server's own names.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ToolSwitches {
    on: Vec<String>,
    off: Vec<String>,
}

/// Body of `POST /api/v1/config/undo`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UndoRequest {
    /// Tag that the edit left, as its answer had it.
    etag: Option<String>,
}

/// Handles `PATCH /api/v1/servers/{name}`.
pub(super) async fn patch_server(
    Operator(admin): Operator,
    ServerName(server): ServerName,
    terms: ChangeTerms,
    JsonBody(patch): JsonBody<ServerPatch>,
) -> Response {
    let ServerPatch { enabled, tools: ToolSwitches { on, off }, set } = patch;
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
    let set: Map<String, Value> = set.into_iter().map(|(key, value)| (key.clone(), typed_value(&key, value))).collect();
    if !set.is_empty() {
        operations.push(ConfigOperation::SetKeys { server: server.clone(), values: set });
    }
    operations.extend(enabled.map(|on| match on {
        true => ConfigOperation::EnableServer(server.clone()),
        false => ConfigOperation::DisableServer(server),
    }));
    change(&admin, ChangeKind::Edit(operations), terms).await
}

/// Refuses tools that are to be on and off, and those that the server does not have, as far as its list is known.
fn check_tools(admin: &AdminState, server: &str, on: &[String], off: &[String]) -> Option<Response> {
    if let Some(both) = on.iter().find(|tool| off.contains(tool)) {
        let message = format!("the tool {both:?} is both in `on` and in `off`");
        return Some(json_response(StatusCode::BAD_REQUEST, "bad_value", &message));
    }
    let servers = admin.gateway.servers();
    let entry = servers.iter().find(|entry| entry.settings.name == server && !entry.is_unconfirmed())?;
    let lists = entry.lists();
    let names = lists.get(ItemKind::Tools).items.iter().filter_map(|item| item.get_string(ItemKind::Tools.item_key()));
    let known: BTreeSet<String> = names.map(|name| name.to_string()).collect();
    if known.is_empty() {
        return None;
    }
    // A rule may outlive its tool, and can still be taken back.
    let rules = &entry.settings.tools;
    let patterns = rules.deny.patterns().iter().chain(rules.allow.patterns());
    let ruled: BTreeSet<&str> = patterns.map(|pattern| pattern.strip_prefix('!').unwrap_or(pattern)).collect();
    let has_rule = |tool: &str| pattern_of(tool).is_some_and(|pattern| ruled.contains(&*pattern));
    let unknown = on.iter().chain(off).find(|tool| !known.contains(*tool) && !has_rule(tool))?;
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = nearest(unknown, &names).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
    let message = logs::redact(&format!("{server} has no tool {unknown:?}{near}"));
    Some(json_response(StatusCode::UNPROCESSABLE_ENTITY, "unknown_tool", &message))
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
    change(&admin, ChangeKind::Edit(vec![ConfigOperation::RemoveServer(server)]), terms).await
}

/// Handles `POST /api/v1/config/undo`.
pub(super) async fn undo(
    Operator(admin): Operator,
    terms: ChangeTerms,
    JsonBody(request): JsonBody<UndoRequest>,
) -> Response {
    let expected_tag = request.etag.or(terms.expected_tag);
    change(&admin, ChangeKind::Undo, ChangeTerms { expected_tag, ..terms }).await
}

async fn change(admin: &AdminState, kind: ChangeKind, terms: ChangeTerms) -> Response {
    match apply(admin, kind, terms).await {
        Ok(body) => changed(StatusCode::OK, &body),
        Err(refused) => refused,
    }
}

/// Makes a change. Returns the body of the answer, or the response that refuses it.
pub(super) async fn apply(admin: &AdminState, kind: ChangeKind, terms: ChangeTerms) -> Result<Value, Response> {
    request_change(admin, kind, terms).await.map_err(|refusal| refuse(admin, &refusal))
}

/// Makes a change. Returns the body of the answer, or the refusal.
pub(super) async fn request_change(
    admin: &AdminState,
    kind: ChangeKind,
    terms: ChangeTerms,
) -> Result<Value, ChangeRefusal> {
    let ChangeTerms { expected_tag, operator } = terms;
    let applied = admin.control.change_config(ConfigChange { kind, expected_tag, operator }).await?;
    Ok(describe_change(admin, applied))
}

/// Answers with a change that was made, and the tag of its file.
pub(super) fn changed(status: StatusCode, body: &Value) -> Response {
    with_tag(json(status, body), body["etag"].as_str().unwrap_or_default())
}

fn describe_change(admin: &AdminState, applied: AppliedChange) -> Value {
    let AppliedChange { file, line, diff, tag, summary, can_undo, mut servers, problems, reload } = applied;
    // A reload may touch servers that the request does not name. Their states belong to the answer.
    for kind in ["added", "removed", "replaced", "changed"] {
        let names = reload["changes"][kind].as_array().into_iter().flatten().filter_map(Value::as_str);
        servers.extend(names.map(str::to_owned));
    }
    let mut states = server_statuses(admin);
    states.retain(|state| servers.iter().any(|name| name == state.name()));
    json!({
        "outcome": if diff.is_empty() { "unchanged" } else { "changed" },
        "summary": summary,
        "file": file.display().to_string(),
        "line": line,
        "diff": diff,
        "etag": tag,
        "undo": can_undo,
        "problems": problems.iter().map(problem_json).collect::<Vec<_>>(),
        "reload": reload,
        "servers": states,
    })
}

fn with_tag(mut response: Response, tag: &str) -> Response {
    // The tag is made of hex digits.
    if let Ok(value) = HeaderValue::from_str(&format!("\"{tag}\"")) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

pub(super) fn refuse(admin: &AdminState, ChangeRefusal { error, tag }: &ChangeRefusal) -> Response {
    let (status, setting) = match error.code {
        "unknown_server" | "unknown_key" => (StatusCode::NOT_FOUND, None),
        "last_operator" => (StatusCode::CONFLICT, Some("admin.keys")),
        "bad_value" | "bad_name" => (StatusCode::BAD_REQUEST, None),
        "edit_off" => (StatusCode::FORBIDDEN, Some("admin.edit")),
        "commands_not_allowed" => (StatusCode::FORBIDDEN, Some("admin.allow_commands")),
        "address_not_allowed" => (StatusCode::FORBIDDEN, None),
        "changed" => (StatusCode::PRECONDITION_FAILED, None),
        "already_there" | "busy" | "locked" | "no_file" | "nothing_to_undo" | "overridden" => {
            (StatusCode::CONFLICT, None)
        }
        "no_space" => (StatusCode::INSUFFICIENT_STORAGE, None),
        "io" | "internal" => (StatusCode::INTERNAL_SERVER_ERROR, None),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, None),
    };
    // GitOps and a file system refuse for one reason: this config is changed elsewhere.
    let code = if error.code == "edit_off" { "read_only" } else { error.code };
    let mut body = json!({
        "error": code,
        "message": logs::redact(&error.message),
        "setting": setting,
        "snippet": error.snippet,
        "problems": error.problems.iter().map(problem_json).collect::<Vec<_>>(),
    });
    let Some(tag) = tag else { return json(status, &body) };
    body["etag"] = tag.as_str().into();
    // The state that the client did not know.
    body["servers"] = json!(server_statuses(admin));
    with_tag(json(status, &body), tag)
}

pub(super) fn problem_json(problem: &ConfigProblem) -> Value {
    let (file, line, column) = match &problem.origin {
        ProblemOrigin::File { path, line, column } => (Some(path.display().to_string()), *line, *column),
        ProblemOrigin::Variable(name) => (Some(format!("${name}")), 0, 0),
        ProblemOrigin::Flag(name) => (Some(name.clone()), 0, 0),
        ProblemOrigin::Nowhere => (None, 0, 0),
    };
    let number = |number: usize| (number > 0).then_some(number);
    json!({
        "file": file, "line": number(line), "column": number(column), "message": problem.message, "hint": problem.fix,
        "server": problem.server,
    })
}
