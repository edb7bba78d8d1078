//! Edits of the config in place: one server, its tools, one key.
//!
//! Owns the operations, and the proof that the whole config still works and has the wanted effect. Does not know formats
//! (`moongate_edit`), and applies nothing to a running gateway. Invariant: a config that cannot be edited safely stays as
//! it is.

mod edit_error;
mod line_diff;
mod operation;
mod server_entry;
#[cfg(test)]
mod tests;
mod tool_rules;

use std::path::{Path, PathBuf};

use moongate_edit::{ConfigFile, Edit, Format};

pub use edit_error::ConfigEditError;
pub use operation::{ConfigOperation, KeyList};

use crate::load::{LoadedConfig, load};
use crate::options::LoadOptions;

/// Edit that is proved and not written.
pub struct PreparedEdit {
    file: ConfigFile,
    text: String,
    loaded: LoadedConfig,
}

/// Edit that was written.
#[derive(Clone, Debug)]
pub struct WrittenEdit {
    /// File that was written.
    pub path: PathBuf,
    /// First line that changed, from 1.
    pub line: usize,
    /// Contents before, for an undo.
    pub before: String,
}

/// Prepares an operation: edits the text, and proves that the config with it has the wanted effect.
///
/// `options` are those that the gateway would load. Without files, `created` is the file to begin.
pub fn prepare_edit(
    options: &LoadOptions<'_>,
    created: Option<&Path>,
    operation: &ConfigOperation,
) -> Result<PreparedEdit, ConfigEditError> {
    let target = operation.target(options, created)?;
    let file = ConfigFile::read(&target.path)
        .map_err(|error| ConfigEditError::from_write(error).with_snippet(operation.snippet()))?;
    let text = edit_text(&target.path, file.text(), &target.edits, operation)?;
    let mut options = options.clone();
    options.texts.insert(target.path.clone(), text.clone());
    if options.paths.is_empty() {
        options.paths.push(target.path);
    }
    let loaded = load(&options).map_err(|problems| ConfigEditError::invalid(&problems))?;
    operation.check_effect(&loaded)?;
    Ok(PreparedEdit { file, text, loaded })
}

fn edit_text(path: &Path, text: &str, edits: &[Edit], operation: &ConfigOperation) -> Result<String, ConfigEditError> {
    let Some(format) = Format::of_file(path) else {
        let message = format!("{}: the file's extension does not say how it is written", path.display());
        return Err(ConfigEditError::new("cannot_edit", message));
    };
    moongate_edit::edit(format, text, edits).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        ConfigEditError::new("cannot_edit", message).with_snippet(operation.snippet())
    })
}

impl PreparedEdit {
    /// Returns the file that it is about.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns true if the file is already as wanted.
    pub fn is_unchanged(&self) -> bool {
        self.file.text() == self.text
    }

    /// Returns the tag of the file's contents before the edit.
    pub fn tag(&self) -> &str {
        self.file.tag().as_str()
    }

    /// Returns the changed lines, each with `-` or `+`.
    pub fn diff(&self) -> String {
        line_diff::changed_lines(self.file.text(), &self.text)
    }

    /// Returns the config with the edit.
    pub fn loaded(&self) -> &LoadedConfig {
        &self.loaded
    }

    /// Writes the file, if nobody else changed it meanwhile.
    pub fn write(self) -> Result<WrittenEdit, ConfigEditError> {
        let line = line_diff::first_changed_line(self.file.text(), &self.text);
        let written = WrittenEdit { path: self.file.path().to_owned(), line, before: self.file.text().to_owned() };
        if !self.is_unchanged() {
            self.file.write(&self.text).map_err(ConfigEditError::from_write)?;
        }
        Ok(written)
    }
}
