//! Facts for `moongate doctor`.
//!
//! Owns where they come from: the running gateway, or servers that are connected once. Does not
//! judge (`app/doctor/`). Invariant: a running gateway is not changed, and what was started here
//! has ended.

use std::time::Duration;

use moongate_api::{ConfigView, FindingList, GatewayStatus, PlanReport, ServerStatus};
use moongate_config::LoadedConfig;
use serde::de::DeserializeOwned;

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
    let (answer, status) = ask::<GatewayStatus>(args, "/api/v1/status").await;
    let (_, plan) = ask::<PlanReport>(args, "/api/v1/plan").await;
    let (_, doctor) = ask::<FindingList>(args, "/api/v1/doctor").await;
    let (_, config) = ask::<ConfigView>(args, "/api/v1/config").await;
    // An older gateway may not say, and one without a config has an empty list.
    let running_files = config.map(|config| config.state.files);
    let of_gateway = doctor.map(|found| {
        found
            .findings
            .into_iter()
            .filter_map(DoctorFinding::of_row)
            .collect()
    });
    let status = status.unwrap_or_default();
    let states = match (&answer, &loaded) {
        (RunningGateway::Running, _) => status.servers,
        (RunningGateway::None(_), Ok(loaded)) => connect_once(loaded).await?,
        // Not started a second time: two copies of a program may fight over a port or a file.
        (RunningGateway::Refused(_), _) | (_, Err(_)) => Vec::new(),
    };
    let changes = match plan {
        Some(PlanReport::Fine { changes, .. }) => changes,
        Some(PlanReport::Refused { .. }) | None => Default::default(),
    };
    Ok(ExaminedGateway {
        unmatched_filters: status.unmatched_filters,
        of_gateway,
        running_files,
        ..ExaminedGateway::new(options, loaded, answer, changes, states)
    })
}

/// Asks a running gateway. Returns what answers there, and its answer.
async fn ask<T: DeserializeOwned>(args: &GatewayArgs, path: &str) -> (RunningGateway, Option<T>) {
    let client = match args.client() {
        Ok(client) => client,
        Err(error) => return (RunningGateway::None(format!("{error:#}")), None),
    };
    let response = match client.send_request("GET", path, ANSWER_TIMEOUT).await {
        Ok(response) => response,
        Err(error) => return (RunningGateway::None(format!("{error:#}")), None),
    };
    match (response.status, response.read::<T>()) {
        (200, Ok(body)) => (RunningGateway::Running, Some(body)),
        (401 | 403, _) => (RunningGateway::Refused(response.error().message), None),
        (_, Ok(_)) | (_, Err(_)) => (
            RunningGateway::None("another program answers there".to_owned()),
            None,
        ),
    }
}

/// Connects each server once, and returns how they are.
async fn connect_once(loaded: &LoadedConfig) -> anyhow::Result<Vec<ServerStatus>> {
    let app = start_without_listeners(loaded.plan.clone()).await?;
    // A server that hangs shows it by its state.
    let _ = tokio::time::timeout(CONNECT_TIMEOUT, app.gateway.until_settled()).await;
    // Before the stop, which changes the state of every server.
    let statuses = statuses_of(&app.gateway);
    app.stop().await;
    Ok(statuses)
}
