//! `moongate restart` and `moongate reload`: actions on a running gateway. Owns their flags and the
//! progress messages.
//!
//! Does not restart anything itself: the admin listener does. Invariant: exit code 0 means that the
//! requested state is in use.

use std::process::ExitCode;
use std::time::Duration;

use moongate_api::{ApiError, GatewayStatus, ReloadReport, RestartReport, ServerStatus};
use moongate_config::has_name_characters;
use moongate_model::UpstreamState;

use crate::cli::admin_client::{AdminClient, GatewayArgs};
use crate::cli::process::print_message;

/// Time limit of a restart. Longer than any sensible `start_timeout`.
// The gateway has the real limit. This one only ends a command that nobody answers.
const RESTART_TIMEOUT: Duration = Duration::from_secs(3600);
/// Time between two checks of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Flags of `restart`.
#[derive(Clone, Debug, clap::Args)]
pub struct RestartArgs {
    /// The server's name in the config
    pub server: String,
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// Flags of `reload`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReloadArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// Restarts a server. The old one serves until the new one is ready.
pub async fn restart(args: RestartArgs) -> anyhow::Result<ExitCode> {
    let name = &args.server;
    // No server can have such a name, and it would not fit into a path.
    if !has_name_characters(name) {
        print_message(&format!("error: {name:?} is not a valid server name"));
        return Ok(ExitCode::from(2));
    }
    let admin = args.gateway.client()?;
    if let Some(server) = status(&admin, name).await? {
        let state = server.condition.state;
        if state == UpstreamState::Disabled {
            print_message(&format!(
                "error: {name} is disabled: there is nothing to restart (servers.{name}.enabled)"
            ));
            return Ok(ExitCode::FAILURE);
        }
        let process = server
            .condition
            .pid
            .map(|pid| format!(", pid {pid}"))
            .unwrap_or_default();
        print_message(&format!(
            "{name}: {}{process}; starting another",
            state.name()
        ));
    }
    let path = format!("/api/v1/servers/{name}/restart");
    let restarting = admin.send_request("POST", &path, RESTART_TIMEOUT);
    let answer = tokio::select! {
        answer = restarting => answer?,
        // `progress` never returns: it only prints until the response is there.
        never = progress(&admin, name) => never,
    };
    let message = match answer.read() {
        Ok(RestartReport::Restarted { pid, .. }) => {
            let process = pid.map(|pid| format!(" as pid {pid}")).unwrap_or_default();
            print_message(&format!(
                "{name}: the new one serves{process}; the old one ends with its calls"
            ));
            return Ok(ExitCode::SUCCESS);
        }
        Ok(RestartReport::Failed { message, .. }) => message,
        Err(_) => answer.read::<ApiError>()?.message,
    };
    print_message(&format!("error: {name}: {message}"));
    Ok(ExitCode::FAILURE)
}

/// Prints the state of the new server whenever it changes.
async fn progress<T>(admin: &AdminClient, name: &str) -> T {
    let mut received = String::new();
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        // A failed check isn't a failure of the restart.
        let Ok(Some(server)) = status(admin, name).await else {
            continue;
        };
        let Some(new) = server.condition.replacement else {
            continue;
        };
        let state = new.state.name();
        let line = if new.reason.is_empty() {
            state.to_owned()
        } else {
            format!("{state}: {}", new.reason)
        };
        if line != received {
            print_message(&format!("{name}: the new one is {line}"));
            received = line;
        }
    }
}

/// Returns the server's entry in the status.
async fn status(admin: &AdminClient, name: &str) -> anyhow::Result<Option<ServerStatus>> {
    let answer = admin
        .send_request("GET", "/api/v1/status", Duration::from_secs(10))
        .await?;
    let status: GatewayStatus = answer.read()?;
    Ok(status
        .servers
        .into_iter()
        .find(|server| server.name() == name))
}

/// Makes the gateway read its config again.
pub async fn reload(args: ReloadArgs) -> anyhow::Result<ExitCode> {
    let admin = args.gateway.client()?;
    let answer = admin
        .send_request("POST", "/api/v1/reload", Duration::from_secs(60))
        .await?;
    match answer.read() {
        Ok(ReloadReport::Applied { changes } | ReloadReport::Unchanged { changes }) => {
            print_message(&super::check_plan::describe_changes(&changes));
            Ok(ExitCode::SUCCESS)
        }
        Ok(ReloadReport::Refused { message }) => {
            print_message(message.trim_end());
            print_message("nothing was changed");
            Ok(ExitCode::from(2))
        }
        Err(_) => {
            print_message(&format!("error: {}", answer.read::<ApiError>()?.message));
            Ok(ExitCode::FAILURE)
        }
    }
}
