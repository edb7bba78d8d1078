//! Edits of operators who may not write commands.
//!
//! Owns what they are refused, by what they ask for and by what the file would have. Does not know the operator or the
//! permission (`admin.allow_commands`). Invariant: the entry that results is judged, whatever spelling it was written in.

use std::path::Path;

use super::edit_error::ConfigEditError;
use super::guarded_settings::is_guarded_key;
use super::known_references::{GuardedSetting, KnownReferences, added_reference};
use super::operation::ConfigOperation;
use crate::options::LoadOptions;
use crate::server_entries::written_servers;

/// Rights of an operator without `admin.allow_commands`.
pub(super) struct OperatorRights {
    known: KnownReferences,
}

impl OperatorRights {
    /// Returns the rights in a config as its files are.
    pub(super) fn of(options: &LoadOptions<'_>) -> OperatorRights {
        OperatorRights { known: KnownReferences::read(options) }
    }

    /// Refuses operations by what they ask for. Comes first: to load the config would read the files that they name.
    pub(super) fn check_wanted(&self, operations: &[ConfigOperation]) -> Result<(), ConfigEditError> {
        let guarded = operations.iter().find_map(|operation| {
            let setting = match operation {
                ConfigOperation::AddServer { settings, .. } => self.known.guarded_setting(settings.as_object()?),
                ConfigOperation::SetKeys { values, .. } => {
                    values.keys().find(|key| is_guarded_key(key)).cloned().map(GuardedSetting::from)
                }
                _ => None,
            };
            Some((setting?, operation.server().unwrap_or_default()))
        });
        guarded.map_or(Ok(()), |(setting, server)| Err(refusal(&setting, server)))
    }

    /// Refuses operations by the entries that the file would have. The format of a client has references that ours lacks.
    pub(super) fn check_written(
        &self,
        path: &Path,
        (before, after): (&str, &str),
        operations: &[ConfigOperation],
    ) -> Result<(), ConfigEditError> {
        let old = written_servers(path, before);
        for (name, settings) in &written_servers(path, after) {
            let is_of = |operation: &&ConfigOperation| operation.server() == Some(name);
            let guarded = match operations.iter().find(is_of) {
                None => None,
                Some(operation) if operation.added_server().is_some() => self.known.guarded_setting(settings),
                Some(_) => added_reference(old.get(name), settings),
            };
            if let Some(setting) = guarded {
                return Err(refusal(&setting, name));
            }
        }
        Ok(())
    }
}

fn refusal(GuardedSetting { path, variable }: &GuardedSetting, server: &str) -> ConfigEditError {
    let power = match variable {
        Some(variable) => format!("refers to {variable}, which no server of the same origin is sent"),
        None => "decides what runs, which file is read, or where secrets go".to_owned(),
    };
    let message = format!(
        "`{path}` of {server} {power}, and `admin.allow_commands` is false: use `moongate add`, or edit the file"
    );
    ConfigEditError::new("commands_not_allowed", message)
}
