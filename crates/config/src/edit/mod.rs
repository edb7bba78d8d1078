//! Edits of the config in place: servers, their tools, keys.
//!
//! Owns the operations, and the proof that the whole config still works and has the intended
//! effect. Does not know formats (`moongate_edit`), and applies nothing to a running gateway.
//! Invariant: a config that cannot be edited safely stays as it is.

mod edit_error;
mod effect;
mod entry_lines;
mod file_entry;
mod file_keys;
mod guarded_settings;
mod history;
mod key_entry;
mod known_references;
mod line_diff;
mod literal_text;
mod operation;
mod operator_rights;
mod overriding;
mod plain_dollars;
mod prepared;
mod refused_settings;
mod server_layers;
mod shown_entry;
mod snippet;
#[cfg(test)]
mod tests;
mod tool_rules;

use std::path::Path;

use moongate_edit::{ConfigFile, Edit, Format};

pub use edit_error::ConfigEditError;
pub use entry_lines::entry_lines;
pub use history::{EditAuthor, EditHistory, PastEdit};
pub use key_entry::{KeyEntry, key_toml};
pub use known_references::KnownReferences;
pub use operation::ConfigOperation;
pub use prepared::{PreparedEdit, WrittenEdit};
pub use refused_settings::refused_settings;
pub use shown_entry::{server_toml, shown_entry};
pub use tool_rules::{is_pattern_of, pattern_of};

use crate::keys::AdminEdits;
pub use crate::keys::KeyList;
use crate::load::{LoadedConfig, load};
use crate::options::LoadOptions;
use operation::EditTarget;
use operator_rights::OperatorRights;
use overriding::EditedConfig;
use snippet::snippet;

/// Returns the entry of a server as a file has it, under our key or those of clients.
pub fn raw_entry(path: &Path, name: &str) -> Option<serde_json::Value> {
    let options = LoadOptions::of_files(vec![path.to_owned()], Default::default());
    let entry = file_entry::find_entries(&options, name).ok()?.pop()?;
    Some(entry.node.to_json(&|_, _| None))
}

/// Prepares operations on one file: edits the text, and proves that the config with it has the
/// intended effects.
///
/// `unedited` are the options that the gateway would load. Without files, `created` is the file to
/// create.
pub fn prepare_edit(
    unedited: &LoadOptions<'_>,
    created: Option<&Path>,
    operations: &[ConfigOperation],
) -> Result<PreparedEdit, ConfigEditError> {
    prepare_within(None, unedited, created, operations)
}

/// Prepares operations of an operator, as [`prepare_edit`] does. `edits` are the changes that the
/// config allows.
pub fn prepare_operator_edit(
    edits: AdminEdits,
    unedited: &LoadOptions<'_>,
    created: Option<&Path>,
    operations: &[ConfigOperation],
) -> Result<PreparedEdit, ConfigEditError> {
    let rights = (!edits.allow_commands).then(|| OperatorRights::of(unedited));
    prepare_within(rights.as_ref(), unedited, created, operations)
}

fn prepare_within(
    rights: Option<&OperatorRights>,
    unedited: &LoadOptions<'_>,
    created: Option<&Path>,
    operations: &[ConfigOperation],
) -> Result<PreparedEdit, ConfigEditError> {
    rights.map_or(Ok(()), |rights| rights.check_wanted(operations))?;
    let mut options = unedited.clone();
    // A server that is edited must work afterwards, even if it failed before. A new one may lack
    // variables (`effect.rs`).
    let known = operations
        .iter()
        .filter(|operation| operation.added_server().is_none());
    let own: Vec<&str> = known.filter_map(ConfigOperation::server).collect();
    options.failing.retain(|name| !own.contains(&name.as_str()));
    let EditedFile { file, edits, .. } = edit_file(&mut options, created, operations)?;
    if let (Some(rights), Some(after)) = (rights, options.texts.get(file.path())) {
        rights.check_written(file.path(), (file.text(), after), operations)?;
    }
    let loaded = load(&options).map_err(|problems| match load(unedited) {
        Ok(_) => ConfigEditError::invalid(&problems),
        Err(before) => ConfigEditError::invalid_before(&before),
    })?;
    check_variables(&loaded, operations)?;
    let config = EditedConfig {
        options: &options,
        path: file.path(),
    };
    operations
        .iter()
        .try_for_each(|operation| operation.check_effect(&loaded, &config))?;
    let summary = operations
        .iter()
        .map(ConfigOperation::summary)
        .collect::<Vec<_>>()
        .join(", ");
    let text = options.texts.remove(file.path()).unwrap_or_default();
    let servers = operations
        .iter()
        .filter_map(ConfigOperation::server)
        .map(str::to_owned)
        .collect();
    Ok(PreparedEdit {
        file,
        text: Some(text),
        loaded,
        summary,
        servers,
        edits,
    })
}

