//! Clients for operators: legacy sessions, and recent clients that have none.
//!
//! Owns their list, and the handler that ends a session. Ends a session only on request. Does not
//! keep sessions (`moongate_session`). Invariant: the session id, which is a secret, is never
//! shown.

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use crate::admin_state::AdminState;
use crate::endpoint_path::endpoint_path;
use crate::json_answer::{action_done, json};
use crate::operator_check::{Operator, Viewer};
use crate::time_format::timestamp_to_second;
use moongate_api::{ClientName, SessionList, SessionRow, StatelessClient};
use moongate_listener::json_response;
use moongate_model::PeerName;
use moongate_protocol::{Era, era_of};
use moongate_session::SessionSummary;
use moongate_telemetry::logs;

/// Maximum number of sessions in one answer.
const SESSIONS_MAX: usize = 1000;

/// Handles `GET /api/v1/sessions`.
pub(super) async fn sessions(Viewer(admin): Viewer) -> Response {
    let total = admin.metrics.clients.sessions.get();
    let sessions = session_rows(&admin);
    let stateless = stateless_clients(&admin);
    json(
        StatusCode::OK,
        &SessionList {
            total,
            sessions,
            stateless,
        },
    )
}

/// Handles `DELETE /api/v1/sessions/{id}`.
pub(super) async fn end(Operator(admin): Operator, Path(id): Path<String>) -> Response {
    if admin
        .listener_state
        .load()
        .downstream
        .sessions
        .end_by_short_id(&id)
    {
        return action_done("ended", id);
    }
    json_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is no session with this id; it may have ended",
    )
}

/// Describes the sessions in use, newest first.
pub(super) fn session_rows(admin: &AdminState) -> Vec<SessionRow> {
    let sessions = admin
        .listener_state
        .load()
        .downstream
        .sessions
        .overview(SESSIONS_MAX);
    sessions.iter().map(session_row).collect()
}

fn session_row(session: &SessionSummary) -> SessionRow {
    let info = session.caller.client_info.as_ref();
    let said = info.map(PeerName::of).unwrap_or_default();
    let began = i64::try_from(session.began)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let age = began.map(|began| {
        jiff::Timestamp::now()
            .duration_since(began)
            .as_secs()
            .max(0)
    });
    SessionRow {
        id: session.id.clone(),
        client: ClientName {
            name: said.name.as_deref().map(shown_text),
            version: said.version.as_deref().map(shown_text),
        },
        principal: session.caller.principal.name.clone(),
        endpoint: endpoint_path(&session.endpoint),
        revision: session.caller.revision.to_owned(),
        one_stream: session.has_shared_stream,
        since: began.and_then(timestamp_to_second),
        since_seconds: age,
        idle_seconds: session.idle.as_secs(),
        calls: session.calls as u64,
        streams: session.streams,
        subscriptions: session.subscriptions as u64,
    }
}

/// Returns a text that a client says of itself, in one line and cut.
fn shown_text(text: &str) -> String {
    logs::one_line(text).chars().take(100).collect()
}

/// Describes the clients of the recent calls whose revision has no sessions, the last one to call
/// first.
pub(super) fn stateless_clients(admin: &AdminState) -> Vec<StatelessClient> {
    let mut clients: Vec<StatelessClient> = Vec::new();
    for call in admin.gateway.recent_calls().changed_since(0) {
        let facts = &call.facts;
        if era_of(facts.client_revision) != Era::Modern {
            continue;
        }
        let (name, version) = call.client();
        let running = u64::from(call.result.is_none());
        let client = StatelessClient {
            client: ClientName {
                name: Some(name),
                version: Some(version),
            },
            principal: facts.principal.name.clone(),
            endpoint: endpoint_path(&facts.endpoint),
            revision: facts.client_revision.to_owned(),
            calls: running,
            recent_calls: 1,
            idle_seconds: facts.received.elapsed().as_secs(),
        };
        match clients
            .iter_mut()
            .find(|known| is_same_client(known, &client))
        {
            Some(known) => {
                known.calls += running;
                known.recent_calls += 1;
            }
            None => clients.push(client),
        }
    }
    clients
}

fn is_same_client(one: &StatelessClient, other: &StatelessClient) -> bool {
    one.client == other.client
        && one.principal == other.principal
        && one.endpoint == other.endpoint
        && one.revision == other.revision
}
