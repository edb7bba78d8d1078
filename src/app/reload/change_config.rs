//! Changes of the config files by operators.
//!
//! Owns the order: wait for a reload under way, edit, write, note for an undo, apply. Does not edit
//! texts (`moongate_config::edit`). Invariant: one change or reload at a time, and a change that
//! was written is applied even if nobody waits for it any more.

use std::time::Duration;

use tokio::runtime::Handle;

use super::editor::FileEditor;
use super::undo_rights::check_undo;
use super::{ConfigReloader, ReloadOutcome, ReloadSource, failing_with_new, working_servers};
use crate::app::metadata_address::is_metadata_target;
use moongate_access::auth::AdminRole;
use moongate_admin::{AppliedChange, ChangeKind, ChangeRefusal, ConfigChange};
use moongate_config::edit::{
    ConfigEditError, ConfigOperation, EditAuthor, EditHistory, KeyList, PastEdit, PreparedEdit,
};
use moongate_config::{ErrorTolerance, LoadOptions, Plan};
use moongate_transport::metadata_address::MetadataAccess;
use moongate_upstream::ServerSettings;

/// Time that a change waits for a reload or another change.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the whole change. A network file system may stall.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time to look a new server's name up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
/// Times that a change starts again while another process writes, and the pause between.
const WRITE_ATTEMPTS: u32 = 40;
const WRITE_PAUSE: Duration = Duration::from_millis(25);

impl FileEditor {
    /// Writes a change and applies it. Goes on in the background if its caller disconnects, or if
    /// it takes too long.
    pub(super) async fn change_config_files(
        &self,
        change: ConfigChange,
    ) -> Result<AppliedChange, ChangeRefusal> {
        if self.reloader.source.is_none() {
            let message = "this gateway was started without a config that could be written";
            return Err(ConfigEditError::new("read_only", message).into());
        }
        let own = self.clone();
        // A separate task: a caller that disconnects would otherwise stop it between write and
        // reload.
        let changing = tokio::spawn(async move { own.change_in_turn(change).await });
        // The timeout drops the handle only, and the task goes on.
        match tokio::time::timeout(CHANGE_TIMEOUT, changing).await {
            Ok(Ok(changed)) => changed,
            Ok(Err(_)) => {
                Err(ConfigEditError::new("internal", "the change was interrupted").into())
            }
            Err(_) => Err(busy(
                "the change takes longer than expected; /api/v1/config shows its outcome",
            )),
        }
    }

    async fn change_in_turn(self, change: ConfigChange) -> Result<AppliedChange, ChangeRefusal> {
        let reloader = self.reloader.clone();
        // Locked until the change is applied: a reload in between would take its effect from this
        // report.
        let Ok(mut running) = tokio::time::timeout(TURN_TIMEOUT, reloader.running.lock()).await
        else {
            return Err(busy("another change or a reload is under way; try again"));
        };
        // Read under the lock, since the reload before may have switched edits off.
        let plan = running.plan.clone();
        let operator = change.operator.clone();
        let operations = match &change.kind {
            ChangeKind::Edit(operations) => &operations[..],
            ChangeKind::Undo => &[],
        };
        let mut failing = failing_with_new(&running, operations);
        let working = working_servers(&running.plan);
        let tolerated = failing.clone();
        // `spawn_blocking`: files are read and written.
        let writing = tokio::task::spawn_blocking(move || match &self.reloader.source {
            Some(source) => {
                let history = self.history.as_deref();
                PendingChange {
                    reloader: &self.reloader,
                    source,
                    history,
                    failing: tolerated,
                    working,
                    plan,
                }
                .write_patiently(&change)
            }
            None => Err(busy("there is no config")),
        });
        let Ok(written) = writing.await else {
            return Err(ConfigEditError::new("internal", "the change was interrupted").into());
        };
        let mut applied = written?;
        // Without a difference, a reload would report what others did to the files.
        if !applied.diff.is_empty() {
            tracing::info!(
                operator,
                "config changed by an operator: {}",
                applied.summary
            );
            failing.extend(
                applied
                    .problems
                    .iter()
                    .filter_map(|problem| problem.server.clone()),
            );
            let read = reloader.watched.current().await;
            let outcome = match reloader.load(failing.clone()).await {
                Ok(loaded) => reloader.adopt(&mut running, loaded),
                Err(refused) => ReloadOutcome::Refused(refused),
            };
            // If another mistake is in the way, the reload after its correction must accept what
            // was written here.
            running.accepted = if matches!(outcome, ReloadOutcome::Refused(_)) {
                failing
            } else {
                Vec::new()
            };
            reloader.watched.record(&read).await;
            reloader.log_outcome(&outcome);
            applied.reload = Some(outcome.report());
        }
        Ok(applied)
    }
}

