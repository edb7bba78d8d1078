//! What else decides about a setting that an edit is to change: a variable, a flag, or another
//! file.
//!
//! Owns the search for it. Does not decide whether an edit has its effect (`effect.rs`). Invariant:
//! the edited file itself is never named.

use std::path::Path;

use super::operation::ConfigOperation;
use crate::options::LoadOptions;
use crate::problem::ProblemOrigin;
use crate::setting_locations::SettingLocations;

/// Config with the edit, and the file that has it.
pub(super) struct EditedConfig<'a> {
    pub(super) options: &'a LoadOptions<'a>,
    pub(super) path: &'a Path,
}

impl ConfigOperation {
    /// Finds what decides instead of the edit.
    pub(super) fn overriding(
        &self,
        EditedConfig { options, path }: &EditedConfig<'_>,
    ) -> Option<String> {
        if let Some(server) = self.server()
            && !options.only.is_empty()
            && options.only.iter().all(|only| only != server)
        {
            return Some("the flag --only".to_owned());
        }
        let locations = SettingLocations::read(options).ok()?;
        self.settings()
            .iter()
            .find_map(|keys| match locations.find(keys)?.origin {
                ProblemOrigin::Variable(name) => Some(format!("the variable {name}")),
                ProblemOrigin::Flag(name) => Some(format!("the flag {name}")),
                ProblemOrigin::File {
                    path: other, line, ..
                } if other != *path => Some(format!("{}:{line}", other.display())),
                ProblemOrigin::File { .. } | ProblemOrigin::Nowhere => None,
            })
    }

    /// Lists the settings that it changes.
    fn settings(&self) -> Vec<Vec<String>> {
        match self {
            ConfigOperation::AddServer { name, .. } | ConfigOperation::RemoveServer(name) => {
                vec![server_path(name, &["enabled"]), server_path(name, &[])]
            }
            ConfigOperation::EnableServer(name) | ConfigOperation::DisableServer(name) => {
                vec![server_path(name, &["enabled"])]
            }
            ConfigOperation::EnableTools(server, _) | ConfigOperation::DisableTools(server, _) => {
                vec![
                    server_path(server, &["tools", "deny"]),
                    server_path(server, &["tools", "allow"]),
                ]
            }
            ConfigOperation::SetKeys { server, values } => values
                .keys()
                .map(|key| server_path(server, &[key]))
                .collect(),
            ConfigOperation::AddKey { list, .. } | ConfigOperation::RemoveKey(list, _) => {
                vec![vec![list.table().to_owned(), "keys".to_owned()]]
            }
            ConfigOperation::RequireKeys(_) => vec![vec!["auth".to_owned(), "required".to_owned()]],
            ConfigOperation::SetEnvFile(_) => {
                vec![vec!["gateway".to_owned(), "env_file".to_owned()]]
            }
        }
    }
}

fn server_path(server: &str, keys: &[&str]) -> Vec<String> {
    ["servers", server]
        .iter()
        .chain(keys)
        .map(|key| (*key).to_owned())
        .collect()
}
