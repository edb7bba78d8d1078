//! Servers that an operator is about to add.
//!
//! Owns how the config is read for them, and the settings that a probe gets. Does not write
//! (`change_config.rs`) or connect (`probe.rs`). Invariant: a probe has the settings that the
//! server would have.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{ConfigReloader, failing_with_new};
use crate::app::configured_servers::{known_servers, reference_variables, self_addresses};
use crate::app::logins::logins_for;
use crate::app::probe::probe_for_operator;
use moongate_admin::{ChangePreview, ChangeRefusal, ComparedServers, ProbeReport};
use moongate_clients::import::{SelfAddresses, plan_import};
use moongate_config::edit::{
    ConfigEditError, ConfigOperation, KnownReferences, PreparedEdit, prepare_operator_edit,
};
use moongate_config::{AdminEdits, LoadOptions, ParsedServer};
use moongate_telemetry::Metrics;
use moongate_transport::credential_source::CredentialDirectory;
use moongate_transport::reaper::Reaper;
use moongate_upstream::UpstreamRuntime;

/// Time for reading the files. A network file system may stall.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

impl ConfigReloader {
    /// Compares servers with those of the config.
    pub(super) async fn compare_with_config(
        &self,
        found: Vec<ParsedServer>,
        own_url: String,
    ) -> Result<ComparedServers, ChangeRefusal> {
        self.with_options(Vec::new(), move |options, _| {
            let known = known_servers(options)
                .map_err(|error| ConfigEditError::new("io", format!("{error:#}")))?;
            let mut own = self_addresses(options);
            // The config may leave the port to the system.
            own.addresses
                .extend(SelfAddresses::of_url(&own_url).addresses);
            let found = found.into_iter().map(|entry| (String::new(), entry));
            let rows = plan_import(found, &known, &own, &reference_variables(options));
            Ok(ComparedServers {
                rows,
                known: KnownReferences::read(options),
            })
        })
        .await
    }

    /// Prepares a change, and writes nothing.
    pub(super) async fn prepare_change(
        &self,
        operations: Vec<ConfigOperation>,
    ) -> Result<ChangePreview, ChangeRefusal> {
        let prepared = self.prepare(operations.clone()).await?;
        let file =
            std::path::absolute(prepared.path()).unwrap_or_else(|_| prepared.path().to_owned());
        Ok(ChangePreview {
            file,
            diff: prepared.diff(),
            problems: prepared.problems_of_new(&operations),
        })
    }

    /// Connects once to the server that an operation would add.
    pub(super) async fn probe_new_server(&self, operation: ConfigOperation) -> ProbeReport {
        let name = operation.server().unwrap_or_default().to_owned();
        let operations = vec![operation];
        let prepared = match self.prepare(operations.clone()).await {
            Ok(prepared) => prepared,
            Err(ChangeRefusal { error, .. }) if error.code == "commands_not_allowed" => {
                return failed(
                    error.message,
                    "`admin.allow_commands` would allow it; `moongate add` adds it without",
                );
            }
            Err(ChangeRefusal { error, .. }) => {
                // Problems of a config show no secret, and name the way out.
                let problem = error.problems.into_iter().next();
                return problem.map_or_else(
                    || failed(error.message, "correct its settings"),
                    |problem| ProbeReport::Failed {
                        message: problem.message,
                        hint: problem.fix,
                    },
                );
            }
        };
        // Without its variables it could not be asked for what it would have with them.
        if let Some(problem) = prepared.problems_of_new(&operations).into_iter().next() {
            return ProbeReport::Failed {
                message: problem.message,
                hint: problem.fix,
            };
        }
        let server = prepared
            .loaded()
            .plan
            .servers
            .iter()
            .find(|server| server.name == name);
        match server.cloned() {
            Some(settings) => {
                // Separate metrics: the server is not part of the config, and must leave no
                // series.
                let mut shared = UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled());
                shared.reaper = self.targets.shared.reaper.clone();
                // The server may be one of before, under the same name and URL, or have a command
                // that prints its credential.
                let logins = self.targets.logins.as_ref();
                let logins = logins.map(|logins| logins_for(logins, &settings));
                let shared =
                    shared.with_credentials(logins.map(|it| it as Arc<dyn CredentialDirectory>));
                probe_for_operator(settings, &shared, self.status.load().edits.allow_commands).await
            }
            None => failed(
                "it would be switched off".to_owned(),
                "remove `enabled = false` to try it",
            ),
        }
    }

    /// Prepares an edit. Only where this gateway read no file at all may one be started.
    pub(super) fn prepare_edit(
        &self,
        edits: AdminEdits,
        options: &LoadOptions<'_>,
        operations: &[ConfigOperation],
    ) -> Result<PreparedEdit, ConfigEditError> {
        let status = self.status.load();
        let known = status.places.files();
        if let Some(file) = known.iter().find(|file| !file.path.exists()) {
            return Err(file_gone(&file.path));
        }
        let created = moongate_config::users_file(&options.env);
        let prepared = prepare_operator_edit(edits, options, created.as_deref(), operations)?;
        // Started from nothing, the file would have this entry alone, and the reload would stop all
        // that is missing there.
        match prepared.is_new_file() && !known.is_empty() {
            true => Err(file_gone(prepared.path())),
            false => Ok(prepared),
        }
    }

    async fn prepare(
        &self,
        operations: Vec<ConfigOperation>,
    ) -> Result<PreparedEdit, ChangeRefusal> {
        let Some(own) = self.self_ref.upgrade() else {
            return Err(ConfigEditError::new("internal", "the gateway is stopping").into());
        };
        let edits = self.status.load().edits;
        self.with_options(operations, move |options, operations| {
            own.prepare_edit(edits, options, operations)
        })
        .await
    }

    /// Runs what reads files with the options that the config is read with before these operations
    /// are written.
    async fn with_options<T: Send + 'static>(
        &self,
        operations: Vec<ConfigOperation>,
        run: impl FnOnce(&LoadOptions<'static>, &[ConfigOperation]) -> Result<T, ConfigEditError>
        + Send
        + 'static,
    ) -> Result<T, ChangeRefusal> {
        let Some(own) = self.self_ref.upgrade() else {
            return Err(ConfigEditError::new("internal", "the gateway is stopping").into());
        };
        let failing = async { failing_with_new(&*own.running.lock().await, &operations) };
        let Ok(failing) = tokio::time::timeout(READ_TIMEOUT, failing).await else {
            return Err(ConfigEditError::new(
                "busy",
                "a change or a reload is under way; try again",
            )
            .into());
        };
        let reading = tokio::task::spawn_blocking(move || {
            let Some(source) = &own.source else {
                let message = "this gateway was started without a config that could be written";
                return Err(ConfigEditError::new("read_only", message));
            };
            run(
                &LoadOptions {
                    failing,
                    ..(source.options)()
                },
                &operations,
            )
        });
        // The timeout ends the request only. The thread stays until its file system answers.
        match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(Ok(done)) => done.map_err(ChangeRefusal::from),
            Ok(Err(_)) => {
                Err(ConfigEditError::new("internal", "reading the config was interrupted").into())
            }
            Err(_) => {
                Err(ConfigEditError::new("busy", "the config files cannot be read in time").into())
            }
        }
    }
}

fn failed(message: String, hint: &str) -> ProbeReport {
    ProbeReport::Failed {
        message,
        hint: hint.to_owned(),
    }
}

fn file_gone(file: &Path) -> ConfigEditError {
    let message = format!(
        "{} is gone, so the gateway keeps what it read there: restore the file, then try again",
        file.display()
    );
    ConfigEditError::new("no_file", message)
}
