//! Config as operators see it: the answer of `/api/v1/config`.
//!
//! Owns the JSON fields. Does not read files. Invariant: a shown text has no secret.

use serde::{Deserialize, Serialize};

/// Config with the texts of its files and its past edits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ConfigView {
    /// Config in use.
    #[serde(flatten)]
    pub state: ConfigState,
    /// Edits that can be undone, the latest first.
    pub undo: Vec<PastEditRow>,
}

/// Config in use, and its last reload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ConfigState {
    /// Files, in the order in which they are read.
    pub files: Vec<ConfigFile>,
    /// Last reload.
    pub reload: LastReload,
    /// Time when the config in use was last read.
    pub in_use_since: String,
    /// Settings whose new values need a restart.
    pub needs_restart: Vec<String>,
    /// True if changes are accepted here.
    pub edit: bool,
    /// True if servers that start a program may be added here.
    pub allow_commands: bool,
}

/// File of the config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ConfigFile {
    /// Path, as the gateway knows it.
    pub path: String,
    /// Tag of its contents.
    pub etag: String,
    /// True if it can be written.
    pub writable: bool,
    /// Reason why it cannot.
    pub why_not: Option<String>,
    /// Text without secrets. `None` where texts are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_masked: Option<String>,
    /// Reason why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Last reload of the config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LastReload {
    /// Time of the reload.
    pub at: String,
    /// Outcome: `applied`, `unchanged` or `refused`.
    pub outcome: String,
    /// Problems of a refused config, for people.
    pub message: Option<String>,
}

/// Edit that can be undone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PastEditRow {
    /// Time of the edit.
    pub at: String,
    /// File that was edited.
    pub file: String,
    /// Description in a few words.
    pub summary: String,
    /// Tag of the contents after the edit.
    pub etag: String,
    /// Way in which it was made. `None`: unknown.
    pub via: Option<String>,
    /// Name of the operator's key.
    pub by: Option<String>,
}
