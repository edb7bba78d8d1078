//! Lists of keys in the files of a config.
//!
//! Owns the search for a key, and which file's list counts. Does not edit (`operation`). Invariant:
//! a list replaces those of weaker files as a whole, as it does when the config is loaded.

use std::path::PathBuf;

use super::edit_error::ConfigEditError;
use super::file_entry::read_tree;
use super::literal_text::without_references;
use crate::keys::KeyList;
use crate::options::LoadOptions;
use crate::tree::{ConfigNode, ConfigValue};

/// List of keys in one file.
pub(super) struct FileKeys {
    pub(super) path: PathBuf,
    keys: Vec<ConfigNode>,
}

impl FileKeys {
    /// Reads the lists of all files, weakest first. A file without one is left out.
    pub(super) fn read_all(
        options: &LoadOptions<'_>,
        list: KeyList,
    ) -> Result<Vec<FileKeys>, ConfigEditError> {
        let mut found = Vec::new();
        for path in &options.paths {
            let tree = read_tree(options, path)?;
            let table = tree.child(list.table());
            let keys = table.and_then(|table| table.child("keys"));
            if let Some(ConfigValue::List(keys)) = keys.map(|keys| &keys.value) {
                found.push(FileKeys {
                    path: path.clone(),
                    keys: keys.clone(),
                });
            }
        }
        Ok(found)
    }

    /// Returns the name of a key as the file has it. `None` if the key is not in the list.
    pub(super) fn written_name(&self, name: &str) -> Option<&str> {
        let written = without_references(name);
        let mut names = self
            .keys
            .iter()
            .filter_map(|key| key.child("name")?.as_text());
        // A dollar sign that starts no reference may also be single in the file.
        names.find(|found| *found == written || *found == name)
    }

    /// Returns true if the list has one key.
    pub(super) fn is_single(&self) -> bool {
        self.keys.len() == 1
    }
}