fn busy(message: &str) -> ChangeRefusal {
    ConfigEditError::new("busy", message).into()
}

/// Change that is about to be written.
struct PendingChange<'a> {
    reloader: &'a ConfigReloader,
    source: &'a ReloadSource,
    history: Option<&'a EditHistory>,
    failing: Vec<String>,
    /// Servers that the gateway runs without a problem. No undo may cost them.
    working: Vec<String>,
    /// Plan in use.
    plan: Plan,
}

/// Part of a change that the history of edits gets.
enum HistoryNote {
    /// Bytes before the edit of this author.
    Added(EditAuthor),
    /// Undo of an edit.
    Undone(PastEdit),
}

impl PendingChange<'_> {
    /// Writes the change. Starts again while another process writes the same files.
    fn write_patiently(&self, change: &ConfigChange) -> Result<AppliedChange, ChangeRefusal> {
        for _ in 0..WRITE_ATTEMPTS {
            match self.write(change) {
                Err(refusal) if is_in_the_way(&refusal, change) => {
                    std::thread::park_timeout(WRITE_PAUSE);
                }
                done => return done,
            }
        }
        self.write(change)
    }

    fn write(&self, change: &ConfigChange) -> Result<AppliedChange, ChangeRefusal> {
        match &change.kind {
            ChangeKind::Edit(operations) => self.write_edit(operations, change),
            ChangeKind::Undo => self.undo(change.expected_tag.as_deref()),
        }
    }

    fn options(&self) -> LoadOptions<'static> {
        LoadOptions {
            failing: self.failing.clone(),
            ..(self.source.options)()
        }
    }

    fn write_edit(
        &self,
        operations: &[ConfigOperation],
        change: &ConfigChange,
    ) -> Result<AppliedChange, ChangeRefusal> {
        let options = self.options();
        let prepared = self
            .reloader
            .prepare_edit(self.plan.admin_edits, &options, operations);
        if !self.plan.admin_edits.edit {
            let message = "config changes are switched off here (admin.edit)";
            let snippet = prepared.ok().and_then(|prepared| prepared.snippet());
            return Err(ConfigEditError {
                snippet,
                ..ConfigEditError::new("edit_off", message)
            }
            .into());
        }
        let prepared = prepared.map_err(|error| self.name_fileless(error, operations))?;
        // After the file was read: the tag must be that of the bytes that the edit began with.
        check_tag(&prepared, change.expected_tag.as_deref())?;
        let plan = &prepared.loaded().plan;
        operations
            .iter()
            .try_for_each(|operation| check_operators(operation, plan))?;
        operations
            .iter()
            .try_for_each(|operation| check_expiry(operation, plan))?;
        // The reload would refuse it, and the file would keep what is not in use.
        self.reloader
            .check_open(&self.plan, plan)
            .map_err(|why| ConfigEditError::new("problems", why))?;
        check_addresses(operations, plan)?;
        let servers = operations
            .iter()
            .filter_map(|operation| operation.server().map(str::to_owned))
            .collect();
        let problems = prepared.problems_of_new(operations);
        let applied = self.finish(
            prepared,
            servers,
            HistoryNote::Added(EditAuthor::Api {
                by: change.operator.clone(),
            }),
        )?;
        Ok(AppliedChange {
            problems,
            ..applied
        })
    }

    /// Explains that a server of this gateway is in no file.
    fn name_fileless(
        &self,
        error: ConfigEditError,
        operations: &[ConfigOperation],
    ) -> ConfigEditError {
        let server = operations
            .iter()
            .find_map(ConfigOperation::server)
            .filter(|_| error.code == "unknown_server");
        let status = self.reloader.status.load();
        let fileless = server.filter(|name| {
            self.working.iter().any(|working| working == name)
                && status.places.server(name).is_none()
        });
        match fileless {
            Some(name) => {
                let message = format!(
                    "{name:?} isn't in any config file, so it cannot be changed: it is the \
                     built-in demo, or it comes from variables (MOONGATE_SERVERS__…)"
                );
                ConfigEditError::new("cannot_edit", message)
            }
            None => error,
        }
    }

    fn undo(&self, expected: Option<&str>) -> Result<AppliedChange, ChangeRefusal> {
        if !self.plan.admin_edits.edit {
            return Err(ConfigEditError::new(
                "edit_off",
                "config changes are switched off here (admin.edit)",
            )
            .into());
        }
        let Some(history) = self.history else {
            let message =
                "this gateway keeps no past edits, since it keeps no state (gateway.state)";
            return Err(ConfigEditError::new("nothing_to_undo", message).into());
        };
        // What fails for want of a variable did so before the edit, too.
        let options = LoadOptions {
            tolerance: ErrorTolerance::PerServer,
            ..self.options()
        };
        let (prepared, past): (PreparedEdit, PastEdit) = history.prepare_undo(&options)?;
        check_tag(&prepared, expected)?;
        // What operators did they may take back. Anything else must not bring back what the owner
        // took away.
        let is_by_operator = matches!(past.author, Some(EditAuthor::Api { .. }));
        if !is_by_operator && !self.plan.admin_edits.allow_commands {
            check_undo(&self.plan, &prepared.loaded().plan)?;
        }
        let problems = prepared.failed().to_vec();
        let costly = problems.iter().find(|problem| {
            problem
                .server
                .as_ref()
                .is_none_or(|name| self.working.contains(name))
        });
        if let Some(problem) = costly {
            let message = format!("nothing was changed: {}; {}", problem.message, problem.fix);
            return Err(ConfigEditError::new("problems", message).into());
        }
        let applied = self.finish(prepared, Vec::new(), HistoryNote::Undone(past))?;
        Ok(AppliedChange {
            problems,
            ..applied
        })
    }

    fn finish(
        &self,
        prepared: PreparedEdit,
        servers: Vec<String>,
        note: HistoryNote,
    ) -> Result<AppliedChange, ChangeRefusal> {
        let is_unchanged = prepared.is_unchanged();
        let diff = prepared.diff();
        let history = self.history.filter(|_| !is_unchanged);
        // Before the write: whatever happens to the file, its old bytes are kept.
        let added = match (history, &note) {
            (Some(history), HistoryNote::Added(author)) => {
                Some(history.record(&prepared.planned(), author.clone()))
            }
            _ => None,
        };
        let written = prepared.write().inspect_err(|_| {
            // A note of a change that failed would offer an undo of nothing.
            if let (Some(history), Some(Ok(added))) = (history, &added) {
                let _ = history.forget(added);
            }
        })?;
        let noted = match note {
            HistoryNote::Added(_) => added.map(|added| added.map(drop)),
            HistoryNote::Undone(past) => history.map(|history| history.forget(&past)),
        };
        if let Some(Err(error)) = &noted {
            tracing::warn!("edit of the config cannot be undone: {error}");
        }
        Ok(AppliedChange {
            file: std::path::absolute(&written.path).unwrap_or(written.path),
            line: written.line,
            diff,
            tag: written.tag.as_str().to_owned(),
            summary: written.summary,
            can_undo: matches!(noted, Some(Ok(()))),
            servers,
            problems: Vec::new(),
            reload: None,
        })
    }
}

