//! Clients that can use the gateway, the steps that connect each, and its warnings: names that are
//! too long, keys that may use an endpoint.
//!
//! Owns the request for the steps, and the search for a client that is connected. Does not know how
//! an entry looks (`moongate_clients`). Invariant: no file of a client is read, and no key is
//! shown.

use axum::response::Response;
use http::StatusCode;

use crate::admin_state::AdminState;
use crate::endpoint_path::endpoint_name;
use crate::json_answer::json;
use crate::operator_check::Viewer;
use crate::query_map::QueryMap;
use crate::sessions::session_rows;
use moongate_api::{
    ClientList, ClientPresence, ClientRow, ConnectMethod, ConnectStep, ConnectSteps, SessionRow,
    StepKind,
};
use moongate_clients::{
    ClientProfile, ConnectKey, ConnectRequest, ConnectRoute, KEY_VARIABLE, LauncherVariables,
    StartCommand, client_of_session, connect_steps, shown_file,
};
use moongate_listener::json_response;
use moongate_model::ItemKind;
use moongate_platform::Platform;

/// Name of our entry in clients.
const ENTRY_NAME: &str = "moongate";
/// Key in an entry of a client that reads no variable.
// The gateway has only hashes of keys, so it cannot show a real one.
const KEY_PLACEHOLDER: &str = "mg_your_key";
/// Time in which the calls of a client without a session count as its presence.
const PRESENCE_SECONDS: u64 = 600;

/// Handles `GET /api/v1/clients`.
pub(super) async fn clients(Viewer(admin): Viewer) -> Response {
    json(StatusCode::OK, &list_clients(&admin))
}

/// Lists the clients, with what is known of their presence.
pub(super) fn list_clients(admin: &AdminState) -> ClientList {
    let signs = client_signs(admin);
    ClientList {
        clients: moongate_clients::clients()
            .map(|profile| client_row(&signs, profile))
            .collect(),
    }
}

/// Describes one client. `None` if there is none with this id.
pub(super) fn find_client(admin: &AdminState, id: &str) -> Option<ClientRow> {
    Some(client_row(
        &client_signs(admin),
        moongate_clients::client(id)?,
    ))
}

fn client_row(signs: &[ClientSign], profile: &ClientProfile) -> ClientRow {
    ClientRow {
        id: profile.id.to_owned(),
        title: profile.title.to_owned(),
        method: connect_method(profile.method),
        path: shown_file(profile, Platform::CURRENT),
        name_length: profile.limits.name_length,
        tools: profile.limits.tools,
        present: find_presence(signs, profile),
    }
}

fn connect_method(method: moongate_clients::ConnectMethod) -> ConnectMethod {
    match method {
        moongate_clients::ConnectMethod::File => ConnectMethod::File,
        moongate_clients::ConnectMethod::Paste => ConnectMethod::Paste,
        moongate_clients::ConnectMethod::PublicUrl => ConnectMethod::PublicUrl,
        moongate_clients::ConnectMethod::Discontinued => ConnectMethod::Discontinued,
    }
}

/// Handles `GET /api/v1/connect`.
pub(super) async fn connect(Viewer(admin): Viewer, query: QueryMap) -> Response {
    let id = query.text("client");
    let endpoint = endpoint_name(query.text("endpoint"));
    if id.is_empty() {
        let message = "`client` is missing; GET /api/v1/clients lists the ids";
        return json_response(StatusCode::BAD_REQUEST, "bad_query", message);
    }
    let Some(profile) = moongate_clients::client(id) else {
        let near = moongate_clients::nearest_client(id)
            .map(|near| format!("; did you mean {:?}?", near.id));
        let message = format!("There is no client {id:?}{}", near.unwrap_or_default());
        return json_response(StatusCode::NOT_FOUND, "not_found", &message);
    };
    if admin.gateway.endpoint_coverage(endpoint).is_none() {
        let message = format!("There is no endpoint {endpoint:?}");
        return json_response(StatusCode::NOT_FOUND, "not_found", &message);
    }
    let url = admin.url_of_endpoint(endpoint);
    if url.is_empty() {
        let message = "No endpoint has a URL: gateway.listen has only sockets";
        return json_response(StatusCode::CONFLICT, "no_address", message);
    }
    let steps = steps_of(&admin, profile, &url);
    json(
        StatusCode::OK,
        &ConnectSteps {
            client: profile.id.to_owned(),
            endpoint: endpoint.to_owned(),
            url,
            steps,
        },
    )
}

/// Describes the steps that connect a client to the endpoint at a URL. None for an unknown client.
pub(super) fn find_steps(admin: &AdminState, client: &str, url: &str) -> Vec<ConnectStep> {
    moongate_clients::client(client)
        .map(|profile| steps_of(admin, profile, url))
        .unwrap_or_default()
}

