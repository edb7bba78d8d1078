//! New servers: `POST /api/v1/servers`.
//!
//! Owns the body and the order of the checks. Leaves the change itself to `config_change::apply`.
//! Invariant: several servers are one edit and one undo, or none of them is written.

use axum::response::Response;
use http::StatusCode;

use crate::admin_state::AdminState;
use crate::change_answer::{changed, refuse};
use crate::config_change::{ChangeTerms, apply};
use crate::control_types::ChangeKind;
use crate::json_answer::json;
use crate::json_body::JsonBody;
use crate::operator_check::Operator;
use crate::server_source::{SERVERS_MAX, ServerChoice, SourceProblem, find_servers};
use moongate_api::{NewServers, UnreadableText};
use moongate_config::edit::ConfigOperation;
use moongate_listener::json_response;

/// Handles `POST /api/v1/servers`.
pub(super) async fn add_servers(
    Operator(admin): Operator,
    terms: ChangeTerms,
    JsonBody(wanted): JsonBody<NewServers>,
) -> Response {
    let operations = match operations(&admin, wanted).await {
        Ok(operations) => operations,
        Err(refused) => return refused,
    };
    match apply(&admin, ChangeKind::Edit(operations), terms).await {
        Ok(report) => changed(StatusCode::CREATED, &report.etag, &report),
        Err(refused) => refused,
    }
}

async fn operations(
    admin: &AdminState,
    wanted: NewServers,
) -> Result<Vec<ConfigOperation>, Response> {
    match wanted {
        NewServers {
            servers: Some(servers),
            ..
        } if servers.len() > SERVERS_MAX => Err(json_response(
            StatusCode::BAD_REQUEST,
            "too_many_servers",
            &format!(
                "`servers` has {} entries, but at most {SERVERS_MAX} can be added at once",
                servers.len()
            ),
        )),
        NewServers {
            servers: Some(servers),
            from: None,
            only: None,
            names,
        } if names.is_empty() => {
            let operations = servers
                .into_iter()
                .map(|(name, settings)| ConfigOperation::AddServer { name, settings });
            Ok(operations.collect())
        }
        NewServers {
            servers: None,
            from: Some(source),
            only,
            names,
        } => {
            let is_chosen = only.is_some();
            let found = find_servers(source, admin, ServerChoice { only, names }).await;
            let found = found.map_err(|problem| refuse_source(admin, problem))?;
            let operations = found.operations();
            // What was not chosen by name may be there already: then the rest is added.
            let refused = found
                .refused()
                .filter(|_| is_chosen || operations.is_empty());
            match refused {
                Some(message) => Err(json_response(StatusCode::CONFLICT, "not_new", &message)),
                None => Ok(operations),
            }
        }
        _ => Err(json_response(
            StatusCode::BAD_REQUEST,
            "bad_body",
            "give `servers`, or `from` with `only` and `names`",
        )),
    }
}

/// Refuses a source that has no servers.
pub(super) fn refuse_source(admin: &AdminState, problem: SourceProblem) -> Response {
    match problem {
        SourceProblem::BadRequest(code, message) => {
            json_response(StatusCode::BAD_REQUEST, code, &message)
        }
        SourceProblem::Config(refusal) => refuse(admin, &refusal),
        SourceProblem::Unreadable(problems) => {
            let message = problems.first().map(|problem| problem.message.clone());
            let body = UnreadableText {
                error: "problems".to_owned(),
                message,
                problems,
            };
            json(StatusCode::UNPROCESSABLE_ENTITY, &body)
        }
    }
}
