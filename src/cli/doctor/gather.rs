//! Facts for `moongate doctor`.
//!
//! Owns where they come from: the running gateway, or servers that are connected once. Does not judge (`app/doctor/`).
//! Invariant: a running gateway is not changed, and what was started here has ended.

use std::time::Duration;

use moongate_api::{GatewayStatus, ServerStatus};
use moongate_config::LoadedConfig;
use serde::Deserialize;
use serde_json::Value;

use crate::app::doctor::{DoctorFinding, ExaminedGateway, RunningGateway, statuses_of};
use crate::cli::admin::GatewayArgs;
use crate::cli::check_servers::start_without_listeners;

/// Time limit of each answer of a running gateway.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that servers have to connect once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Gathers the facts. Without a running gateway, each server is connected once.
pub(super) async fn gather(args: &GatewayArgs) -> anyhow::Result<ExaminedGateway> {
    let options = args.load_options();
    let loaded = moongate_config::load(&options);
    let (answer, status) = ask(args, "/api/v1/status").await;
    let (_, plan) = ask(args, "/api/v1/plan").await;
    let (_, doctor) = ask(args, "/api/v1/doctor").await;
    let (_, config) = ask(args, "/api/v1/config").await;
    // An older gateway may not say, and one without a config has an empty list.
    let running_files = serde_json::from_value(config["files"].clone()).ok();
    let findings = doctor["findings"].as_array();
    let of_gateway = findings.map(|found| found.iter().filter_map(DoctorFinding::of_json).collect());
    let status = GatewayStatus::deserialize(&status).unwrap_or_default();
    let states = match (&answer, &loaded) {
        (RunningGateway::Running, _) => status.servers,
        (RunningGateway::None(_), Ok(loaded)) => connect_once(loaded).await?,
        // Not started a second time: two copies of a program may fight over a port or a file.
        (RunningGateway::Refused(_), _) | (_, Err(_)) => Vec::new(),
    };
    let changes = plan["changes"].clone();
    Ok(ExaminedGateway {
        unmatched_filters: status.unmatched_filters,
        of_gateway,
        running_files,
        ..ExaminedGateway::new(options, loaded, answer, changes, states)
    })
}

/// Asks a running gateway. Returns what answers there, and its answer.
async fn ask(args: &GatewayArgs, path: &str) -> (RunningGateway, Value) {
    let client = match args.client() {
        Ok(client) => client,
        Err(error) => return (RunningGateway::None(format!("{error:#}")), Value::Null),
    };
    let response = match client.send_request("GET", path, ANSWER_TIMEOUT).await {
        Ok(response) => response,
        Err(error) => return (RunningGateway::None(format!("{error:#}")), Value::Null),
    };
    match (response.status, response.json()) {
        (200, Ok(body)) => (RunningGateway::Running, body),
        (401 | 403, Ok(body)) => {
            (RunningGateway::Refused(body["message"].as_str().unwrap_or_default().to_owned()), Value::Null)
        }
        (_, Ok(_)) | (_, Err(_)) => (RunningGateway::None("what answers there is no Moongate".to_owned()), Value::Null),
    }
}

/// Connects each server once, and returns how they are.
async fn connect_once(loaded: &LoadedConfig) -> anyhow::Result<Vec<ServerStatus>> {
    let app = start_without_listeners(loaded.plan.clone()).await?;
    // A server that hangs is told by its state.
    let _ = tokio::time::timeout(CONNECT_TIMEOUT, app.gateway.until_settled()).await;
    // Before the stop, which changes the state of every server.
    let statuses = statuses_of(&app.gateway);
    app.stop().await;
    Ok(statuses)
}
