//! Edits of the config in place: servers, their tools, keys.
//!
//! Owns the operations, and the proof that the whole config still works and has the wanted effect. Does not know formats
//! (`moongate_edit`), and applies nothing to a running gateway. Invariant: a config that cannot be edited safely stays as
//! it is.

mod edit_error;
mod effect;
mod guarded_settings;
mod history;
mod line_diff;
mod operation;
mod prepared;
mod refused_settings;
mod server_entry;
mod shown_entry;
#[cfg(test)]
mod tests;
mod tool_rules;

use std::path::Path;

use moongate_edit::{ConfigFile, Edit, Format};

pub use edit_error::ConfigEditError;
pub use guarded_settings::guarded_setting;
pub use history::{EditHistory, PastEdit};
pub use operation::{ConfigOperation, without_references};
pub use prepared::{PreparedEdit, WrittenEdit};
pub use refused_settings::refused_settings;
pub use shown_entry::{ShownEntry, ShownValue, shown_entry};
pub use tool_rules::is_pattern_of;

pub use crate::keys::KeyList;
use crate::load::load;
use crate::options::LoadOptions;

/// Returns the entry of a server as a file has it, under our key or those of clients.
pub fn raw_entry(path: &Path, name: &str) -> Option<serde_json::Value> {
    let options = LoadOptions::of_files(vec![path.to_owned()], Default::default());
    let entry = server_entry::find_entries(&options, name).ok()?.pop()?;
    Some(entry.node.to_json(&|_, _| false))
}

/// Prepares operations on one file: edits the text, and proves that the config with it has the wanted effects.
///
/// `unedited` are the options that the gateway would load. Without files, `created` is the file to begin.
pub fn prepare_edit(
    unedited: &LoadOptions<'_>,
    created: Option<&Path>,
    operations: &[ConfigOperation],
) -> Result<PreparedEdit, ConfigEditError> {
    let mut options = unedited.clone();
    // A server that is edited must work afterwards, even if it failed before. A new one may lack variables (`effect.rs`).
    let known = operations.iter().filter(|operation| operation.added_server().is_none());
    let own: Vec<&str> = known.filter_map(ConfigOperation::server).collect();
    options.failing.retain(|name| !own.contains(&name.as_str()));
    let mut edited: Option<ConfigFile> = None;
    for operation in operations {
        let target = operation.target(&options, created)?;
        let file = match edited.take() {
            Some(file) if file.path() == target.path => file,
            Some(file) => {
                let (one, other) = (file.path().display(), target.path.display());
                let message = format!("this would change {one} and {other}: make one change at a time");
                return Err(ConfigEditError::new("cannot_edit", message));
            }
            None => ConfigFile::read(&target.path)
                .map_err(|error| ConfigEditError::from_write(error).with_snippet(operation.snippet()))?,
        };
        let before = options.texts.get(&target.path).map_or(file.text(), String::as_str);
        let text = edit_text(&target.path, before, &target.edits, operation)?;
        options.texts.insert(target.path.clone(), text);
        if options.paths.is_empty() {
            options.paths.push(target.path);
        }
        edited = Some(file);
    }
    let Some(file) = edited else { return Err(ConfigEditError::new("bad_value", "this changes nothing")) };
    let text = options.texts.remove(file.path()).unwrap_or_default();
    options.texts.insert(file.path().to_owned(), text.clone());
    let loaded = load(&options).map_err(|problems| match load(unedited) {
        Ok(_) => ConfigEditError::invalid(&problems),
        Err(before) => ConfigEditError::invalid_before(&before),
    })?;
    operations.iter().try_for_each(|operation| operation.check_effect(&loaded))?;
    let summary = operations.iter().map(ConfigOperation::summary).collect::<Vec<_>>().join(", ");
    let snippet = operations.first().and_then(ConfigOperation::snippet).filter(|_| operations.len() == 1);
    let servers = operations.iter().filter_map(ConfigOperation::server).map(str::to_owned).collect();
    Ok(PreparedEdit { file, text: Some(text), loaded, summary, servers, snippet })
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
