//! Preview of new servers: what would be written, and how they answer now.
//!
//! Owns the body, the form of the answer, and the search for plain-text secrets in it
//! (`SecretFinder`). Does not connect (`src/app/`) or write. Invariant: no secret of the source is
//! in the answer.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::admin_state::AdminState;
use crate::control_types::{ChangePreview, ChangeRefusal};
use crate::differing_server;
use crate::json_answer::json;
use crate::json_body::JsonBody;
use crate::new_servers::refuse_source;
use crate::operator_check::Operator;
use crate::probe_report::ProbeReport;
use crate::server_source::{
    FoundServers, ServerChoice, SourceProblem, add_operation, find_servers,
};
use moongate_api::{
    FoundSecret, FoundServer, FoundState, PreviewRequest, ProbeFault, ProbedInfo, ProblemConcern,
    ServerPreview, ServerProbe, ServerSource, TextProblem,
};
use moongate_clients::import::{ImportRow, ImportState};
use moongate_config::edit::{ConfigOperation, server_toml};
use moongate_config::{ConfigProblem, VariableNames};
use moongate_gateway::estimate_tokens;
use moongate_listener::json_response;
use moongate_telemetry::logs;

/// Servers that are prepared one by one if they cannot be added together.
const TRIED_ALONE_MAX: usize = 20;
/// Time for all probes of one preview.
const PROBE_TIME: Duration = Duration::from_secs(25);

/// Handles `POST /api/v1/servers/preview`.
pub(super) async fn preview(
    Operator(admin): Operator,
    JsonBody(wanted): JsonBody<PreviewRequest>,
) -> Response {
    match preview_servers(&admin, wanted).await {
        Ok(found) => json(StatusCode::OK, &found),
        Err(refused) => refused,
    }
}

/// Finds the servers of a source, and what adding them would do.
pub(super) async fn preview_servers(
    admin: &AdminState,
    wanted: PreviewRequest,
) -> Result<ServerPreview, Response> {
    let PreviewRequest {
        text,
        url,
        headers,
        popular,
        args,
        probe,
        only,
        names,
    } = wanted;
    let slot = match probe.then(|| admin.probe_slots.try_take()) {
        Some(None) => {
            let message = "Four previews are already connecting to servers; wait until one ends";
            return Err(json_response(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_probes",
                message,
            ));
        }
        Some(Some(slot)) => Some(slot),
        None => None,
    };
    let source = ServerSource {
        text,
        url,
        headers,
        popular,
        args,
    };
    let (found, mut problems) =
        match find_servers(source, admin, ServerChoice { only, names }).await {
            Ok(found) => (found, Vec::new()),
            Err(SourceProblem::Unreadable(problems)) => (FoundServers::default(), problems),
            Err(problem) => return Err(refuse_source(admin, problem)),
        };
    let allow_commands = admin.reloader.config().edits.allow_commands;
    let is_allowed =
        |operation: &ConfigOperation| allow_commands || !found.needs_command(operation);
    let addable: Vec<ConfigOperation> = found.operations().into_iter().filter(is_allowed).collect();
    let PreparedAddition { change, refused } =
        prepare_addition(admin, addable, &mut problems).await;
    problems.extend(
        change
            .iter()
            .flat_map(|change| &change.problems)
            .map(entry_problem),
    );
    let mut servers = describe_rows(admin, &found, &refused).await;
    if slot.is_some() {
        // The probe itself refuses references, and says which. A program does not get that far.
        let is_asked =
            |row: &&ImportRow| may_add(row) && (has_url(row) || is_allowed(&add_operation(row)));
        probe_all(admin, &found, is_asked, &mut servers).await;
    }
    let (file, diff) = change
        .map(|change| (change.file.display().to_string(), change.diff))
        .unzip();
    Ok(ServerPreview {
        servers,
        problems,
        warnings: found.warnings,
        file,
        diff,
    })
}

/// Change that adds servers, without those that cannot be added.
#[derive(Default)]
struct PreparedAddition {
    change: Option<ChangePreview>,
    /// Names of servers that the config refuses.
    refused: Vec<String>,
}

