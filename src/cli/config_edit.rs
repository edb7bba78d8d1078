//! Edits of the config by commands: the part that all commands share which change our own config.
//!
//! Owns which config is edited, and the report of what became of the edit. Does not edit
//! (`moongate_config::edit`). Invariant: a command works whether a gateway runs or not, and says
//! which.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use moongate_api::{
    ApiError, GatewayStatus, ReloadReport, ServerCounters, ServerItems, ServerStatus,
};
use moongate_model::UpstreamState;
use tokio::time::Instant;

use crate::cli::admin_client::{AdminArgs, AdminClient};
use crate::cli::confirm::confirm;
use crate::cli::import_env_file::EnvFileAddition;
use crate::cli::process::{BAD_CONFIG, CONFIG_VARIABLE, load_options, print_message};
use moongate_config::edit::{
    ConfigEditError, ConfigOperation, EditAuthor, EditHistory, PreparedEdit, WrittenEdit,
    prepare_edit,
};
use moongate_config::{LoadOptions, has_name_characters};

/// Time that a command waits for a server to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Checks of a ready server whose tools are all off, before that is believed.
const EMPTY_CHECKS_MAX: u32 = 5;
/// Interval between checks of the status.
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
    /// The config to edit; if there are several, new entries go into the last
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    config: Vec<PathBuf>,
    /// Show the change without writing anything
    #[arg(long)]
    dry_run: bool,
}

/// Outcome of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EditOutcome {
    /// Edit as intended, as far as it is known.
    Fine,
    /// File that is not written, or that the running gateway refuses.
    Failed,
    /// Edit in use, with a server that does not run.
    Unready,
}

