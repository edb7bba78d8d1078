//! Edits of the config by commands: the part that `add`, `remove`, `enable`, `disable` and `key new --write` share.
//!
//! Owns which config is edited, and the report of what became of the edit. Does not edit (`moongate_config::edit`).
//! Invariant: a command works whether a gateway runs or not, and says which.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::cli::admin::{AdminArgs, AdminClient};
use crate::cli::process::{BAD_CONFIG, load_options, print_message};
use moongate_config::edit::{ConfigOperation, EditHistory, prepare_edit};

/// Time that a command waits for a server to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of looks at the status.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Config that is edited, and the gateway that runs with it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct EditArgs {
    #[command(flatten)]
    config: EditedConfig,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Config that is edited.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct EditedConfig {
    /// The config to edit; the last of several gets new entries
    #[arg(long = "config", short = 'c', value_name = "PATH", env = "MOONGATE_CONFIG")]
    config: Vec<PathBuf>,
    /// Show the change, and write nothing
    #[arg(long)]
    dry_run: bool,
}

impl EditArgs {
    /// Makes the edit and reports it. `server` is the one whose state is of interest afterwards.
    pub(super) async fn apply(&self, operation: &ConfigOperation, server: Option<&str>) -> anyhow::Result<ExitCode> {
        self.config.apply(&self.admin, operation, server).await
    }
}

impl EditedConfig {
    /// Makes the edit and reports what became of it in the gateway that runs with this config.
    pub(super) async fn apply(
        &self,
        admin: &AdminArgs,
        operation: &ConfigOperation,
        server: Option<&str>,
    ) -> anyhow::Result<ExitCode> {
        let options = load_options(&self.config);
        let created = moongate_config::users_file(&options.env);
        let prepared = match prepare_edit(&options, created.as_deref(), std::slice::from_ref(operation)) {
            Ok(prepared) => prepared,
            Err(error) => {
                print_message(&format!("error: {error}"));
                return Ok(ExitCode::from(BAD_CONFIG));
            }
        };
        // A write of the same text would still wake everything that watches the file.
        if prepared.is_unchanged() {
            print_message(&format!("{}: nothing to change", prepared.path().display()));
            return Ok(ExitCode::SUCCESS);
        }
        let diff = prepared.diff();
        if self.dry_run {
            print_message(&format!("{}:\n{}", prepared.path().display(), diff.trim_end()));
            return Ok(ExitCode::SUCCESS);
        }
        for problem in prepared.failed() {
            print_message(problem.render("warning").trim_end());
        }
        let history = EditHistory::of_plan(&prepared.loaded().plan);
        match prepared.write() {
            Ok(written) => {
                print_message(&format!("{}:{}\n{}", written.path.display(), written.line, diff.trim_end()));
                if let Some(Err(error)) = history.map(|history| history.record(&written)) {
                    print_message(&format!("`moongate undo` will not know this edit: {error}"));
                }
            }
            Err(error) => {
                print_message(&format!("error: {error}"));
                return Ok(ExitCode::FAILURE);
            }
        }
        match admin.client(&self.config) {
            Ok(admin) => report_effect(&admin, server).await,
            // The edit is made, and a gateway that watches its files sees it.
            Err(error) => {
                print_message(&format!("whether a gateway took the change was not looked up: {error:#}"));
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Has a running gateway read its config, and waits for the server.
async fn report_effect(admin: &AdminClient, server: Option<&str>) -> anyhow::Result<ExitCode> {
    // No answer is no failure here: the config was written, and most edits are made before the first start.
    let Ok(reloaded) = admin.send_request("POST", "/api/v1/reload", Duration::from_secs(60)).await else {
        print_message("no gateway is running here: the change holds from its next start");
        return Ok(ExitCode::SUCCESS);
    };
    let body = reloaded.json()?;
    if let Some(message) = body["message"].as_str() {
        print_message(&format!("the running gateway did not take the change: {}", message.trim_end()));
        return Ok(ExitCode::FAILURE);
    }
    let Some(server) = server else {
        print_message(&super::plan::changes(&body["changes"]));
        return Ok(ExitCode::SUCCESS);
    };
    let start = Instant::now();
    loop {
        let Some(found) = find_server(admin, server).await? else {
            print_message(&format!("{server}: the running gateway does not have it; it may run with another config"));
            return Ok(ExitCode::FAILURE);
        };
        let state = found["state"].as_str().unwrap_or_default();
        // A server that `npx` downloads first may take longer. After the wait its state is told as it is.
        if state != "starting" || start.elapsed() > READY_TIMEOUT {
            print_message(&describe(server, state, &found));
            // Still starting counts as fine, since a slow start is no fault of the edit.
            let is_fine = matches!(state, "ready" | "disabled" | "stopped" | "starting");
            return Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn find_server(admin: &AdminClient, name: &str) -> anyhow::Result<Option<Value>> {
    let status = admin.send_request("GET", "/api/v1/status", READY_TIMEOUT).await?.json()?;
    Ok(status["servers"].as_array().and_then(|all| all.iter().find(|server| server["name"] == name)).cloned())
}

fn describe(name: &str, state: &str, server: &Value) -> String {
    let number = |key: &str| server[key].as_u64().unwrap_or_default();
    match state {
        "ready" => {
            let (on, all, tokens) = (number("tools_on"), number("tools"), number("tokens"));
            format!("{name}: ready, {on} of {all} tools, about {tokens} tokens in every conversation")
        }
        "disabled" => format!("{name}: off"),
        _ => format!("{name}: {state}: {}", server["reason"].as_str().unwrap_or_default()),
    }
}
