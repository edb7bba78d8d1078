//! Readiness of imported servers, before their entries leave a client's file.
//!
//! Owns who is asked, and how long an answer is waited for. Does not change any file. Invariant: a
//! server that nobody saw ready has a reason against it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;

use crate::app::GatewayApp;
use crate::app::doctor::is_same;
use crate::cli::admin_client::{AdminArgs, AdminClient, AdminResponse};
use crate::cli::check_servers::start_without_listeners;
use crate::cli::process::{load_options, print_message};
use moongate_api::{ConfigView, GatewayStatus, ServerStatus};
use moongate_model::UpstreamState;
use moongate_telemetry::logs;

/// Time that servers get to become ready. `npx` may have to download a package first.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between checks of the states.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of messages about servers that are waited for.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Page with the states.
const STATUS: &str = "/api/v1/status";
/// Page with the files of the config.
const CONFIG: &str = "/api/v1/config";
/// Variable that overrides `gateway.admin`, since `import` has no flag for it.
const ADMIN_VARIABLE: &str = "MOONGATE_GATEWAY__ADMIN";
/// Reason against servers of a gateway that shows nothing.
const REFUSAL: &str =
    "the running gateway does not say whether it is ready: set MOONGATE_ADMIN_KEY";

/// State of one server.
#[derive(Clone)]
struct ServerState {
    name: String,
    state: UpstreamState,
    reason: String,
}

impl ServerState {
    fn not_started(name: &str, state: UpstreamState, reason: &str) -> Self {
        ServerState {
            name: name.to_owned(),
            state,
            reason: reason.to_owned(),
        }
    }
}

impl From<ServerStatus> for ServerState {
    fn from(server: ServerStatus) -> Self {
        let ServerStatus {
            identity,
            condition,
            ..
        } = server;
        ServerState {
            name: identity.name,
            state: condition.state,
            reason: condition.reason,
        }
    }
}

/// Gateway that knows the states.
enum AskedGateway {
    /// The one that runs.
    Running(AdminClient),
    /// One for this question only, with the states of servers that it does not start.
    Trial(Box<GatewayApp>, Vec<ServerState>),
}

/// Returns the servers that cannot be served, each with its reason. All others of these names are
/// ready.
pub(super) async fn unready_servers(
    names: &BTreeSet<String>,
    config: &[PathBuf],
) -> anyhow::Result<BTreeMap<String, String>> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let gateway = match running_gateway(config).await {
        Ok(Some(admin)) => AskedGateway::Running(admin),
        Ok(None) => trial_gateway(names, config).await?,
        Err(refused) => {
            return Ok(names
                .iter()
                .map(|name| (name.clone(), refused.clone()))
                .collect());
        }
    };
    let settled = gateway.settle(names).await;
    if let AskedGateway::Trial(app, _) = gateway {
        app.stop().await;
    }
    let states = settled?;
    Ok(names
        .iter()
        .filter_map(|name| {
            let state = states.iter().find(|server| server.name == *name);
            Some((name.clone(), reason_against(state)?))
        })
        .collect())
}

/// Finds the gateway that runs with a config. The error is the reason why it does not answer this
/// question.
async fn running_gateway(config: &[PathBuf]) -> Result<Option<AdminClient>, String> {
    let Ok(admin) = AdminArgs::of_environment().client(config) else {
        return Ok(None);
    };
    match admin.request_page(STATUS).await {
        Ok(answer) if answer.is_refusal() => return Err(REFUSAL.to_owned()),
        Ok(answer) if answer.status == 200 && answer.read::<GatewayStatus>().is_ok() => {}
        // Nothing listens there, or no gateway.
        _ => return Ok(None),
    }
    match admin.request_page(CONFIG).await {
        Ok(answer) if answer.is_refusal() => Err(REFUSAL.to_owned()),
        Ok(answer) if answer.status == 200 && has_config(&answer, config) => Ok(Some(admin)),
        _ => Err(other_config()),
    }
}

/// Reason against servers of a gateway that runs with another config.
fn other_config() -> String {
    format!(
        "the gateway that runs there has another config: start this one, or set {ADMIN_VARIABLE} \
         to its admin address"
    )
}

/// True if a gateway reads all files of a config. Another gateway may have a server of the same
/// name.
fn has_config(answer: &AdminResponse, config: &[PathBuf]) -> bool {
    let Ok(running) = answer.read::<ConfigView>() else {
        return false;
    };
    load_options(config).paths.iter().all(|file| {
        running
            .state
            .files
            .iter()
            .any(|running| is_same(file, running))
    })
}