impl EditOutcome {
    pub(super) fn exit_code(self) -> ExitCode {
        if self == EditOutcome::Fine {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

impl EditArgs {
    /// Makes the edit and reports it. `server` is the one whose state is of interest afterwards.
    pub(super) async fn apply(
        &self,
        operation: &ConfigOperation,
        server: Option<&str>,
    ) -> anyhow::Result<ExitCode> {
        self.config.apply(&self.admin, operation, server).await
    }

    /// Prepares operations as one edit.
    pub(super) fn prepare(
        &self,
        operations: &[ConfigOperation],
    ) -> Result<PreparedEdit, ConfigEditError> {
        self.config.prepare(operations)
    }

    /// Makes a prepared edit and reports it, with the states of these servers.
    pub(super) async fn finish(
        &self,
        prepared: PreparedEdit,
        servers: &[&str],
    ) -> anyhow::Result<EditOutcome> {
        self.config.finish(&self.admin, prepared, servers).await
    }

    /// Reports what became of an edit that was written.
    pub(super) async fn report(&self, servers: &[&str]) -> anyhow::Result<EditOutcome> {
        self.config.report(&self.admin, servers).await
    }

    /// Returns the names of a server's tools, as far as the running gateway knows them.
    pub(super) async fn known_tools(&self, server: &str) -> Option<Vec<String>> {
        // No server can have another name, and it would not fit into a path.
        let admin = self
            .admin
            .client(&self.config.config)
            .ok()
            .filter(|_| has_name_characters(server))?;
        let items = admin
            .get(&format!("/api/v1/servers/{server}/items"))
            .await
            .ok()?
            .1;
        let items: ServerItems = serde_json::from_slice(&items).ok()?;
        let names: Vec<String> = items.tools.into_iter().map(|tool| tool.name).collect();
        // A server that never connected has no list yet.
        Some(names).filter(|names| !names.is_empty())
    }

    /// Returns the options to load the config with.
    pub(super) fn load_options(&self) -> LoadOptions<'static> {
        load_options(&self.config.config)
    }

    /// True if nothing is to be written.
    pub(super) fn is_dry_run(&self) -> bool {
        self.config.is_dry_run()
    }
}

impl EditedConfig {
    /// True if nothing is to be written.
    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Names the config by its files, which may be none.
    pub(super) fn of(config: &[PathBuf]) -> Self {
        EditedConfig {
            config: config.to_vec(),
            dry_run: false,
        }
    }

    /// Makes the edit and reports what became of it in the gateway that runs with this config.
    pub(super) async fn apply(
        &self,
        admin: &AdminArgs,
        operation: &ConfigOperation,
        server: Option<&str>,
    ) -> anyhow::Result<ExitCode> {
        match self.prepare(std::slice::from_ref(operation)) {
            Ok(prepared) => Ok(self
                .finish(admin, prepared, server.as_slice())
                .await?
                .exit_code()),
            Err(error) => {
                print_message(&format!("error: {error}"));
                Ok(ExitCode::from(BAD_CONFIG))
            }
        }
    }

    /// Prepares operations as one edit.
    pub(super) fn prepare(
        &self,
        operations: &[ConfigOperation],
    ) -> Result<PreparedEdit, ConfigEditError> {
        self.prepare_with(operations, None)
    }

    /// Prepares operations as one edit, with the text that another file will have.
    fn prepare_with(
        &self,
        operations: &[ConfigOperation],
        variables: Option<&EnvFileAddition>,
    ) -> Result<PreparedEdit, ConfigEditError> {
        let mut options = load_options(&self.config);
        options
            .texts
            .extend(variables.map(|variables| (variables.path.clone(), variables.text.clone())));
        let created = moongate_config::users_file(&options.env);
        prepare_edit(&options, created.as_deref(), operations)
    }

    /// Makes a prepared edit and reports what became of it.
    async fn finish(
        &self,
        admin: &AdminArgs,
        prepared: PreparedEdit,
        servers: &[&str],
    ) -> anyhow::Result<EditOutcome> {
        // A write of the same text would still wake everything that watches the file.
        if prepared.is_unchanged() {
            print_message(&format!("{}: nothing to change", prepared.path().display()));
            return Ok(EditOutcome::Fine);
        }
        if self.dry_run {
            show_edit(&prepared);
            return Ok(EditOutcome::Fine);
        }
        let diff = prepared.diff();
        match write_edit(prepared) {
            Ok(written) => print_message(&format!(
                "{}:{}\n{}",
                written.path.display(),
                written.line,
                diff.trim_end()
            )),
            Err(error) => {
                print_message(&format!("error: {error}"));
                return Ok(EditOutcome::Failed);
            }
        }
        self.report(admin, servers).await
    }

    /// Shows operations as one edit, and what goes into the file of variables.
    pub(super) fn show(
        &self,
        operations: &[ConfigOperation],
        variables: Option<&EnvFileAddition>,
    ) -> Result<PreparedEdit, ConfigEditError> {
        // Checked before anything is shown or asked: nobody should confirm a change that is then
        // refused.
        let prepared = self.prepare_with(operations, variables)?;
        show_edit(&prepared);
        variables
            .iter()
            .for_each(|variables| print_message(&variables.shown()));
        Ok(prepared)
    }

    /// Shows operations as one edit, asks unless that is not needed, and writes it. Variables go
    /// into their file.
    pub(super) fn confirm_and_write(
        &self,
        operations: &[ConfigOperation],
        variables: Option<&EnvFileAddition>,
        is_confirmed: bool,
    ) -> anyhow::Result<()> {
        let prepared = self.show(operations, variables)?;
        if !is_confirmed && !confirm("Write this?")? {
            anyhow::bail!("nothing was written");
        }
        // First: a config whose variables are missing could not be used.
        variables.map_or(Ok(()), EnvFileAddition::write)?;
        let written = write_edit(prepared)?;
        print_message(&format!(
            "written to {}:{}",
            written.path.display(),
            written.line
        ));
        Ok(())
    }

    /// Reports what became of an edit that was written.
    pub(super) async fn report(
        &self,
        admin: &AdminArgs,
        servers: &[&str],
    ) -> anyhow::Result<EditOutcome> {
        match admin.client(&self.config) {
            Ok(admin) => report_effect(&admin, servers).await,
            // The edit is made, and a gateway that watches its files sees it.
            Err(error) => {
                print_message(&format!(
                    "did not check whether a gateway applied the change: {error:#}"
                ));
                Ok(EditOutcome::Fine)
            }
        }
    }
}

/// Shows an edit that is not written.
pub(super) fn show_edit(prepared: &PreparedEdit) {
    print_message(&format!(
        "{}:\n{}",
        prepared.path().display(),
        prepared.diff().trim_end()
    ));
}

/// Writes an edit, and records it for an undo.
pub(super) fn write_edit(prepared: PreparedEdit) -> Result<WrittenEdit, ConfigEditError> {
    let (own, others) = prepared.failed_by_concern();
    own.iter()
        .for_each(|problem| print_message(problem.render("warning").trim_end()));
    if !others.is_empty() {
        print_message(&format!(
            "other servers have problems, too ({}): `moongate check` shows them",
            others.len()
        ));
    }
    let history = EditHistory::of_plan(&prepared.loaded().plan);
    let written = prepared.write()?;
    if let Some(Err(error)) = history.map(|history| history.record(&written, EditAuthor::Command)) {
        print_message(&format!("`moongate undo` cannot undo this edit: {error}"));
    }
    Ok(written)
}

/// Has a running gateway read its config, and waits for the servers.
async fn report_effect(admin: &AdminClient, servers: &[&str]) -> anyhow::Result<EditOutcome> {
    // No answer isn't a failure here: the config was written, and most edits are made before the
    // first start.
    let Ok(reloaded) = admin
        .send_request("POST", "/api/v1/reload", Duration::from_secs(60))
        .await
    else {
        print_message("no gateway is running here: the change takes effect when it next starts");
        return Ok(EditOutcome::Fine);
    };
    let message = match reloaded.read() {
        Ok(ReloadReport::Applied { changes } | ReloadReport::Unchanged { changes }) => {
            if servers.is_empty() {
                print_message(&super::check_plan::describe_changes(&changes));
            }
            None
        }
        Ok(ReloadReport::Refused { message }) => Some(message),
        Err(_) => Some(reloaded.read::<ApiError>()?.message),
    };
    match (reloaded.is_refusal(), message.as_deref().map(str::trim_end)) {
        // It refuses the question and not the change: it watches its files, whoever asks.
        (true, Some(message)) => {
            let advice = "set MOONGATE_ADMIN_KEY to see the outcome";
            print_message(&format!(
                "written; the running gateway reloads by itself (unless `gateway.reload.watch` is \
                 off); {advice}"
            ));
            print_message(&format!("its admin listener says: {message}"));
            return Ok(EditOutcome::Fine);
        }
        (_, Some(message)) => {
            print_message(&format!(
                "the running gateway did not apply the change: {message}"
            ));
            return Ok(EditOutcome::Failed);
        }
        (_, None) => {}
    }
    // One deadline for all: the gateway starts them at the same time.
    let until = Instant::now() + READY_TIMEOUT;
    let mut outcome = EditOutcome::Fine;
    for server in servers {
        if !wait_for_server(admin, server, until).await? {
            outcome = EditOutcome::Unready;
        }
    }
    Ok(outcome)
}

/// Waits until a server has started, and says how it is. Returns true if it is fine.
async fn wait_for_server(
    admin: &AdminClient,
    server: &str,
    until: Instant,
) -> anyhow::Result<bool> {
    let mut empty_checks = 0;
    loop {
        let Some(found) = find_server(admin, server).await? else {
            print_message(&format!(
                "{server}: the running gateway does not have this server; it may use another config"
            ));
            return Ok(false);
        };
        let state = found.condition.state;
        let counters = &found.counters;
        let is_empty = counters.tools_on == 0 && counters.tools != 0;
        // Its tools appear at the endpoints a moment after it is ready. Rules may also switch all
        // of them off.
        if state == UpstreamState::Ready && is_empty && empty_checks < EMPTY_CHECKS_MAX {
            empty_checks += 1;
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        }
        // A server that `npx` downloads first may take longer. After the wait its state is shown as
        // it is.
        if state != UpstreamState::Starting || Instant::now() > until {
            print_message(&describe(&found));
            // Still starting counts as fine, since a slow start isn't the edit's fault.
            return Ok(matches!(
                state,
                UpstreamState::Ready
                    | UpstreamState::Disabled
                    | UpstreamState::Stopped
                    | UpstreamState::Starting
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn find_server(admin: &AdminClient, name: &str) -> anyhow::Result<Option<ServerStatus>> {
    let status: GatewayStatus = admin
        .send_request("GET", "/api/v1/status", READY_TIMEOUT)
        .await?
        .read()?;
    Ok(status
        .servers
        .into_iter()
        .find(|server| server.name() == name))
}

fn describe(server: &ServerStatus) -> String {
    let name = server.name();
    match server.condition.state {
        UpstreamState::Ready => {
            let ServerCounters {
                tools_on,
                tools,
                tokens,
                ..
            } = &server.counters;
            format!(
                "{name}: ready, {tools_on} of {tools} tools, about {tokens} tokens in every \
                 conversation"
            )
        }
        UpstreamState::Disabled => format!("{name}: off"),
        state => format!("{name}: {}: {}", state.name(), server.condition.reason),
    }
}
