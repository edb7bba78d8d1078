//! Edits that are proved, and edits that were written.
//!
//! Owns the write, and the difference that people see. Does not make edits (`mod.rs`). Invariant: a
//! shown line has its secrets redacted.

use std::path::{Path, PathBuf};

use moongate_edit::{ConfigFile, Edit, FileTag};

use super::edit_error::ConfigEditError;
use super::line_diff::{changed_lines, first_changed_line};
use super::operation::ConfigOperation;
use super::snippet::snippet;
use crate::load::LoadedConfig;
use crate::problem::ConfigProblem;
use crate::redact_file::redact_file;

/// Edit that is proved and not written.
pub struct PreparedEdit {
    pub(super) file: ConfigFile,
    /// New text. `None` removes the file.
    pub(super) text: Option<String>,
    pub(super) loaded: LoadedConfig,
    pub(super) summary: String,
    /// Servers that it is about.
    pub(super) servers: Vec<String>,
    /// Edits of the file, for the lines to paste if it cannot be written.
    pub(super) edits: Vec<Edit>,
}

/// Edit that was written.
#[derive(Clone, Debug)]
pub struct WrittenEdit {
    /// File that was written.
    pub path: PathBuf,
    /// First line that changed, from 1.
    pub line: usize,
    /// Contents before, for an undo. `None` if there was no file.
    pub before: Option<String>,
    /// Tag of the contents now.
    pub tag: FileTag,
    /// Description in a few words.
    pub summary: String,
}

impl PreparedEdit {
    /// Returns the file that it is about.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns true if the file already is as the edit would leave it.
    pub fn is_unchanged(&self) -> bool {
        // A missing file reads as empty text. It still must be written if its new text is empty.
        self.text.as_deref() == Some(self.file.text()) && !self.file.tag().is_absent()
    }

    /// Returns true if the file does not exist yet.
    pub fn is_new_file(&self) -> bool {
        self.file.tag().is_absent()
    }

    /// Returns the tag of the file's contents before the edit.
    pub fn tag(&self) -> &str {
        self.file.tag().as_str()
    }

    /// Returns the changed lines, each with `-` or `+`, and without secrets.
    pub fn diff(&self) -> String {
        // Whole files are redacted: a single line does not show which key it belongs to.
        let path = self.file.path();
        let before = self.file.text();
        let after = self.new_text();
        changed_lines(
            (before, &redact_file(path, before)),
            (after, &redact_file(path, after)),
        )
    }

    /// Returns the config with the edit.
    pub fn loaded(&self) -> &LoadedConfig {
        &self.loaded
    }

    /// Returns problems of the entries that cost only their servers.
    pub fn failed(&self) -> &[ConfigProblem] {
        &self.loaded.failed
    }

    /// Returns the same problems, those of the edited servers apart from all others.
    pub fn failed_by_concern(&self) -> (Vec<&ConfigProblem>, Vec<&ConfigProblem>) {
        let failed = self.loaded.failed.iter();
        failed.partition(|problem| self.is_own(problem))
    }

    fn is_own(&self, problem: &ConfigProblem) -> bool {
        problem
            .server
            .as_ref()
            .is_some_and(|name| self.servers.contains(name))
    }

    /// Returns the problems of the servers that these operations add. Each costs only its server.
    pub fn problems_of_new(&self, operations: &[ConfigOperation]) -> Vec<ConfigProblem> {
        let added: Vec<&str> = operations
            .iter()
            .filter_map(ConfigOperation::added_server)
            .collect();
        self.loaded
            .failed
            .iter()
            .filter(|problem| {
                problem
                    .server
                    .as_deref()
                    .is_some_and(|name| added.contains(&name))
            })
            .cloned()
            .collect()
    }

    /// Writes the file, if nobody else changed it meanwhile.
    pub fn write(self) -> Result<WrittenEdit, ConfigEditError> {
        let planned = self.planned();
        // No write without a change: a new modification time would wake whatever watches the file.
        let written = match &self.text {
            _ if self.is_unchanged() => Ok(()),
            Some(text) => self.file.write(text).map(drop),
            None => self.file.remove(),
        };
        written.map_err(|error| ConfigEditError::from_write(error).with_snippet(self.snippet()))?;
        Ok(planned)
    }

    /// Returns what will be written.
    pub fn planned(&self) -> WrittenEdit {
        WrittenEdit {
            path: self.file.path().to_owned(),
            line: first_changed_line(self.file.text(), self.new_text()),
            before: (!self.file.tag().is_absent()).then(|| self.file.text().to_owned()),
            tag: self
                .text
                .as_ref()
                .map_or_else(FileTag::absent, |text| FileTag::of_bytes(text.as_bytes())),
            summary: self.summary.clone(),
        }
    }

    /// Returns the lines to paste where the file is not to be written. `None` where something is
    /// only taken away.
    pub fn snippet(&self) -> Option<String> {
        snippet(self.file.path(), self.file.text(), &self.edits)
    }

    fn new_text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}