/// True if a change was refused only because another process writes.
fn is_in_the_way(refusal: &ChangeRefusal, change: &ConfigChange) -> bool {
    match (refusal.error.code, &change.kind, &change.expected_tag) {
        ("locked", _, _) => true,
        // Nobody said which contents the file must have, so those of the other process will do.
        ("changed", ChangeKind::Edit(_), None) => true,
        _ => false,
    }
}

/// Refuses a server whose address gives a cloud's credentials to whoever asks. Who may write the
/// file may write that, too.
fn check_addresses(operations: &[ConfigOperation], plan: &Plan) -> Result<(), ConfigEditError> {
    let targets = plan.servers.iter().filter(|server| {
        operations
            .iter()
            .any(|operation| operation.sets_target() && operation.server() == Some(&server.name))
    });
    // All names at once: each may take as long as the limit.
    let refused = futures_util::future::join_all(targets.map(refused_name));
    let Some(name) = Handle::current()
        .block_on(refused)
        .into_iter()
        .flatten()
        .next()
    else {
        return Ok(());
    };
    let message = format!(
        "{name} would be a cloud metadata service, which cannot be added here: use `moongate add`, \
         or edit the file"
    );
    Err(ConfigEditError::new("address_not_allowed", message))
}

/// Returns the name of a server that is a metadata service, unless it may be one.
async fn refused_name(server: &ServerSettings) -> Option<String> {
    let is_refused = server.metadata == MetadataAccess::Refused;
    (is_refused && is_metadata_target(&server.connect, LOOKUP_TIMEOUT).await)
        .then(|| server.name.clone())
}

