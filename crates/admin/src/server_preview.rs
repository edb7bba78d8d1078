//! Preview of new servers: what would be written, and how they answer now.
//!
//! Owns the body and the form of the answer. Does not connect (the gateway's `app`) or write. Invariant: no secret of the
//! source is in the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::actions::Operator;
use crate::config_control::{ChangePreview, ChangeRefusal};
use crate::differing_server;
use crate::json_body::JsonBody;
use crate::new_servers::refuse_source;
use crate::probe::ProbeReport;
use crate::server_source::{FoundServers, ServerChoice, ServerSource, SourceProblem, add_operation};
use crate::{AdminState, json};
use moongate_clients::import::{ImportRow, ImportState};
use moongate_config::edit::{ConfigOperation, server_toml};
use moongate_config::{ConfigProblem, VariableNames};
use moongate_gateway::estimate_tokens;
use moongate_listener::json_response;
use moongate_telemetry::logs;

/// Previews with a probe at once.
const PROBES_MAX: usize = 4;
/// Servers that are prepared one by one if they cannot be added together.
const TRIED_ALONE_MAX: usize = 20;
/// Time for all probes of one preview.
const PROBE_TIME: Duration = Duration::from_secs(25);

/// Slots of previews that probe.
#[derive(Clone)]
pub struct ProbeSlots(Arc<Semaphore>);

impl Default for ProbeSlots {
    fn default() -> Self {
        ProbeSlots(Arc::new(Semaphore::new(PROBES_MAX)))
    }
}

/// Body of `POST /api/v1/servers/preview`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PreviewRequest {
    text: Option<String>,
    url: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    popular: Option<String>,
    args: Vec<String>,
    probe: bool,
    only: Option<Vec<String>>,
    names: BTreeMap<String, String>,
}

/// Handles `POST /api/v1/servers/preview`.
pub(super) async fn preview(Operator(admin): Operator, JsonBody(wanted): JsonBody<PreviewRequest>) -> Response {
    let PreviewRequest { text, url, headers, popular, args, probe, only, names } = wanted;
    let slot = match probe.then(|| admin.probe_slots.0.clone().try_acquire_owned()) {
        Some(Err(_)) => {
            let message = "Four previews connect to servers already: wait for one of them";
            return json_response(StatusCode::TOO_MANY_REQUESTS, "too_many_probes", message);
        }
        Some(Ok(slot)) => Some(slot),
        None => None,
    };
    let source = ServerSource { text, url, headers, popular, args };
    let (found, mut problems) = match source.find(&admin, ServerChoice { only, names }).await {
        Ok(found) => (found, Vec::new()),
        Err(SourceProblem::Unreadable(problems)) => (FoundServers::default(), problems),
        Err(problem) => return refuse_source(&admin, problem),
    };
    let allow_commands = admin.control.config().edits.allow_commands;
    let is_allowed = |operation: &ConfigOperation| allow_commands || !found.needs_command(operation);
    let addable: Vec<ConfigOperation> = found.operations().into_iter().filter(is_allowed).collect();
    let PreparedAddition { change, refused } = prepare_addition(&admin, addable, &mut problems).await;
    problems.extend(change.iter().flat_map(|change| &change.problems).map(described_problem));
    let (file, diff) = change
        .map_or((Value::Null, Value::Null), |change| (change.file.display().to_string().into(), change.diff.into()));
    let mut servers: Vec<Value> = found.rows.iter().map(|row| row_json(&found, row, &refused)).collect();
    for (row, described) in found.rows.iter().zip(&mut servers) {
        differing_server::describe(&admin, row, described).await;
        let prefix = row.server.settings.get("prefix").and_then(Value::as_str).unwrap_or(&row.server.name);
        described["name_prefix"] = admin.gateway.name_beginning(prefix).into();
    }
    if slot.is_some() {
        let is_probed = |row: &&ImportRow| is_known_in_part(row) || row.is_added;
        // The probe itself refuses references, and says which. A program is not even that.
        let has_url = |row: &ImportRow| row.server.settings.contains_key("url");
        let is_asked = |row: &&ImportRow| is_probed(row) && (has_url(row) || is_allowed(&add_operation(row)));
        probe_all(&admin, &found, is_asked, &mut servers).await;
    }
    let warnings = found.warnings;
    let body = json!({ "servers": servers, "problems": problems, "warnings": warnings, "file": file, "diff": diff });
    json(StatusCode::OK, &body)
}

/// Change that adds servers, without those that cannot be added.
#[derive(Default)]
struct PreparedAddition {
    change: Option<ChangePreview>,
    /// Names of servers that the config refuses.
    refused: Vec<String>,
}

/// Prepares the change that adds servers. Those that cannot be added become problems, and are left out.
async fn prepare_addition(
    admin: &AdminState,
    mut operations: Vec<ConfigOperation>,
    problems: &mut Vec<Value>,
) -> PreparedAddition {
    let mut refused = Vec::new();
    if operations.is_empty() {
        return PreparedAddition::default();
    }
    let refusal = match admin.control.preview_change(operations.clone()).await {
        Ok(change) => return PreparedAddition { change: Some(change), refused },
        Err(refusal) => refusal,
    };
    let name_of = |operation: &ConfigOperation| operation.server().unwrap_or_default().to_owned();
    // Each is tried alone, to find the one. With very many that would take too long.
    if operations.len() == 1 || operations.len() > TRIED_ALONE_MAX {
        problems.extend(refusal_json(&refusal));
        refused.extend(operations.first().filter(|_| operations.len() == 1).map(name_of));
        return PreparedAddition { change: None, refused };
    }
    for at in (0..operations.len()).rev() {
        if let Err(refusal) = admin.control.preview_change(vec![operations[at].clone()]).await {
            problems.extend(refusal_json(&refusal));
            refused.push(name_of(&operations.remove(at)));
        }
    }
    if operations.is_empty() {
        return PreparedAddition { change: None, refused };
    }
    PreparedAddition { change: admin.control.preview_change(operations).await.ok(), refused }
}

