//! Variables that references name: those of the process, and those of an env file.
//!
//! Owns their order. Does not read the file (`env_setting`). Invariant: a variable of the
//! process wins over one of the file.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Variables that references name.
#[derive(Debug)]
pub(super) struct ReferenceVariables<'a> {
    pub(super) process: &'a BTreeMap<String, String>,
    /// Variables of the env file.
    pub(super) file: BTreeMap<String, String>,
    /// Env file, even if it cannot be read.
    pub(super) path: Option<PathBuf>,
}

impl<'a> ReferenceVariables<'a> {
    /// Takes the variables of the process alone.
    pub(super) fn of_process(process: &'a BTreeMap<String, String>) -> Self {
        ReferenceVariables {
            process,
            file: BTreeMap::new(),
            path: None,
        }
    }

    /// Returns a variable. The flag says that it comes from a file, which makes it a secret.
    pub(super) fn get(&self, name: &str) -> Option<(&str, bool)> {
        let process = self.process.get(name).map(|value| (value.as_str(), false));
        process.or_else(|| self.file.get(name).map(|value| (value.as_str(), true)))
    }
}
