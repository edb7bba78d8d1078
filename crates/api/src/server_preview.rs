//! New servers: the bodies that name them, and the preview of what would be written.
//!
//! Owns the JSON fields. Does not read texts or connect. Invariant: no answer has a secret of its
//! source.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Body of `POST /api/v1/servers`: settings, or the source of a preview.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NewServers {
    /// Settings of each server, by its name.
    pub servers: Option<BTreeMap<String, Map<String, Value>>>,
    /// Source instead of settings.
    pub from: Option<ServerSource>,
    /// Names of the servers to take from the source.
    pub only: Option<Vec<String>>,
    /// Other names for them.
    pub names: BTreeMap<String, String>,
}

/// Source of servers: one of a text, a URL and a popular server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ServerSource {
    /// Text of a client's config, a `server.json`, a command line or a URL.
    pub text: Option<String>,
    /// Address of a server.
    pub url: Option<String>,
    /// Headers for the URL.
    pub headers: Option<BTreeMap<String, String>>,
    /// Name in the table of popular servers.
    pub popular: Option<String>,
    /// Arguments of a popular server.
    pub args: Vec<String>,
}

/// Body of `POST /api/v1/servers/preview`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PreviewRequest {
    /// Text of a client's config, a `server.json`, a command line or a URL.
    pub text: Option<String>,
    /// Address of a server.
    pub url: Option<String>,
    /// Headers for the URL.
    pub headers: Option<BTreeMap<String, String>>,
    /// Name in the table of popular servers.
    pub popular: Option<String>,
    /// Arguments of a popular server.
    pub args: Vec<String>,
    /// True to connect once to each.
    pub probe: bool,
    /// Names of the servers to preview.
    pub only: Option<Vec<String>>,
    /// Other names for them.
    pub names: BTreeMap<String, String>,
}

/// Servers of a source, and what adding them would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerPreview {
    /// Servers of the source.
    pub servers: Vec<FoundServer>,
    /// Problems of the source, and of what it would add.
    pub problems: Vec<TextProblem>,
    /// Facts about the source as a whole.
    pub warnings: Vec<String>,
    /// File that would have the change. `None` without a change.
    pub file: Option<String>,
    /// Lines that would change, without secrets.
    pub diff: Option<String>,
}

/// Problem in a text that somebody wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TextProblem {
    /// Line in the text.
    pub line: Option<usize>,
    /// Column in the line.
    pub column: Option<usize>,
    /// Description of the problem.
    pub message: String,
    /// Way to solve it.
    pub hint: Option<String>,
    /// Server that it is about. `None`: it is about the text, or about the request.
    #[serde(flatten)]
    pub concern: Option<ProblemConcern>,
}

/// Server that a problem is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct ProblemConcern {
    pub server: Option<String>,
}

/// Server of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct FoundServer {
    /// Name that it would get.
    pub name: String,
    /// Entry as TOML, without secrets.
    pub toml: Option<String>,
    /// Entry as the config would have it, without secrets.
    pub settings: Map<String, Value>,
    /// State compared with the config.
    pub state: FoundState,
    /// Name in the source, if it is taken.
    pub was: Option<String>,
    /// Name of the server in the config.
    pub same_as: Option<String>,
    /// Settings that the config's entry lacks.
    pub lacks: Vec<LackingSetting>,
    /// Lines that add them to the entry.
    pub lines: Option<String>,
    /// Facts about what was left out, and problems.
    pub notes: Vec<String>,
    /// Secrets of the source.
    pub secrets: Vec<FoundSecret>,
    /// True if it can be added only where commands are allowed.
    pub needs_command: bool,
    /// URL, command or socket, without secrets.
    pub target: String,
    /// Characters that its exposed names would start with.
    pub name_prefix: Option<String>,
    /// Result of the probe. `None` if the server was not probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<ServerProbe>,
}

/// State of a found server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FoundState {
    /// Server that the config does not have.
    New,
    /// Server that the config does not have, although its name is taken.
    Renamed,
    /// Server that the config has.
    Same,
    /// Server that the config has without some of these settings.
    Differs,
    /// This gateway itself.
    Own,
    /// Server that cannot be used.
    #[default]
    Problem,
}

impl FoundState {
    /// Returns true if the config does not have it.
    pub fn is_new(self) -> bool {
        matches!(self, FoundState::New | FoundState::Renamed)
    }
}

/// Setting that the config's entry lacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LackingSetting {
    /// Table and key.
    pub path: String,
    /// Value, with stars for a secret.
    pub value: String,
}

/// Secret of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct FoundSecret {
    /// Path of the setting that contains it.
    pub path: String,
    /// Name of a variable that could hold it.
    pub suggest: String,
}

/// Result of probing a server once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerProbe {
    /// Transport, as in the status.
    pub transport: Option<String>,
    /// Revision that it speaks.
    pub revision: Option<String>,
    /// Name and version that it reports.
    pub server_info: Option<ProbedInfo>,
    /// Number of tools.
    pub tools: Option<usize>,
    /// Estimated tokens of their definitions.
    pub tokens: Option<u64>,
    /// Names of the first tools.
    pub tool_names: Vec<String>,
    /// True if `moongate login` is the next step.
    pub needs_login: bool,
    /// Reason why it cannot be used.
    pub fault: Option<ProbeFault>,
}

/// Name and version that a server reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct ProbedInfo {
    pub name: Option<String>,
    pub version: Option<String>,
}

/// Reason why a server cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ProbeFault {
    /// Reason in words.
    pub message: String,
    /// Way to fix it.
    pub hint: String,
}
