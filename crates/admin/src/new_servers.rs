//! New servers: `POST /api/v1/servers`.
//!
//! Owns the body and the order of the checks. Does not write the config (`config_change.rs`). Invariant: several servers
//! are one edit and one undo, or none of them is written.

use std::collections::BTreeMap;

use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::actions::Operator;
use crate::config_change::{ChangeTerms, apply, changed, refuse};
use crate::config_control::ChangeKind;
use crate::json_body::JsonBody;
use crate::server_source::{SERVERS_MAX, ServerChoice, ServerSource, SourceProblem};
use crate::{AdminState, json};
use moongate_config::edit::ConfigOperation;
use moongate_listener::json_response;

/// Body of `POST /api/v1/servers`: settings, or the source that a preview was made of.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NewServers {
    servers: Option<BTreeMap<String, Map<String, Value>>>,
    from: Option<ServerSource>,
    only: Option<Vec<String>>,
    names: BTreeMap<String, String>,
}

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
        Ok(body) => changed(StatusCode::CREATED, &body),
        Err(refused) => refused,
    }
}

async fn operations(admin: &AdminState, wanted: NewServers) -> Result<Vec<ConfigOperation>, Response> {
    let bad = |code, message: &str| json_response(StatusCode::BAD_REQUEST, code, message);
    match wanted {
        NewServers { servers: Some(servers), .. } if servers.len() > SERVERS_MAX => Err(bad(
            "too_many_servers",
            &format!("`servers` has {}, and {SERVERS_MAX} are taken at once", servers.len()),
        )),
        NewServers { servers: Some(servers), from: None, only: None, names } if names.is_empty() => {
            let operation = |(name, settings)| ConfigOperation::AddServer { name, settings: Value::Object(settings) };
            Ok(servers.into_iter().map(operation).collect())
        }
        NewServers { servers: None, from: Some(source), only, names } => {
            let is_chosen = only.is_some();
            let found = source.find(admin, ServerChoice { only, names }).await;
            let found = found.map_err(|problem| refuse_source(admin, problem))?;
            let operations = found.operations();
            // What was not chosen by name may be there already: then the rest is added.
            let refused = found.refused().filter(|_| is_chosen || operations.is_empty());
            match refused {
                Some(message) => Err(json_response(StatusCode::CONFLICT, "not_new", &message)),
                None => Ok(operations),
            }
        }
        _ => Err(bad("bad_body", "give `servers`, or `from` with `only` and `names`")),
    }
}

/// Refuses a source that has no servers.
pub(super) fn refuse_source(admin: &AdminState, problem: SourceProblem) -> Response {
    match problem {
        SourceProblem::BadRequest(code, message) => json_response(StatusCode::BAD_REQUEST, code, &message),
        SourceProblem::Config(refusal) => refuse(admin, &refusal),
        SourceProblem::Unreadable(problems) => {
            let message = problems.first().map_or(Value::Null, |problem| problem["message"].clone());
            let body = json!({ "error": "problems", "message": message, "problems": problems });
            json(StatusCode::UNPROCESSABLE_ENTITY, &body)
        }
    }
}