fn steps_of(admin: &AdminState, profile: &ClientProfile, url: &str) -> Vec<ConnectStep> {
    let key = ConnectKey::Variable {
        name: KEY_VARIABLE.to_owned(),
        value: Some(KEY_PLACEHOLDER.to_owned()),
    };
    // The whole path: clients often start programs without the `PATH` of a shell.
    let start = match std::env::current_exe() {
        Ok(program) => StartCommand::find(
            &program,
            &LauncherVariables::of_process(),
            env!("CARGO_PKG_VERSION"),
        ),
        Err(_) => StartCommand::program("moongate"),
    };
    let request = ConnectRequest {
        name: ENTRY_NAME.to_owned(),
        url: url.to_owned(),
        key: None,
        route: ConnectRoute::Best,
        start,
    };
    // Where people log in, a client needs no key, but our bridge sends nothing else.
    let can_log_in = admin.people.can_log_in() && !request.is_bridged(profile);
    let needs_key = !admin.listener_state.load().auth.is_open() && !can_log_in;
    let request = ConnectRequest {
        key: needs_key.then_some(key),
        ..request
    };
    let steps = connect_steps(
        profile,
        &request,
        shown_file(profile, Platform::CURRENT).as_deref(),
    );
    steps.into_iter().map(step_row).collect()
}

fn step_row(step: moongate_clients::ConnectStep) -> ConnectStep {
    ConnectStep {
        kind: match step.kind {
            moongate_clients::StepKind::Link => StepKind::Link,
            moongate_clients::StepKind::Command => StepKind::Command,
            moongate_clients::StepKind::File => StepKind::File,
            moongate_clients::StepKind::Note => StepKind::Note,
        },
        text: step.text,
        path: step.path,
        language: step.language.map(str::to_owned),
    }
}

/// Returns the names of the keys that may use an endpoint.
pub(super) fn usable_keys(admin: &AdminState, endpoint: &str) -> Vec<String> {
    let listener_state = admin.listener_state.load();
    let principals = listener_state.auth.principals();
    let mut names: Vec<String> = principals
        .all()
        .into_iter()
        .filter(|principal| {
            principals.admits(principal) && listener_state.endpoints.allows(endpoint, principal)
        })
        .map(|principal| principal.name.clone())
        .collect();
    names.sort_unstable();
    names
}

/// Sign that a client uses the gateway: a session, or a recent call.
struct ClientSign {
    profile: &'static ClientProfile,
    name: String,
    version: String,
    seconds: u64,
}

impl ClientSign {
    /// Returns the sign of a client that is known by its name.
    fn of(name: &str, version: &str, seconds: u64) -> Option<Self> {
        Some(ClientSign {
            profile: client_of_session(name)?,
            name: name.to_owned(),
            version: version.to_owned(),
            seconds,
        })
    }
}

/// Collects the signs of all known clients.
fn client_signs(admin: &AdminState) -> Vec<ClientSign> {
    let mut signs = Vec::new();
    for SessionRow {
        client,
        idle_seconds,
        ..
    } in session_rows(admin)
    {
        signs.extend(ClientSign::of(
            &client.name.unwrap_or_default(),
            &client.version.unwrap_or_default(),
            idle_seconds,
        ));
    }
    // Clients of the stateless revision have no session.
    for call in admin.gateway.recent_calls().changed_since(0) {
        let ((name, version), seconds) = (call.client(), call.facts.received.elapsed().as_secs());
        signs.extend(
            ClientSign::of(&name, &version, seconds).filter(|_| seconds < PRESENCE_SECONDS),
        );
    }
    signs
}

/// Describes the newest sign of a client. `None` if there is none.
fn find_presence(signs: &[ClientSign], profile: &ClientProfile) -> Option<ClientPresence> {
    let newest = signs
        .iter()
        .filter(|sign| sign.profile.id == profile.id)
        .min_by_key(|sign| sign.seconds)?;
    Some(ClientPresence {
        name: newest.name.clone(),
        version: newest.version.clone(),
        seconds: newest.seconds,
    })
}

/// Returns the exposed names that are too long for a client, with the name of our entry in front.
pub(super) fn too_long_names(
    admin: &AdminState,
    client: &ClientRow,
    endpoint: &str,
) -> Vec<String> {
    let (Some(max), Some(coverage)) = (
        client.name_length,
        admin.gateway.endpoint_coverage(endpoint),
    ) else {
        return Vec::new();
    };
    let snapshot = admin.gateway.snapshot();
    let listed = snapshot
        .iter(ItemKind::Tools)
        .filter(|route| !route.hidden && coverage.has_tool(route));
    let names = listed.map(|route| {
        if coverage.keeps_local_names() {
            &route.local
        } else {
            &route.exposed
        }
    });
    names
        .filter(|name| name.chars().count() + ENTRY_NAME.len() > max)
        .map(|name| name.to_string())
        .collect()
}