/// Starts these servers of a config, as a gateway would.
async fn trial_gateway(
    names: &BTreeSet<String>,
    config: &[PathBuf],
) -> anyhow::Result<AskedGateway> {
    print_message(
        "no gateway is running here, so the servers are started once to see whether they work",
    );
    let mut loaded = moongate_config::load(&load_options(config))?;
    loaded
        .plan
        .servers
        .retain(|server| names.contains(&server.name));
    let failed = loaded.failed.iter().filter_map(|problem| {
        let name = problem.server.as_ref()?;
        Some(ServerState::not_started(
            name,
            UpstreamState::Failed,
            &problem.message,
        ))
    });
    let off = loaded
        .plan
        .disabled
        .iter()
        .map(|server| ServerState::not_started(&server.name, UpstreamState::Disabled, ""));
    let states = failed.chain(off).collect();
    // The states say it all.
    logs::start("off", false);
    let app = start_without_listeners(loaded.plan)
        .await
        .context("the servers cannot be tried")?;
    Ok(AskedGateway::Trial(Box::new(app), states))
}

impl AskedGateway {
    /// Waits until no server is starting any more, or the time is up. Returns the states.
    async fn settle(&self, names: &BTreeSet<String>) -> anyhow::Result<Vec<ServerState>> {
        let start = Instant::now();
        let mut next_message = Duration::ZERO;
        loop {
            let states = self.states().await?;
            let starting: Vec<&str> = states
                .iter()
                .filter(|server| server.state == UpstreamState::Starting)
                .filter(|server| names.contains(&server.name))
                .map(|server| server.name.as_str())
                .collect();
            let waited = start.elapsed();
            if starting.is_empty() || waited >= READY_TIMEOUT {
                return Ok(states);
            }
            if waited >= next_message {
                let all = starting.join(", ");
                let left = READY_TIMEOUT.saturating_sub(waited).as_secs();
                print_message(&format!("waiting up to {left} s for {all}"));
                next_message += PROGRESS_INTERVAL;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn states(&self) -> anyhow::Result<Vec<ServerState>> {
        match self {
            AskedGateway::Running(admin) => {
                let (_, body) = admin.get(STATUS).await?;
                let status: GatewayStatus =
                    serde_json::from_slice(&body).context("the gateway's answer cannot be read")?;
                Ok(status.servers.into_iter().map(ServerState::from).collect())
            }
            AskedGateway::Trial(app, failed) => {
                let members = app.gateway.servers();
                let started = members.iter().map(|member| {
                    let status = member.status();
                    let name = member.settings.name.clone();
                    ServerState {
                        name,
                        state: status.state,
                        reason: logs::redact(&status.reason),
                    }
                });
                Ok(failed.iter().cloned().chain(started).collect())
            }
        }
    }
}

/// Returns why a server cannot be served. `None` if it can, be it at the first call.
fn reason_against(server: Option<&ServerState>) -> Option<String> {
    let Some(ServerState { state, reason, .. }) = server else {
        return Some("the gateway does not have it".to_owned());
    };
    let reason = logs::one_line(reason);
    match state {
        UpstreamState::Ready | UpstreamState::Stopped => None,
        UpstreamState::Disabled => Some("it is switched off in the gateway".to_owned()),
        UpstreamState::Starting => Some(format!(
            "it has not started within {READY_TIMEOUT:?}: {reason}"
        )),
        UpstreamState::Degraded
        | UpstreamState::BackingOff
        | UpstreamState::NeedsLogin
        | UpstreamState::Failed => Some(format!("{}: {reason}", state.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason_in(state: UpstreamState) -> Option<String> {
        reason_against(Some(&ServerState::not_started("a", state, "why\nnot")))
    }

    #[test]
    fn only_what_can_be_served_has_nothing_against_it() {
        let served = [UpstreamState::Ready, UpstreamState::Stopped];
        assert_eq!(served.map(reason_in), [None, None]);
        for state in UpstreamState::ALL
            .into_iter()
            .filter(|state| !served.contains(state))
        {
            let reason = reason_in(state).unwrap();
            assert!(
                state == UpstreamState::Disabled
                    || reason.contains("why") && !reason.contains('\n'),
                "{reason}"
            );
        }
        assert!(reason_against(None).is_some());
    }

    #[test]
    fn the_variable_that_a_reason_names_says_where_the_gateway_is() {
        assert!(other_config().contains(ADMIN_VARIABLE));
        let env = BTreeMap::from([(ADMIN_VARIABLE.to_owned(), "127.0.0.1:9".to_owned())]);
        let options = moongate_config::LoadOptions::of_files(Vec::new(), env);
        let admin = moongate_config::gateway_addresses(&options).unwrap().admin;
        assert_eq!(admin.unwrap().to_string(), "127.0.0.1:9");
    }
}
