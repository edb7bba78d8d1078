//! Config changes: the bodies of a server's PATCH and of an undo, and the reports on changes,
//! reloads (`ReloadReport`), plans (`PlanReport`) and tool access (`ToolAccessChange`).
//!
//! Owns the JSON fields. Does not edit or reload. Invariant: the report on a change describes the
//! state after it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::server_status::ServerStatus;

/// Text that means no prefix, where an empty one cannot be sent.
pub const NO_PREFIX: &str = "\"\"";

/// Body of `PATCH /api/v1/servers/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ServerPatch {
    /// Switches the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Switches tools.
    #[serde(skip_serializing_if = "ToolSwitches::is_empty")]
    pub tools: ToolSwitches,
    /// Keys of the server's entry. Null removes one.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
}

/// Tools to switch, by the server's own names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ToolSwitches {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub off: Vec<String>,
}

impl ToolSwitches {
    /// Returns true if no tool is switched.
    pub fn is_empty(&self) -> bool {
        self.on.is_empty() && self.off.is_empty()
    }
}

/// Body of `POST /api/v1/config/undo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct UndoRequest {
    /// Tag of the contents after the edit, as its answer reported it.
    pub etag: Option<String>,
}

/// Change that was written, or that was not needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ChangeReport {
    /// Outcome for the file.
    pub outcome: ChangeOutcome,
    /// Description in a few words.
    pub summary: String,
    /// File that has the change.
    pub file: String,
    /// First line that changed, from 1.
    pub line: usize,
    /// Changed lines, without secrets. Empty if the file is unchanged.
    pub diff: String,
    /// Tag of the file's contents now.
    pub etag: String,
    /// True if the change can be undone.
    pub undo: bool,
    /// Problems of new servers. Each fails until its problem is solved.
    pub problems: Vec<ConfigProblemRow>,
    /// Reload that followed. `None` if the file is unchanged.
    pub reload: Option<ReloadReport>,
    /// Servers that the change or the reload is about.
    pub servers: Vec<ServerStatus>,
}

/// Outcome of a change for its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ChangeOutcome {
    #[default]
    Unchanged,
    Changed,
}

/// Problem of a config, with its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ConfigProblemRow {
    /// File, variable or flag with the problem.
    pub file: Option<String>,
    /// Line in the file.
    pub line: Option<usize>,
    /// Column in the line.
    pub column: Option<usize>,
    /// Description of the problem.
    pub message: String,
    /// Way to solve it.
    pub hint: String,
    /// Server that cannot be used because of it. `None`: the whole config cannot be used.
    pub server: Option<String>,
}

/// Report of a reload: the answer of `/api/v1/reload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ReloadReport {
    /// New config is in use.
    Applied {
        /// Changes that were made.
        changes: ConfigDifference,
    },
    /// Config has no change, or only changes that need a restart.
    Unchanged {
        /// Settings that need a restart.
        changes: ConfigDifference,
    },
    /// Config cannot be used. Nothing changed.
    Refused {
        /// Problems, for people.
        message: String,
    },
}

/// Effects that a reload would have: the answer of `/api/v1/plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum PlanReport {
    /// Config can be used.
    Fine {
        /// Changes that would be made.
        changes: ConfigDifference,
        /// Changes to what each key may call.
        keys: Vec<ToolAccessChange>,
    },
    /// Config cannot be used.
    Refused {
        /// Problems, for people.
        message: String,
    },
}

/// Difference between two configs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ConfigDifference {
    /// Servers that are new and get connected.
    pub added: Vec<String>,
    /// Servers that are closed after their calls.
    pub removed: Vec<String>,
    /// Servers that get a new connection or process. The old one serves until the new one is ready.
    pub replaced: Vec<String>,
    /// Servers with a different presentation or different limits. Their connections stay.
    pub changed: Vec<String>,
    /// Other settings that change.
    pub settings: Vec<String>,
    /// Settings that differ and apply only after a restart.
    pub needs_restart: Vec<String>,
}

/// Tools that a principal would gain and lose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ToolAccessChange {
    /// Name of the key. `None`: callers without one.
    pub key: Option<String>,
    /// Gained tools, by exposed name.
    pub gains: Vec<String>,
    /// Lost tools, by exposed name.
    pub loses: Vec<String>,
}