/// Prepares the change that adds servers. Those that cannot be added become problems, and are left
/// out.
async fn prepare_addition(
    admin: &AdminState,
    mut operations: Vec<ConfigOperation>,
    problems: &mut Vec<TextProblem>,
) -> PreparedAddition {
    let mut refused = Vec::new();
    if operations.is_empty() {
        return PreparedAddition::default();
    }
    let refusal = match admin.editor.preview_change(operations.clone()).await {
        Ok(change) => {
            return PreparedAddition {
                change: Some(change),
                refused,
            };
        }
        Err(refusal) => refusal,
    };
    // Each is tried alone, to find the one. With very many that would take too long.
    if operations.len() == 1 || operations.len() > TRIED_ALONE_MAX {
        problems.extend(refusal_problems(&refusal));
        refused.extend(
            operations
                .first()
                .filter(|_| operations.len() == 1)
                .map(server_of),
        );
        return PreparedAddition {
            change: None,
            refused,
        };
    }
    for at in (0..operations.len()).rev() {
        if let Err(refusal) = admin
            .editor
            .preview_change(vec![operations[at].clone()])
            .await
        {
            problems.extend(refusal_problems(&refusal));
            refused.push(server_of(&operations.remove(at)));
        }
    }
    if operations.is_empty() {
        return PreparedAddition {
            change: None,
            refused,
        };
    }
    PreparedAddition {
        change: admin.editor.preview_change(operations).await.ok(),
        refused,
    }
}

fn server_of(operation: &ConfigOperation) -> String {
    operation.server().unwrap_or_default().to_owned()
}

fn refusal_problems(refusal: &ChangeRefusal) -> Vec<TextProblem> {
    let error = &refusal.error;
    match error.problems.is_empty() {
        true => vec![TextProblem {
            message: logs::redact(&error.message),
            ..TextProblem::default()
        }],
        false => error.problems.iter().map(entry_problem).collect(),
    }
}

/// Describes a problem of an entry. Its location is left out: the file does not have it yet.
fn entry_problem(problem: &ConfigProblem) -> TextProblem {
    TextProblem {
        message: problem.message.clone(),
        hint: Some(problem.fix.clone()),
        concern: Some(ProblemConcern {
            server: problem.server.clone(),
        }),
        ..TextProblem::default()
    }
}

/// Returns true for a server that somebody may choose, since the config lacks some of its settings.
fn is_known_in_part(row: &ImportRow) -> bool {
    matches!(row.state, ImportState::Differs { .. })
}

/// Returns true for a server that is added, or that somebody may choose.
fn may_add(row: &ImportRow) -> bool {
    is_known_in_part(row) || row.is_added
}

fn has_url(row: &ImportRow) -> bool {
    row.server.settings.contains_key("url")
}

/// Connects to the servers that can be added, one after the other.
async fn probe_all(
    admin: &AdminState,
    found: &FoundServers,
    is_addable: impl Fn(&&ImportRow) -> bool,
    servers: &mut [FoundServer],
) {
    let until = Instant::now() + PROBE_TIME;
    for (row, described) in found
        .rows
        .iter()
        .zip(servers)
        .filter(|(row, _)| is_addable(row))
    {
        let probed =
            tokio::time::timeout_at(until, admin.examiner.probe(found.probe_operation(row))).await;
        described.probe = Some(match probed {
            Ok(report) => describe_probe(report),
            // One after the other, so that a long list needs one slot only. Its end may come too
            // late.
            Err(_) => failed_probe(
                "the time for all probes ran out",
                "preview this server alone",
            ),
        });
    }
}

fn describe_probe(report: ProbeReport) -> ServerProbe {
    match report {
        ProbeReport::Answered(answer) => ServerProbe {
            transport: Some(answer.transport.to_owned()),
            revision: Some(answer.revision.to_owned()),
            server_info: Some(ProbedInfo {
                name: answer.name,
                version: answer.version,
            }),
            tools: Some(answer.tools),
            tokens: Some(estimate_tokens(answer.tool_bytes)),
            tool_names: answer.tool_names,
            ..ServerProbe::default()
        },
        ProbeReport::NeedsLogin(message) => {
            let fault = failed_probe(
                &message,
                "add the server, then run that command or sign in on its card",
            );
            ServerProbe {
                needs_login: true,
                ..fault
            }
        }
        ProbeReport::Failed { message, hint } => failed_probe(&message, &hint),
    }
}

fn failed_probe(message: &str, hint: &str) -> ServerProbe {
    let fault = ProbeFault {
        message: logs::one_line(message),
        hint: hint.to_owned(),
    };
    ServerProbe {
        fault: Some(fault),
        ..ServerProbe::default()
    }
}

