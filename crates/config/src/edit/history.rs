//! Past edits of the config, for an undo.
//!
//! Owns the file of the past edits in the state folder, and its bounds. Does not decide who may
//! undo. Invariant: an undo restores the exact bytes, and only while the file is as the edit left
//! it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use moongate_edit::{ConfigFile, WriteError};
use serde::{Deserialize, Serialize};

use super::edit_error::ConfigEditError;
use super::prepared::{PreparedEdit, WrittenEdit};
use crate::load::load;
use crate::options::LoadOptions;
use crate::plan::Plan;

/// Edits that are kept.
const EDITS_MAX: usize = 20;
/// Bytes of earlier contents that are kept in all. Older edits make room.
const BYTES_MAX: usize = 4 << 20;
/// Times that a writer waits for another one, and the pause between.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(25);
/// Name of the file. Several gateways may share a folder, and each sees the edits of its own files.
const FILE_NAME: &str = "edits.json";

/// Past edits, in a file that only its owner may read.
#[derive(Clone, Debug)]
pub struct EditHistory {
    path: PathBuf,
}

/// Past edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastEdit {
    /// Time of the edit.
    pub at: String,
    /// File that was edited.
    pub file: PathBuf,
    /// Description in a few words.
    pub summary: String,
    /// Tag of the contents after the edit.
    pub tag: String,
    /// Author. `None`: an earlier version made the edit, and noted none.
    #[serde(default)]
    pub author: Option<EditAuthor>,
    /// Contents before. `None` if there was no file.
    before: Option<String>,
}

/// Author of an edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "via", rename_all = "lowercase")]
pub enum EditAuthor {
    /// User who ran a command on this machine.
    Command,
    /// Operator at the admin listener.
    Api {
        /// Name of the operator's key. `None` where no key was asked for.
        #[serde(default)]
        by: Option<String>,
    },
}

impl EditAuthor {
    /// Returns the word for the way of the edit.
    pub fn way(&self) -> &'static str {
        match self {
            EditAuthor::Command => "command",
            EditAuthor::Api { .. } => "api",
        }
    }

    /// Returns the name of the operator's key, if there is one.
    pub fn operator(&self) -> Option<&str> {
        match self {
            EditAuthor::Command => None,
            EditAuthor::Api { by } => by.as_deref(),
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
struct PastEdits {
    edits: Vec<PastEdit>,
}

impl EditHistory {
    /// Returns the history of a gateway with this plan. `None` if it keeps no state.
    pub fn of_plan(plan: &Plan) -> Option<EditHistory> {
        let folder = plan.state.file.as_ref()?.parent()?;
        Some(EditHistory::in_folder(folder))
    }

    /// Returns the history that is kept in a folder.
    pub fn in_folder(folder: &Path) -> EditHistory {
        EditHistory {
            path: folder.join(FILE_NAME),
        }
    }

    /// Adds an edit.
    pub fn record(
        &self,
        written: &WrittenEdit,
        author: EditAuthor,
    ) -> Result<PastEdit, ConfigEditError> {
        let edit = PastEdit {
            at: format!("{:.0}", jiff::Timestamp::now()),
            file: absolute(&written.path),
            summary: written.summary.clone(),
            tag: written.tag.as_str().to_owned(),
            author: Some(author),
            before: written.before.clone(),
        };
        self.change(|edits| edits.push(edit.clone()))?;
        Ok(edit)
    }

    /// Returns the edits of these files, the last one first.
    pub fn edits(&self, files: &[PathBuf]) -> Vec<PastEdit> {
        let own: Vec<PathBuf> = files.iter().map(|path| absolute(path)).collect();
        let mut edits = self.read().map(|(_, past)| past.edits).unwrap_or_default();
        edits.retain(|edit| own.contains(&edit.file));
        edits.reverse();
        edits
    }

    /// Prepares the undo of the last edit of these files. Refuses if the file changed since.
    pub fn prepare_undo(
        &self,
        options: &LoadOptions<'_>,
    ) -> Result<(PreparedEdit, PastEdit), ConfigEditError> {
        let past = self
            .edits(&options.paths)
            .into_iter()
            .next()
            .ok_or_else(nothing_to_undo)?;
        let path = options
            .paths
            .iter()
            .find(|path| absolute(path) == past.file)
            .ok_or_else(nothing_to_undo)?;
        let file = ConfigFile::read(path).map_err(ConfigEditError::from_write)?;
        // Otherwise the old bytes would erase later changes of people and other programs.
        if file.tag().as_str() != past.tag {
            let message = format!(
                "{} was changed after the last edit, so nothing was undone",
                path.display()
            );
            return Err(ConfigEditError::new("changed", message));
        }
        let mut options = options.clone();
        match &past.before {
            Some(text) => drop(options.texts.insert(path.clone(), text.clone())),
            None => options.paths.retain(|other| other != file.path()),
        }
        // The old text may be invalid by now: other files and variables change, too.
        let loaded = load(&options).map_err(|problems| ConfigEditError::invalid(&problems))?;
        let summary = format!("undid: {}", past.summary);
        let servers = Vec::new();
        let edits = Vec::new();
        Ok((
            PreparedEdit {
                file,
                text: past.before.clone(),
                loaded,
                summary,
                servers,
                edits,
            },
            past,
        ))
    }

    /// Removes an edit that was undone.
    pub fn forget(&self, undone: &PastEdit) -> Result<(), ConfigEditError> {
        self.change(|edits| {
            // From the end: of two equal edits the older one may still be undone later.
            if let Some(at) = edits.iter().rposition(|edit| edit == undone) {
                edits.remove(at);
            }
        })
    }

    fn read(&self) -> Result<(ConfigFile, PastEdits), WriteError> {
        let file = ConfigFile::read(&self.path)?;
        // A file that somebody broke holds nothing that could be undone.
        let past = serde_json::from_str(file.text()).unwrap_or_default();
        Ok((file, past))
    }

    // `Fn`, since whoever loses a race reads the file again and repeats its change.
    fn change(&self, change: impl Fn(&mut Vec<PastEdit>)) -> Result<(), ConfigEditError> {
        let mut attempt = 0;
        loop {
            let (file, mut past) = self.read().map_err(ConfigEditError::from_write)?;
            change(&mut past.edits);
            make_room(&mut past.edits);
            let text = serde_json::to_string(&past).unwrap_or_default();
            attempt += 1;
            match file.write(&text) {
                Ok(_) => return Ok(()),
                // Another process edits at the same time.
                Err(WriteError::Changed { .. } | WriteError::Locked { .. })
                    if attempt < ATTEMPTS =>
                {
                    std::thread::park_timeout(PAUSE);
                }
                Err(error) => return Err(ConfigEditError::from_write(error)),
            }
        }
    }
}

/// Drops the oldest edits over the bounds.
fn make_room(edits: &mut Vec<PastEdit>) {
    let mut room = BYTES_MAX;
    let mut kept = 0;
    for edit in edits.iter().rev().take(EDITS_MAX) {
        // Ends at the first that does not fit: older edits can be undone only after it.
        let Some(left) = room.checked_sub(edit.before.as_deref().map_or(0, str::len)) else {
            break;
        };
        (room, kept) = (left, kept + 1);
    }
    edits.drain(..edits.len() - kept);
}

fn nothing_to_undo() -> ConfigEditError {
    ConfigEditError::new(
        "nothing_to_undo",
        "no edits of this config are on record, so there is nothing to undo",
    )
}

/// Returns the path of a file as every process sees it. The file may be missing.
fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}
