//! Operator actions: plan or apply a reload, restart a server, refresh its lists.
//!
//! Owns the handlers. Does not check who may act (`operator_check.rs`) or perform the actions.
//! Invariant: a response comes when the action is done, or after a timeout.

use std::time::Duration;

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use crate::json_answer::json;
use crate::operator_check::{Operator, Viewer};
use crate::server_items::enabled_server;
use moongate_api::{PlanReport, RefreshReport, ReloadReport, RestartReport};
use moongate_gateway::RestartOutcome;
use moongate_listener::json_response;
use moongate_model::ItemKind;
use moongate_telemetry::logs;

/// Time that a refresh waits for its lists. They come later, too.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(10);

/// Handles `GET /api/v1/plan`: the changes that a reload would make.
pub(super) async fn plan(Viewer(admin): Viewer) -> Response {
    let report = admin.reloader.plan().await;
    let is_refused = matches!(report, PlanReport::Refused { .. });
    json(status_of(is_refused), &report)
}

/// Handles `POST /api/v1/reload`.
pub(super) async fn reload(Operator(admin): Operator) -> Response {
    let report = admin.reloader.reload().await;
    let is_refused = matches!(report, ReloadReport::Refused { .. });
    json(status_of(is_refused), &report)
}

/// Returns the status of a report on a config.
fn status_of(is_refused: bool) -> StatusCode {
    if is_refused {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::OK
    }
}

/// Handles `POST /api/v1/servers/{name}/restart`. Responds when the restart is finished.
pub(super) async fn restart(Operator(admin): Operator, Path(name): Path<String>) -> Response {
    let gateway = admin.gateway.clone();
    // In a separate task, so that the restart continues if its client disconnects.
    let restarting = tokio::spawn({
        let name = name.clone();
        async move { gateway.restart(&name).await }
    });
    // `Err` means a panic in that task, which does not stop the gateway.
    let Ok(restarted) = restarting.await else {
        return json_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "The restart was interrupted",
        );
    };
    match restarted {
        RestartOutcome::Replaced(pid) => json(
            StatusCode::OK,
            &RestartReport::Restarted { server: name, pid },
        ),
        RestartOutcome::Failed {
            reason,
            old_still_serves: kept,
        } => {
            let after = if kept {
                "but the old one still serves"
            } else {
                "and there was none before, so it is tried again"
            };
            let message = format!(
                "The new connection did not come up, {after}: {}",
                logs::redact(&reason)
            );
            json(
                StatusCode::BAD_GATEWAY,
                &RestartReport::Failed {
                    server: name,
                    kept,
                    message,
                },
            )
        }
        RestartOutcome::Busy => json_response(
            StatusCode::CONFLICT,
            "busy",
            "This server is already being restarted",
        ),
        RestartOutcome::Disabled => {
            let message =
                format!("{name} is disabled: there is nothing to restart (servers.{name}.enabled)");
            json_response(StatusCode::CONFLICT, "disabled", &message)
        }
        RestartOutcome::Unknown => {
            let names: Vec<String> = admin
                .gateway
                .servers()
                .iter()
                .map(|m| m.settings.name.clone())
                .collect();
            let message = format!(
                "There is no server {name:?}; the servers are {}",
                names.join(", ")
            );
            json_response(StatusCode::NOT_FOUND, "not_found", &message)
        }
    }
}

/// Handles `POST /api/v1/servers/{name}/refresh`. Responds when the lists are there, or after a
/// while.
pub(super) async fn refresh(Operator(admin): Operator, Path(name): Path<String>) -> Response {
    let server = match enabled_server(&admin, &name) {
        Ok(server) => server,
        Err(refused) => return refused,
    };
    if !server.is_connected() {
        let message = format!(
            "{name} is not connected: {}",
            logs::redact(&server.status().reason)
        );
        return json_response(StatusCode::CONFLICT, "not_connected", &message);
    }
    let lists = ItemKind::ALL.map(|kind| server.relist_now(kind));
    let done = tokio::time::timeout(REFRESH_TIMEOUT, futures_util::future::join_all(lists))
        .await
        .is_ok();
    let tools = server.lists().get(ItemKind::Tools).items.len();
    let outcome = if done { "refreshed" } else { "requested" };
    json(
        StatusCode::OK,
        &RefreshReport {
            outcome: outcome.to_owned(),
            server: name,
            tools,
        },
    )
}