/// Edits the text of one file by each operation in turn. `options` get the edited text.
fn edit_file(
    options: &mut LoadOptions<'_>,
    created: Option<&Path>,
    operations: &[ConfigOperation],
) -> Result<EditedFile, ConfigEditError> {
    let mut edited: Option<EditedFile> = None;
    for (at, operation) in operations.iter().enumerate() {
        let EditTarget { path, edits } =
            plain_dollars::respell(operation.target(options, created)?, options)?;
        let mut file = match edited.take() {
            Some(edited) if edited.file.path() == path => edited,
            Some(edited) => return Err(edited.refuse_other(&path)),
            None => EditedFile::read(&path)?,
        };
        let before = options
            .texts
            .get(&path)
            .map_or(file.file.text(), String::as_str);
        let text = file
            .format
            .map(|format| moongate_edit::edit(format, before, &edits));
        file.record(operation, edits);
        let text = match text {
            Some(Ok(text)) => text,
            failed => {
                let why = failed.and_then(Result::err).map(|error| error.to_string());
                // What the others would write belongs to the lines to paste.
                for operation in &operations[at + 1..] {
                    if let Some(target) = operation
                        .target(options, created)
                        .ok()
                        .filter(|target| target.path == path)
                    {
                        file.record(operation, target.edits);
                    }
                }
                return Err(file.refuse(why));
            }
        };
        options.texts.insert(path.clone(), text);
        if options.paths.is_empty() {
            options.paths.push(path);
        }
        edited = Some(file);
    }
    edited.ok_or_else(|| ConfigEditError::new("bad_value", "this changes nothing"))
}

/// Refuses new servers that variables have settings for: the two would be merged, key by key.
fn check_variables(
    loaded: &LoadedConfig,
    operations: &[ConfigOperation],
) -> Result<(), ConfigEditError> {
    let Some(name) = operations
        .iter()
        .filter_map(ConfigOperation::added_server)
        .find(|name| !loaded.locations.server_variables(name).is_empty())
    else {
        return Ok(());
    };
    let variables = loaded.locations.server_variables(name).join(", ");
    let message = format!("the server {name:?} already exists in the environment: {variables}");
    Err(ConfigEditError::new("already_there", message))
}

/// File on its way to a prepared edit.
struct EditedFile {
    file: ConfigFile,
    format: Option<Format>,
    edits: Vec<Edit>,
}

impl EditedFile {
    fn read(path: &Path) -> Result<EditedFile, ConfigEditError> {
        let file = ConfigFile::read(path).map_err(ConfigEditError::from_write)?;
        Ok(EditedFile {
            file,
            format: Format::of_file(path),
            edits: Vec::new(),
        })
    }

    /// Records edits for the lines to paste. The hash of a key that nobody gets to see is useless
    /// there.
    fn record(&mut self, operation: &ConfigOperation, edits: Vec<Edit>) {
        if !matches!(operation, ConfigOperation::AddKey { .. }) {
            self.edits.extend(edits);
        }
    }

    /// Refuses an edit of a second file.
    fn refuse_other(&self, path: &Path) -> ConfigEditError {
        let one = self.file.path().display();
        let other = path.display();
        let message = format!("this would change {one} and {other}: make one change at a time");
        ConfigEditError::new("cannot_edit", message)
    }

    /// Refuses the edit, with the lines to paste.
    fn refuse(&self, why: Option<String>) -> ConfigEditError {
        let why = why.unwrap_or_else(|| "the file extension does not identify a format".to_owned());
        let error = ConfigEditError::new(
            "cannot_edit",
            format!("{}: {why}", self.file.path().display()),
        );
        error.with_snippet(snippet(self.file.path(), self.file.text(), &self.edits))
    }
}
