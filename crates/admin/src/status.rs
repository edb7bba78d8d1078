//! Status of every server: the answer of `/api/v1/status`.
//!
//! Owns how it is gathered, the conditions and the findings. Leaves identities to
//! `server_details.rs` and counters to `server_use.rs`. Invariant: reasons, hints and stderr are
//! redacted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State as Shared;
use axum::response::Response;
use http::StatusCode;
use tokio::time::Instant;

use crate::admin_state::AdminState;
use crate::config_view::entry_source;
use crate::control_types::ConfigStatus;
use crate::json_answer::json;
use crate::operator_check::SameSite;
use crate::server_details;
use crate::server_name::ServerName;
use crate::server_use::{ServerUse, count_use, use_by_server};
use crate::time_format::{timestamp, timestamp_to_second};
use moongate_api::{
    GatewayStatus, LastError, LoginView, PendingReplacement, ServerCondition, ServerCounters,
    ServerFindings, ServerStatus, SharedConnection, StatusHint,
};
use moongate_gateway::{DisabledServer, FindingTopic, RunningServer, Snapshot};
use moongate_listener::json_response;
use moongate_model::UpstreamState;
use moongate_telemetry::logs;

/// Reports the state of every server, and its cause.
pub(super) async fn status(_: SameSite, Shared(admin): Shared<Arc<AdminState>>) -> Response {
    json(StatusCode::OK, &gateway_status(&admin))
}

/// Handles `GET /api/v1/servers/{name}`.
pub(super) async fn server(
    _: SameSite,
    Shared(admin): Shared<Arc<AdminState>>,
    ServerName(name): ServerName,
) -> Response {
    match server_statuses(&admin)
        .into_iter()
        .find(|server| server.name() == name)
    {
        Some(server) => json(StatusCode::OK, &server),
        None => {
            let message = format!("There is no server {name:?}; /api/v1/status lists them");
            json_response(StatusCode::NOT_FOUND, "not_found", &message)
        }
    }
}

/// Gathers the status of the gateway.
pub(super) fn gateway_status(admin: &AdminState) -> GatewayStatus {
    let snapshot = admin.gateway.snapshot();
    GatewayStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        servers: server_statuses(admin),
        // Findings about views and keys, which belong to no server.
        unmatched_filters: findings(&snapshot, None, FindingTopic::Filter),
    }
}

/// Describes every configured server, disabled ones last.
pub(super) fn server_statuses(admin: &AdminState) -> Vec<ServerStatus> {
    let snapshot = admin.gateway.snapshot();
    let uses = use_by_server(&snapshot);
    let gathered = GatheredFacts {
        admin,
        config: &admin.reloader.config(),
        errors: admin.gateway.recent_calls().last_errors(),
        uses: &uses,
        snapshot: &snapshot,
    };
    let members = admin.gateway.servers();
    let running = members
        .iter()
        .map(|server| gathered.describe_running(server));
    let disabled = admin.gateway.disabled();
    running
        .chain(
            disabled
                .iter()
                .map(|server| gathered.describe_disabled(server)),
        )
        .collect()
}

/// Facts that the descriptions of all servers need.
struct GatheredFacts<'a> {
    admin: &'a AdminState,
    config: &'a ConfigStatus,
    /// Last error of each server's calls.
    errors: HashMap<String, (SystemTime, Box<str>)>,
    uses: &'a HashMap<&'a str, ServerUse>,
    snapshot: &'a Snapshot,
}

impl GatheredFacts<'_> {
    fn describe_running(&self, server: &RunningServer) -> ServerStatus {
        let name = server.settings.name.as_str();
        let name_prefix = self
            .admin
            .gateway
            .name_beginning(&server.settings.presentation.prefix);
        ServerStatus {
            identity: server_details::describe_identity(server, name_prefix),
            condition: self.describe_condition(server),
            counters: self.count(server),
            findings: self.find(name),
            source: entry_source(self.config, name),
        }
    }

    fn describe_disabled(&self, server: &DisabledServer) -> ServerStatus {
        let name_prefix = self.admin.gateway.name_beginning(&server.prefix);
        ServerStatus {
            identity: server_details::describe_disabled(server, name_prefix),
            condition: ServerCondition {
                state: UpstreamState::Disabled,
                reason: "the config says enabled = false".to_owned(),
                // The rest is about a connection, which it does not have.
                ..ServerCondition::default()
            },
            counters: ServerCounters::default(),
            findings: self.find(&server.name),
            source: entry_source(self.config, &server.name),
        }
    }

    fn describe_condition(&self, server: &RunningServer) -> ServerCondition {
        let status = server.status();
        let elapsed = status.since().map(|since| since.elapsed());
        let since = elapsed.and_then(|elapsed| jiff::Timestamp::now().checked_sub(elapsed).ok());
        let hint = self.admin.examiner.server_hint(server);
        let login = self.admin.logins.login(&server.settings.name);
        let replacement = self.admin.gateway.replacement_status(&server.settings.name);
        let shared = server.shared_connections().into_iter();
        ServerCondition {
            state: status.state,
            reason: logs::redact(&status.reason),
            needs_login: status.needs_login,
            hint: hint.map(|hint| StatusHint {
                text: logs::redact(&hint.text),
                ..hint
            }),
            login: login.map(|login| LoginView {
                problem: login.problem.map(|problem| logs::redact(&problem)),
                ..login
            }),
            next_attempt_seconds: status.next_attempt.map(seconds_until),
            // Replacement that has not connected yet.
            replacement: replacement.map(|pending| PendingReplacement {
                state: pending.state,
                reason: logs::redact(&pending.reason),
            }),
            revision: server.revision().map(str::to_owned),
            pid: status.pid,
            shared: shared
                .map(|(revision, pid)| SharedConnection {
                    revision: revision.to_owned(),
                    pid,
                })
                .collect(),
            since: since.and_then(timestamp_to_second),
            since_seconds: elapsed.map(|elapsed| elapsed.as_secs()),
            restarts: server_details::count_restarts(server, &self.admin.metrics),
            stale: server.is_unconfirmed(),
            // Programs print keys when they fail, and operators paste this page into reports.
            stderr: server
                .stderr()
                .iter()
                .map(|line| logs::redact(line))
                .collect(),
        }
    }

    fn count(&self, server: &RunningServer) -> ServerCounters {
        let name = server.settings.name.as_str();
        let last_error = self.errors.get(name).map(|(at, message)| LastError {
            at: timestamp(*at),
            message: message.to_string(),
        });
        count_use(server, self.uses.get(name), self.snapshot, last_error)
    }

    fn find(&self, server: &str) -> ServerFindings {
        let left_out = self
            .snapshot
            .excluded
            .iter()
            .filter(|item| item.server == server);
        ServerFindings {
            left_out: left_out
                .map(|item| format!("{}: {}", item.item, item.reason))
                .collect(),
            names: findings(self.snapshot, Some(server), FindingTopic::Name),
            unmatched_filters: findings(self.snapshot, Some(server), FindingTopic::Filter),
            schemas: findings(self.snapshot, Some(server), FindingTopic::Schema),
            mended: findings(self.snapshot, Some(server), FindingTopic::Mended),
        }
    }
}

fn findings(snapshot: &Snapshot, server: Option<&str>, topic: FindingTopic) -> Vec<String> {
    snapshot
        .findings_about(server, topic)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

fn seconds_until(at: Instant) -> f64 {
    at.saturating_duration_since(Instant::now()).as_secs_f64()
}