/// Describes the servers of a source as they are, without their probes.
async fn describe_rows(
    admin: &AdminState,
    found: &FoundServers,
    refused: &[String],
) -> Vec<FoundServer> {
    let mut servers: Vec<FoundServer> = found
        .rows
        .iter()
        .map(|row| describe_row(found, row, refused))
        .collect();
    for (row, described) in found.rows.iter().zip(&mut servers) {
        differing_server::describe(admin, row, described).await;
        let prefix = row
            .server
            .settings
            .get("prefix")
            .and_then(Value::as_str)
            .unwrap_or(&row.server.name);
        described.name_prefix = admin.gateway.name_beginning(prefix);
    }
    servers
}

fn describe_row(found: &FoundServers, row: &ImportRow, refused: &[String]) -> FoundServer {
    let server = &row.server;
    let is_refused = row.is_added && refused.contains(&server.name);
    let (state, was, same_as) = match &row.state {
        ImportState::New => (FoundState::New, None, None),
        ImportState::Renamed { from } => (FoundState::Renamed, Some(from), None),
        ImportState::Same { name } => (FoundState::Same, None, Some(name)),
        ImportState::Differs { name, .. } => (FoundState::Differs, None, Some(name)),
        ImportState::Own => (FoundState::Own, None, None),
        ImportState::Broken => (FoundState::Problem, None, None),
    };
    let settings = moongate_clients::import::written_settings(&server.masked);
    FoundServer {
        name: server.name.clone(),
        toml: server_toml(&server.name, Value::Object(settings.clone())),
        settings,
        // By what the files say now, which may differ from the config in use.
        state: if is_refused {
            FoundState::Problem
        } else {
            state
        },
        was: was.cloned(),
        same_as: same_as.cloned(),
        notes: server.notes.iter().map(|note| logs::redact(note)).collect(),
        secrets: SecretFinder::new(&server.name).find_all(&server.settings, &server.masked),
        needs_command: found.needs_command(&add_operation(row)),
        target: server.target(),
        ..FoundServer::default()
    }
}

/// Search for the secrets of a server, each with the name of a variable that it could go into.
struct SecretFinder<'a> {
    server: &'a str,
    names: VariableNames,
    found: Vec<FoundSecret>,
}

impl<'a> SecretFinder<'a> {
    fn new(server: &'a str) -> Self {
        SecretFinder {
            server,
            names: VariableNames::default(),
            found: Vec::new(),
        }
    }

    fn find_all(
        mut self,
        settings: &Map<String, Value>,
        masked: &Map<String, Value>,
    ) -> Vec<FoundSecret> {
        for (key, value) in settings {
            self.find(key, value, masked.get(key).unwrap_or(&Value::Null));
        }
        self.found
    }

    fn find(&mut self, path: &str, value: &Value, masked: &Value) {
        match value {
            Value::String(text) if masked.as_str() != Some(text) => {
                let suggest = self.names.suggest(self.server, path);
                self.found.push(FoundSecret {
                    path: path.to_owned(),
                    suggest,
                });
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.find(&format!("{path}[{at}]"), item, &masked[at]);
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    self.find(&format!("{path}.{key}"), value, &masked[key]);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_probe_of_a_server_that_needs_a_login_says_the_command() {
        let sentence = moongate_model::login_sentence("linear");
        let probe = describe_probe(ProbeReport::NeedsLogin(sentence));
        let fault = probe.fault.unwrap();
        assert!(probe.needs_login);
        assert_eq!(fault.message, "linear needs a login: moongate login linear");
        assert!(fault.hint.contains("then run that command"), "{fault:?}");
        let refused = describe_probe(ProbeReport::Failed {
            message: "it answers with HTTP status 403".to_owned(),
            hint: String::new(),
        });
        assert!(!refused.needs_login);
    }

    #[test]
    fn a_secret_has_a_variable_that_it_could_go_into() {
        let (settings, masked) = (
            json!({ "url": "https://a.example", "headers": { "A": "Bearer s", "B": "${B}" },
                "args": ["x", "s"] }),
            json!({ "url": "https://a.example", "headers": { "A": "***", "B": "${B}" },
                "args": ["x", "***"] }),
        );
        let found = SecretFinder::new("a")
            .find_all(settings.as_object().unwrap(), masked.as_object().unwrap());
        let mut paths: Vec<&str> = found.iter().map(|secret| secret.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["args[1]", "headers.A"]);
        assert!(
            found.iter().any(|secret| secret.suggest == "A_SECRET"),
            "{found:?}"
        );
    }
}
