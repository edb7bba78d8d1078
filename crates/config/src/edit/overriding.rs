//! What else decides about a setting that an edit is to change: a variable, a flag, or another
//! file.
//!
//! Owns the search for it. Does not tell whether an edit has its effect (`effect.rs`). Invariant:
//! the edited file itself is never named.

use std::path::Path;

use super::operation::ConfigOperation;
use crate::options::LoadOptions;
use crate::problem::ProblemOrigin;
use crate::setting_places::SettingPlaces;

/// Config with the edit, and the file that has it.
pub(super) struct EditedConfig<'a> {
    pub(super) options: &'a LoadOptions<'a>,
    pub(super) path: &'a Path,
}

impl ConfigOperation {
    /// Finds what decides in place of the edit.
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
        let places = SettingPlaces::read(options).ok()?;
        self.settings()
            .iter()
            .find_map(|keys| match places.find(keys)?.origin {
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
        let of_server = |server: &str, keys: &[&str]| -> Vec<String> {
            ["servers", server]
                .iter()
                .chain(keys)
                .map(|key| (*key).to_owned())
                .collect()
        };
        match self {
            ConfigOperation::AddServer { name, .. } | ConfigOperation::RemoveServer(name) => {
                vec![of_server(name, &["enabled"]), of_server(name, &[])]
            }
            ConfigOperation::EnableServer(name) | ConfigOperation::DisableServer(name) => {
                vec![of_server(name, &["enabled"])]
            }
            ConfigOperation::EnableTools(server, _) | ConfigOperation::DisableTools(server, _) => {
                vec![
                    of_server(server, &["tools", "deny"]),
                    of_server(server, &["tools", "allow"]),
                ]
            }
            ConfigOperation::SetKeys { server, values } => {
                values.keys().map(|key| of_server(server, &[key])).collect()
            }
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
