//! Clients that can use the gateway, and the steps that connect each.
//!
//! Owns the request for the steps, and the search for a client that is connected. Does not know how an entry looks
//! (`moongate_clients`). Invariant: no file of a client is read, and no key is shown.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::actions::Viewer;
use crate::query_map::QueryMap;
use crate::sessions::session_rows;
use crate::{AdminState, json};
use moongate_api::SessionRow;
use moongate_clients::{
    ClientProfile, ConnectKey, ConnectMethod, ConnectRequest, ConnectRoute, LauncherVariables, StartCommand,
    client_of_session, connect_steps, shown_file,
};
use moongate_listener::json_response;
use moongate_model::{ItemKind, Principal};
use moongate_platform::Platform;

/// Name of our entry in clients.
const ENTRY_NAME: &str = "moongate";
/// Variable that clients read the key from, and the key that stands in an entry of those that read none.
const KEY_VARIABLE: &str = "MOONGATE_KEY";
// The gateway has only hashes of keys, so it cannot show a real one.
const KEY_PLACEHOLDER: &str = "mg_your_key";
/// Time in which the calls of a client without a session count as its presence.
const PRESENCE_SECONDS: u64 = 600;

/// Handles `GET /api/v1/clients`.
pub(super) async fn clients(Viewer(admin): Viewer) -> Response {
    let signs = client_signs(&admin);
    let clients: Vec<Value> = moongate_clients::clients().map(|profile| client_json(&signs, profile)).collect();
    json(StatusCode::OK, &json!({ "clients": clients }))
}

fn client_json(signs: &[ClientSign], profile: &ClientProfile) -> Value {
    json!({
        "id": profile.id,
        "title": profile.title,
        "method": method_name(profile.method),
        "path": shown_file(profile, Platform::CURRENT),
        "name_length": profile.limits.name_length,
        "tools": profile.limits.tools,
        "present": presence_json(signs, profile),
    })
}

fn method_name(method: ConnectMethod) -> &'static str {
    match method {
        ConnectMethod::File => "file",
        ConnectMethod::Paste => "paste",
        ConnectMethod::PublicUrl => "public_url",
        ConnectMethod::Discontinued => "discontinued",
    }
}

/// Handles `GET /api/v1/connect`.
pub(super) async fn connect(Viewer(admin): Viewer, query: QueryMap) -> Response {
    let (id, endpoint) = (query.text("client"), endpoint_name(query.text("endpoint")));
    if id.is_empty() {
        let message = "`client` is missing: GET /api/v1/clients lists their ids";
        return json_response(StatusCode::BAD_REQUEST, "bad_query", message);
    }
    let Some(profile) = moongate_clients::client(id) else {
        let near = moongate_clients::nearest_client(id).map(|near| format!("; did you mean {:?}?", near.id));
        let message = format!("There is no client {id:?}{}", near.unwrap_or_default());
        return json_response(StatusCode::NOT_FOUND, "not_found", &message);
    };
    if admin.gateway.endpoint_coverage(endpoint).is_none() {
        let message = format!("There is no endpoint {endpoint:?}");
        return json_response(StatusCode::NOT_FOUND, "not_found", &message);
    }
    let url = admin.url_of_endpoint(endpoint);
    if url.is_empty() {
        let message = "No URL leads to an endpoint: gateway.listen has sockets only";
        return json_response(StatusCode::CONFLICT, "no_address", message);
    }
    let steps = steps_json(&admin, profile, &url);
    json(StatusCode::OK, &json!({ "client": profile.id, "endpoint": endpoint, "url": url, "steps": steps }))
}

/// Returns the name of an endpoint that is written as a name, or as a path.
fn endpoint_name(text: &str) -> &str {
    let rest = text.strip_prefix("/mcp").unwrap_or(text);
    rest.strip_prefix('/').unwrap_or(rest)
}

