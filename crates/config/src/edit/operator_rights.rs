//! Edits of operators who may not write commands.
//!
//! Owns what they are refused, by what they ask for and by what the file would have. Does not know
//! the operator or the permission (`admin.allow_commands`). Invariant: all entries that result are
//! judged, whatever spelling they are written in.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use super::edit_error::ConfigEditError;
use super::guarded_settings::is_guarded_key;
use super::known_references::{GuardedSetting, KnownReferences, added_references, is_within};
use super::operation::ConfigOperation;
use crate::options::LoadOptions;
use crate::parsed_servers::written_servers;
use crate::suggest::listed;

/// Limit of settings that a refusal names. A pasted file may have thousands.
const NAMED_MAX: usize = 10;

/// Rights of an operator without `admin.allow_commands`.
pub(super) struct OperatorRights {
    known: KnownReferences,
}

impl OperatorRights {
    /// Returns the rights in a config as its files are.
    pub(super) fn of(options: &LoadOptions<'_>) -> OperatorRights {
        OperatorRights {
            known: KnownReferences::read(options),
        }
    }

    /// Refuses operations by what they ask for. Comes first: to load the config would read the
    /// files that they name.
    pub(super) fn check_wanted(
        &self,
        operations: &[ConfigOperation],
    ) -> Result<(), ConfigEditError> {
        let refused = operations.iter().flat_map(|operation| {
            let server = operation.server().unwrap_or_default();
            let settings = self.wanted_settings(operation).into_iter();
            settings.map(move |setting| RefusedSetting { server, setting })
        });
        refuse(&refused.collect::<Vec<_>>())
    }

    /// Lists the settings of an operation that need the permission.
    fn wanted_settings(&self, operation: &ConfigOperation) -> Vec<GuardedSetting> {
        match operation {
            ConfigOperation::AddServer { settings, .. } => self.known.guarded_settings(settings),
            ConfigOperation::SetKeys { values, .. } => values
                .keys()
                .filter(|key| is_guarded_key(key))
                .cloned()
                .map(GuardedSetting::from)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Refuses operations by the entries that the file would have. The format of a client has
    /// references that ours lacks, and one entry can decide which format it is.
    pub(super) fn check_written(
        &self,
        path: &Path,
        (before, after): (&str, &str),
        operations: &[ConfigOperation],
    ) -> Result<(), ConfigEditError> {
        let old = written_servers(path, before);
        let added: BTreeSet<&str> = operations
            .iter()
            .filter_map(ConfigOperation::added_server)
            .collect();
        let written = written_servers(path, after);
        let refused = written.iter().flat_map(|(name, settings)| {
            let guarded = match old.get(name).filter(|_| !added.contains(name.as_str())) {
                Some(before) => added_power(before, settings),
                None => self.known.guarded_settings(settings),
            };
            guarded.into_iter().map(move |setting| RefusedSetting {
                server: name,
                setting,
            })
        });
        refuse(&refused.collect::<Vec<_>>())
    }
}

/// Setting that is refused, with its server.
struct RefusedSetting<'a> {
    server: &'a str,
    setting: GuardedSetting,
}

/// Lists the settings of a server that decide more than before. All that may change are keys that
/// anybody may set.
fn added_power(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<GuardedSetting> {
    let mut found = added_references(before, after);
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let is_changed = is_guarded_key(key) && before.get(key) != after.get(key);
        // A reference in it says more than the key alone.
        if is_changed && !found.iter().any(|found| is_within(&found.path, key)) {
            found.push(GuardedSetting::from(key.clone()));
        }
    }
    found
}

/// Refuses an edit with all its settings that need the permission, so that one answer shows what
/// has to go.
fn refuse(refused: &[RefusedSetting<'_>]) -> Result<(), ConfigEditError> {
    if refused.is_empty() {
        return Ok(());
    }
    let named = &refused[..refused.len().min(NAMED_MAX)];
    let mut reasons: Vec<String> = named
        .chunk_by(|a, b| a.server == b.server && a.setting.variable == b.setting.variable)
        .map(reason)
        .collect();
    let unnamed = refused.len() - named.len();
    if unnamed > 0 {
        reasons.push(format!("{unnamed} more settings are not allowed either"));
    }
    let message = format!(
        "{}, and `admin.allow_commands` is false: use `moongate add`, or edit the file",
        reasons.join("; ")
    );
    Err(ConfigEditError::new("commands_not_allowed", message))
}

/// Explains the refusal of settings of one server that use one variable, or none.
fn reason(refused: &[RefusedSetting<'_>]) -> String {
    let [first, others @ ..] = refused else {
        return String::new();
    };
    let paths: Vec<&str> = refused
        .iter()
        .map(|refused| refused.setting.path.as_str())
        .collect();
    let (uses, decides) = match others {
        [] => ("uses", "decides"),
        _ => ("use", "decide"),
    };
    let power = match &first.setting.variable {
        Some(variable) => format!(
            "{uses} {variable}, which the config does not already send to that server's origin"
        ),
        None => format!("{decides} what runs, which file is read, or where secrets go"),
    };
    format!("{} of {} {power}", listed(&paths), first.server)
}
