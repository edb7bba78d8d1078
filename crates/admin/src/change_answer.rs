//! Responses to config changes.
//!
//! Owns their body and status code. Does not make changes (`config_change.rs`). Invariant: a
//! response describes the state after the change and contains no secret.

use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::admin_state::AdminState;
use crate::control_types::{AppliedChange, ChangeRefusal};
use crate::json_answer::json;
use crate::status::server_statuses;
use moongate_api::{
    ApiError, ChangeOutcome, ChangeReport, ConfigDifference, ConfigProblemRow, CurrentFile,
    EditRefusal, ReloadReport,
};
use moongate_config::{ConfigProblem, ProblemOrigin};
use moongate_telemetry::logs;

/// Answers with a change that was made, and the tag of its file.
pub(super) fn changed(status: StatusCode, tag: &str, report: &impl Serialize) -> Response {
    with_tag(json(status, report), tag)
}

/// Describes a change, with the servers that it is about.
pub(super) fn describe_change(admin: &AdminState, applied: AppliedChange) -> ChangeReport {
    let AppliedChange {
        file,
        line,
        diff,
        tag,
        summary,
        can_undo,
        mut servers,
        problems,
        reload,
    } = applied;
    // A reload may touch servers that the request does not name. Their states belong to the answer.
    if let Some(ReloadReport::Applied { changes } | ReloadReport::Unchanged { changes }) = &reload {
        let ConfigDifference {
            added,
            removed,
            replaced,
            changed,
            ..
        } = changes;
        servers.extend(
            [added, removed, replaced, changed]
                .into_iter()
                .flatten()
                .cloned(),
        );
    }
    let mut states = server_statuses(admin);
    states.retain(|state| servers.iter().any(|name| name == state.name()));
    ChangeReport {
        outcome: if diff.is_empty() {
            ChangeOutcome::Unchanged
        } else {
            ChangeOutcome::Changed
        },
        summary,
        file: file.display().to_string(),
        line,
        diff,
        etag: tag,
        undo: can_undo,
        problems: problems.iter().map(problem_row).collect(),
        reload,
        servers: states,
    }
}

fn with_tag(mut response: Response, tag: &str) -> Response {
    // The tag is made of hex digits.
    if let Ok(value) = HeaderValue::from_str(&format!("\"{tag}\"")) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

/// Answers with a refusal.
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
    let code = if error.code == "edit_off" {
        "read_only"
    } else {
        error.code
    };
    let body = EditRefusal {
        error: ApiError {
            error: code.to_owned(),
            message: logs::redact(&error.message),
        },
        setting: setting.map(str::to_owned),
        snippet: error.snippet.clone(),
        problems: error.problems.iter().map(problem_row).collect(),
        // The state that the client did not know.
        current: tag.as_ref().map(|tag| CurrentFile {
            etag: tag.clone(),
            servers: server_statuses(admin),
        }),
    };
    let response = json(status, &body);
    match tag {
        Some(tag) => with_tag(response, tag),
        None => response,
    }
}

/// Describes a problem with its location.
pub(super) fn problem_row(problem: &ConfigProblem) -> ConfigProblemRow {
    let (file, line, column) = match &problem.origin {
        ProblemOrigin::File { path, line, column } => {
            (Some(path.display().to_string()), *line, *column)
        }
        ProblemOrigin::Variable(name) => (Some(format!("${name}")), 0, 0),
        ProblemOrigin::Flag(name) => (Some(name.clone()), 0, 0),
        ProblemOrigin::Nowhere => (None, 0, 0),
    };
    ConfigProblemRow {
        file,
        line: (line > 0).then_some(line),
        column: (column > 0).then_some(column),
        message: problem.message.clone(),
        hint: problem.fix.clone(),
        server: problem.server.clone(),
    }
}
