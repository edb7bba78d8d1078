//! Facts that a gateway leaves next to its state, for commands that cannot read its config any
//! more.
//!
//! Owns their file, one for each set of config files. Does not connect, and does not open the state
//! itself. Invariant: nothing in it is secret, and a gateway that cannot write it still runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moongate_config::LoadOptions;
use moongate_edit::{ConfigFile, FileTag};
use moongate_platform::file_replacement;
use serde::{Deserialize, Serialize};

/// Start and end of the file's name.
const START: &str = "running-";
const ENDING: &str = ".json";
/// Files of other configs that stay in the folder. The oldest make room.
const FILES_MAX: usize = 32;

/// Facts about the gateway that last ran with a config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunningRecord {
    /// Address of its admin listener, or `unix:PATH`.
    pub(super) admin: Option<String>,
}

/// Folder of the facts, and of the past edits, for commands whose config cannot be read.
pub(super) fn folder(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    moongate_config::usual_state_folder(env)
}

impl RunningRecord {
    /// Writes the facts about the gateway of these config files.
    pub(super) fn keep(&self, folder: &Path, files: &[PathBuf]) {
        let path = folder.join(name_of(files));
        let text = serde_json::to_string(self).unwrap_or_default();
        let written = file_replacement::create_folders(folder)
            .map_err(|error| error.to_string())
            .and_then(|()| ConfigFile::read(&path).map_err(|error| error.to_string()))
            .and_then(|file| file.write(&text).map_err(|error| error.to_string()));
        match written {
            Ok(_) => make_room(folder),
            Err(error) => tracing::debug!(error, "record of this gateway not written"),
        }
    }

    /// Removes the facts once the gateway has stopped, unless another one with these files wrote
    /// its own meanwhile.
    pub(super) fn remove(&self, folder: &Path, files: &[PathBuf]) {
        let path = folder.join(name_of(files));
        let own = serde_json::to_string(self).unwrap_or_default();
        if ConfigFile::read(&path).is_ok_and(|file| file.text() == own) {
            // A record that stays does no harm: commands find nobody at its address.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Finds the facts about the gateway that last ran with these config files.
    pub(super) fn find(options: &LoadOptions<'_>) -> Option<RunningRecord> {
        let file = ConfigFile::read(&folder(&options.env)?.join(name_of(&options.paths))).ok()?;
        serde_json::from_str(file.text()).ok()
    }
}

/// Names the file by a hash of the paths: they may have any characters, and any length.
fn name_of(files: &[PathBuf]) -> String {
    let paths: Vec<PathBuf> = files
        .iter()
        .filter_map(|path| {
            std::fs::canonicalize(path)
                .or_else(|_| std::path::absolute(path))
                .ok()
        })
        .collect();
    let tag = FileTag::of_bytes(format!("{paths:?}").as_bytes());
    format!(
        "{START}{}{ENDING}",
        tag.as_str().get(..16).unwrap_or_default()
    )
}

/// Removes the oldest files over the bound.
fn make_room(folder: &Path) {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut records: Vec<_> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_record_name))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    records.sort();
    for (_, old) in records.iter().take(records.len().saturating_sub(FILES_MAX)) {
        // One too many does no harm.
        let _ = std::fs::remove_file(old);
    }
}

fn is_record_name(name: &str) -> bool {
    name.starts_with(START) && name.ends_with(ENDING)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn find(file: PathBuf, env: &BTreeMap<String, String>) -> Option<RunningRecord> {
        RunningRecord::find(&LoadOptions::of_files(vec![file], env.clone()))
    }

    #[test]
    fn each_config_has_its_record_and_old_ones_make_room() {
        let home = tempfile::tempdir().unwrap();
        let env = BTreeMap::from([(
            "XDG_STATE_HOME".to_owned(),
            home.path().display().to_string(),
        )]);
        let folder = folder(&env).unwrap();
        for n in 0..FILES_MAX + 3 {
            let record = RunningRecord {
                admin: Some(format!("127.0.0.1:{n}")),
            };
            let file = home.path().join(n.to_string());
            record.keep(&folder, std::slice::from_ref(&file));
            assert_eq!(find(file, &env), Some(record));
        }
        assert_eq!(find(home.path().join("other"), &env), None);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), FILES_MAX);
    }
}
