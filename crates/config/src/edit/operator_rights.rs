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
use super::known_references::{GuardedSetting, KnownReferences, added_reference};
use super::operation::ConfigOperation;
use crate::options::LoadOptions;
use crate::parsed_servers::written_servers;

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
        let guarded = operations.iter().find_map(|operation| {
            let setting = match operation {
                ConfigOperation::AddServer { settings, .. } => {
                    self.known.guarded_setting(settings.as_object()?)
                }
                ConfigOperation::SetKeys { values, .. } => values
                    .keys()
                    .find(|key| is_guarded_key(key))
                    .cloned()
                    .map(GuardedSetting::from),
                _ => None,
            };
            Some((setting?, operation.server().unwrap_or_default()))
        });
        guarded.map_or(Ok(()), |(setting, server)| Err(refusal(&setting, server)))
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
        for (name, settings) in &written_servers(path, after) {
            let guarded = match old.get(name).filter(|_| !added.contains(name.as_str())) {
                Some(before) => added_power(before, settings),
                None => self.known.guarded_setting(settings),
            };
            if let Some(setting) = guarded {
                return Err(refusal(&setting, name));
            }
        }
        Ok(())
    }
}

/// Finds a setting of a server that decides more than before. All that may change are keys that
/// anybody may set.
fn added_power(before: &Map<String, Value>, after: &Map<String, Value>) -> Option<GuardedSetting> {
    let mut guarded = before
        .keys()
        .chain(after.keys())
        .filter(|key| is_guarded_key(key));
    let changed = guarded.find(|key| before.get(*key) != after.get(*key));
    added_reference(before, after).or_else(|| changed.cloned().map(GuardedSetting::from))
}

fn refusal(GuardedSetting { path, variable }: &GuardedSetting, server: &str) -> ConfigEditError {
    let power = match variable {
        Some(variable) => {
            format!(
                "uses {variable}, which the config does not already send to that server's origin"
            )
        }
        None => "decides what runs, which file is read, or where secrets go".to_owned(),
    };
    let message = format!(
        "`{path}` of {server} {power}, and `admin.allow_commands` is false: use `moongate add`, or \
         edit the file"
    );
    ConfigEditError::new("commands_not_allowed", message)
}