fn refusal_json(refusal: &ChangeRefusal) -> Vec<Value> {
    let error = &refusal.error;
    let described: Vec<Value> = error.problems.iter().map(described_problem).collect();
    match described.is_empty() {
        true => vec![json!({ "line": null, "column": null, "message": logs::redact(&error.message), "hint": null })],
        false => described,
    }
}

/// Describes a problem of an entry. Its place is left out: the file does not have it yet.
fn described_problem(problem: &ConfigProblem) -> Value {
    json!({ "line": null, "column": null, "message": problem.message, "hint": problem.fix, "server": problem.server })
}

/// Returns true for a server that somebody may choose, since the config lacks some of its settings.
fn is_known_in_part(row: &ImportRow) -> bool {
    matches!(row.state, ImportState::Differs { .. })
}

/// Connects to the servers that can be added, one after the other.
async fn probe_all(
    admin: &AdminState,
    found: &FoundServers,
    is_addable: impl Fn(&&ImportRow) -> bool,
    servers: &mut [Value],
) {
    let until = Instant::now() + PROBE_TIME;
    for (row, described) in found.rows.iter().zip(servers).filter(|(row, _)| is_addable(row)) {
        let probed = tokio::time::timeout_at(until, admin.control.probe(found.probe_operation(row))).await;
        described["probe"] = match probed {
            Ok(report) => report_json(&report),
            // One after the other, so that a long list needs one slot only. Its end may come too late.
            Err(_) => fault_json("the time for all probes was up", "look at this server alone"),
        };
    }
}

fn report_json(report: &ProbeReport) -> Value {
    match report {
        ProbeReport::Answered(answer) => json!({
            "transport": answer.transport,
            "revision": answer.revision,
            "server_info": { "name": answer.name, "version": answer.version },
            "tools": answer.tools,
            "tokens": estimate_tokens(answer.tool_bytes),
            "tool_names": answer.tool_names,
            "needs_login": false,
            "fault": null,
        }),
        ProbeReport::NeedsLogin(message) => {
            let mut fault = fault_json(message, "it wants credentials: give a header, such as `Authorization`");
            fault["needs_login"] = true.into();
            fault
        }
        ProbeReport::Failed { message, hint } => fault_json(message, hint),
    }
}

fn fault_json(message: &str, hint: &str) -> Value {
    json!({
        "transport": null, "revision": null, "server_info": null, "tools": null, "tokens": null, "tool_names": [],
        "needs_login": false,
        "fault": { "message": logs::one_line(message), "hint": hint },
    })
}

fn row_json(found: &FoundServers, row: &ImportRow, refused: &[String]) -> Value {
    let (server, name) = (&row.server, row.server.name.as_str());
    let (state, was, same_as) = match &row.state {
        ImportState::New => ("new", None, None),
        ImportState::Renamed { from } => ("renamed", Some(from), None),
        ImportState::Same { name } => ("same", None, Some(name)),
        ImportState::Differs { name, .. } => ("differs", None, Some(name)),
        ImportState::Own => ("own", None, None),
        ImportState::Broken => ("problem", None, None),
    };
    let masked = Value::Object(moongate_clients::import::written_settings(&server.masked));
    let secrets = SecretFinder::new(name).find_all(&server.settings, &server.masked);
    json!({
        "name": name,
        "toml": server_toml(name, masked.clone()),
        "settings": masked,
        // By what the files say now, which may differ from the config in use.
        "state": if row.is_added && refused.contains(&server.name) { "problem" } else { state },
        "was": was,
        "same_as": same_as,
        // Filled for a server that differs.
        "lacks": [],
        "lines": null,
        "notes": server.notes.iter().map(|note| logs::redact(note)).collect::<Vec<_>>(),
        "secrets": secrets,
        "needs_command": found.needs_command(&add_operation(row)),
        "target": server.target(),
    })
}

/// Search for the secrets of a server, each with the name of a variable that it could go into.
struct SecretFinder<'a> {
    server: &'a str,
    names: VariableNames,
    found: Vec<Value>,
}

impl<'a> SecretFinder<'a> {
    fn new(server: &'a str) -> Self {
        SecretFinder { server, names: VariableNames::default(), found: Vec::new() }
    }

    fn find_all(mut self, settings: &Map<String, Value>, masked: &Map<String, Value>) -> Vec<Value> {
        for (key, value) in settings {
            self.find(key, value, masked.get(key).unwrap_or(&Value::Null));
        }
        self.found
    }

    fn find(&mut self, path: &str, value: &Value, masked: &Value) {
        match value {
            Value::String(text) if masked.as_str() != Some(text) => {
                let variable = self.names.suggest(self.server, path);
                self.found.push(json!({ "path": path, "suggest": variable }));
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
    use super::*;

    #[test]
    fn a_secret_has_a_variable_that_it_could_go_into() {
        let (settings, masked) = (
            json!({ "url": "https://a.example", "headers": { "A": "Bearer s", "B": "${B}" }, "args": ["x", "s"] }),
            json!({ "url": "https://a.example", "headers": { "A": "***", "B": "${B}" }, "args": ["x", "***"] }),
        );
        let found = SecretFinder::new("a").find_all(settings.as_object().unwrap(), masked.as_object().unwrap());
        let mut paths: Vec<&str> = found.iter().filter_map(|secret| secret["path"].as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["args[1]", "headers.A"]);
        assert!(found.iter().any(|secret| secret["suggest"] == "A_SECRET"), "{found:?}");
    }
}