/// Refuses a change of the operators' keys after which nobody could make another one.
fn check_operators(operation: &ConfigOperation, plan: &Plan) -> Result<(), ConfigEditError> {
    let message = match operation {
        _ if plan
            .admin_access
            .keys
            .iter()
            .any(|key| key.role == AdminRole::Operate) =>
        {
            return Ok(());
        }
        ConfigOperation::RemoveKey(KeyList::Operators, name) => {
            format!(
                "{name:?} is the last of admin.keys with the role \"operate\": make another \
                     one first"
            )
        }
        ConfigOperation::AddKey {
            list: KeyList::Operators,
            ..
        } => {
            "the first of admin.keys needs the role \"operate\", because without one nobody could \
              change anything here"
                .to_owned()
        }
        _ => return Ok(()),
    };
    Err(ConfigEditError::new("last_operator", message))
}

/// Refuses a new key that has expired already: nobody could use it, and as the first one it would
/// keep everybody out.
fn check_expiry(operation: &ConfigOperation, plan: &Plan) -> Result<(), ConfigEditError> {
    let ConfigOperation::AddKey {
        list: KeyList::Clients,
        key: new,
    } = operation
    else {
        return Ok(());
    };
    let key = plan.auth.keys.iter().find(|key| key.name == new.name);
    match key
        .and_then(|key| key.expires)
        .filter(|at| *at <= jiff::Timestamp::now())
    {
        Some(_) => Err(ConfigEditError::new(
            "bad_value",
            format!(
                "`expires`: {:?} has passed",
                new.expires.as_deref().unwrap_or_default()
            ),
        )),
        None => Ok(()),
    }
}

/// Refuses a change of a file that is not as its caller knew it.
fn check_tag(prepared: &PreparedEdit, expected: Option<&str>) -> Result<(), ChangeRefusal> {
    match expected {
        Some(expected) if expected != prepared.tag() => {
            let message = format!(
                "{} has changed since you viewed it",
                prepared.path().display()
            );
            let error = ConfigEditError::new("changed", message);
            Err(ChangeRefusal {
                error,
                tag: Some(prepared.tag().to_owned()),
            })
        }
        _ => Ok(()),
    }
}
