//! Entry of a server in the config, and its values in force, for the page alone: no route returns
//! them.
//!
//! Owns the fields. Does not read files or judge secrets. Invariant: no value is a secret.

use moongate_model::{ServerStart, SharingMode};
use serde::{Deserialize, Serialize};

/// Entry of a server, without its secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownEntry {
    /// Values, in the order of their keys.
    pub values: Vec<ShownValue>,
    /// Entry as TOML.
    pub toml: String,
}

/// Value of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownValue {
    /// Keys that lead to it. Items of lists have one value together.
    pub keys: Vec<String>,
    /// Text as the file has it. `None` for a secret that is written out.
    pub text: Option<String>,
    /// Line that reads a plain-text secret from a variable instead. Only for what is certainly a
    /// secret.
    pub advice: Option<String>,
}

impl ShownValue {
    /// Returns true if the text refers to variables or files.
    pub fn is_reference(&self) -> bool {
        self.text
            .as_deref()
            .is_some_and(|text| text.replace("$$", "").contains("${"))
    }
}

/// Values of a server's settings that hold now, as the config would write them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct EffectiveSettings {
    pub prefix: String,
    pub timeout: String,
    pub share: SharingMode,
    pub start: ServerStart,
    pub idle_stop: String,
}