/// Describes the steps that connect a client to the endpoint at a URL.
pub(super) fn steps_json(admin: &AdminState, profile: &ClientProfile, url: &str) -> Vec<Value> {
    let needs_key = !admin.listener_state.load().auth.is_open();
    let key = ConnectKey::Variable { name: KEY_VARIABLE.to_owned(), value: Some(KEY_PLACEHOLDER.to_owned()) };
    // The whole path: clients often start programs without the `PATH` of a shell.
    let start = match std::env::current_exe() {
        Ok(program) => StartCommand::find(&program, &LauncherVariables::of_process(), env!("CARGO_PKG_VERSION")),
        Err(_) => StartCommand::program("moongate"),
    };
    let request = ConnectRequest {
        name: ENTRY_NAME.to_owned(),
        url: url.to_owned(),
        key: needs_key.then_some(key),
        route: ConnectRoute::Best,
        start,
    };
    let steps = connect_steps(profile, &request, shown_file(profile, Platform::CURRENT).as_deref());
    steps
        .iter()
        .map(
            |step| json!({ "kind": step.kind.name(), "text": step.text, "path": step.path, "language": step.language }),
        )
        .collect()
}

/// Returns the names of the keys that may use an endpoint.
pub(super) fn usable_keys(admin: &AdminState, endpoint: &str) -> Vec<String> {
    let listener_state = admin.listener_state.load();
    let principals = listener_state.auth.principals();
    let may_use = |principal: &Arc<Principal>| {
        principals.admits(principal) && listener_state.endpoints.allows(endpoint, principal)
    };
    let mut names: Vec<String> =
        principals.all().into_iter().filter(may_use).map(|principal| principal.name.clone()).collect();
    names.sort_unstable();
    names
}

/// Sign that a client uses the gateway: a session, or a recent call.
pub(super) struct ClientSign {
    profile: &'static ClientProfile,
    name: String,
    version: String,
    seconds: u64,
}

/// Collects the signs of all known clients.
pub(super) fn client_signs(admin: &AdminState) -> Vec<ClientSign> {
    let sign = |name: &str, version: &str, seconds| {
        let profile = client_of_session(name)?;
        Some(ClientSign { profile, name: name.to_owned(), version: version.to_owned(), seconds })
    };
    let mut signs = Vec::new();
    for SessionRow { client, idle_seconds, .. } in session_rows(admin) {
        signs.extend(sign(&client.name.unwrap_or_default(), &client.version.unwrap_or_default(), idle_seconds));
    }
    // Clients of the stateless revision have no session.
    for call in admin.gateway.recent_calls().changed_since(0) {
        let ((name, version), seconds) = (call.client(), call.facts.received.elapsed().as_secs());
        signs.extend(sign(&name, &version, seconds).filter(|_| seconds < PRESENCE_SECONDS));
    }
    signs
}

/// Describes the newest sign of a client. Null if there is none.
pub(super) fn presence_json(signs: &[ClientSign], profile: &ClientProfile) -> Value {
    let newest = signs.iter().filter(|sign| sign.profile.id == profile.id).min_by_key(|sign| sign.seconds);
    newest.map_or(Value::Null, |sign| json!({ "name": sign.name, "version": sign.version, "seconds": sign.seconds }))
}

/// Returns the exposed names that are too long for a client, with the name of our entry in front.
pub(super) fn too_long_names(admin: &AdminState, profile: &ClientProfile, endpoint: &str) -> Vec<String> {
    let (Some(max), Some(coverage)) = (profile.limits.name_length, admin.gateway.endpoint_coverage(endpoint)) else {
        return Vec::new();
    };
    let snapshot = admin.gateway.snapshot();
    let listed = snapshot.iter(ItemKind::Tools).filter(|route| !route.hidden && coverage.has_tool(route));
    let names = listed.map(|route| if coverage.keeps_local_names() { &route.local } else { &route.exposed });
    names.filter(|name| name.chars().count() + ENTRY_NAME.len() > max).map(|name| name.to_string()).collect()
}
