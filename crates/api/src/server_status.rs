//! Status of the gateway's servers (the answer of `/api/v1/status`), and the parts that other
//! answers share: `ToolOwner` and `EntrySource`.
//!
//! Owns the JSON fields. Does not decide what is shown of a text. Invariant: a disabled server has
//! the same fields as one that runs.

use moongate_model::{ServerStart, SharingMode, UpstreamState};
use serde::{Deserialize, Serialize};

use crate::server_login::LoginView;

/// Status of all servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GatewayStatus {
    /// Version of the gateway.
    pub version: String,
    /// Servers of the config. Those that are off come last.
    pub servers: Vec<ServerStatus>,
    /// Rules of views and keys that match nothing.
    pub unmatched_filters: Vec<String>,
}

/// Status of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerStatus {
    /// Identity of the server.
    #[serde(flatten)]
    pub identity: ServerIdentity,
    /// Condition of its connection.
    #[serde(flatten)]
    pub condition: ServerCondition,
    /// Numbers about what it offers and how it is used.
    #[serde(flatten)]
    pub counters: ServerCounters,
    /// Findings about its items.
    #[serde(flatten)]
    pub findings: ServerFindings,
    /// Place of its entry in the config.
    pub source: EntrySource,
}

impl ServerStatus {
    /// Returns the name in the config.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Returns the title, or else the name.
    pub fn title(&self) -> &str {
        title_or_name(self.identity.title.as_deref(), &self.identity.name)
    }

    /// Returns the server as far as the rows of its tools show it.
    pub fn owner(&self) -> ToolOwner {
        let ServerIdentity { name, title, .. } = &self.identity;
        ToolOwner {
            name: name.clone(),
            title: title.clone(),
            source: self.source.clone(),
        }
    }
}

/// Identity of a server: its names, target and settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerIdentity {
    /// Name in the config.
    pub name: String,
    /// Title from the config, or else from the server.
    pub title: Option<String>,
    /// Icon from the config: a URL.
    pub icon: Option<String>,
    /// Prefix of its names. Empty: none.
    pub prefix: String,
    /// Characters that its exposed names start with. `None`: they are the server's own.
    pub name_prefix: Option<String>,
    /// Name and version that the server reports.
    pub server: ServerVersion,
    /// Transport. `None` for a server that is off and has no readable target.
    pub transport: Option<String>,
    /// Short form of its program or URL, without secrets.
    pub target: Option<String>,
    /// Start mode. `None` for a server that is off.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub start: Option<ServerStart>,
    /// Sharing mode of its connections. `None` for a server that is off.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub share: Option<SharingMode>,
    /// False if the config disables it.
    pub enabled: bool,
}

/// Name and version that a server reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct ServerVersion {
    pub name: Option<String>,
    pub version: Option<String>,
}

/// Condition of a server's connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerCondition {
    /// State of the server.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub state: UpstreamState,
    /// Cause of the state. Empty if there is nothing to say.
    pub reason: String,
    /// True if `moongate login` is the way out.
    pub needs_login: bool,
    /// Advice for a server that does not work.
    pub hint: Option<StatusHint>,
    /// Login at the server. `None` for a server that the gateway does not log in to.
    pub login: Option<LoginView>,
    /// Seconds until the next attempt to connect.
    pub next_attempt_seconds: Option<f64>,
    /// Server of a changed config that takes over once it is connected.
    pub replacement: Option<PendingReplacement>,
    /// Revision of the shared connection.
    pub revision: Option<String>,
    /// Process of the shared connection.
    pub pid: Option<u32>,
    /// Connections that all clients of an era share.
    pub shared: Vec<SharedConnection>,
    /// Time of the last state change.
    pub since: Option<String>,
    /// Seconds since then.
    pub since_seconds: Option<u64>,
    /// Number of restarts of its program.
    pub restarts: u64,
    /// True if the lists are those of an earlier connection.
    pub stale: bool,
    /// Last lines on stderr, redacted.
    pub stderr: Vec<String>,
}

/// Advice for a server that does not work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StatusHint {
    /// Code of the finding that `moongate doctor` reports for it.
    pub code: String,
    /// Text for people: what to do.
    pub text: String,
}

/// Server of a changed config that has not connected yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct PendingReplacement {
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub state: UpstreamState,
    pub reason: String,
}

/// Connection that all clients of an era share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct SharedConnection {
    pub revision: String,
    pub pid: Option<u32>,
}

/// Numbers of a server: what it offers and how it is used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerCounters {
    /// Number of connections that are not shared.
    pub connections: u64,
    /// Number of calls that wait for their turn.
    pub waiting: u64,
    /// Number of running calls.
    pub inflight: u64,
    /// Last recent call that ended with an error.
    pub last_error: Option<LastError>,
    /// Number of tools that the server offers.
    pub tools: u64,
    /// Number of resources.
    pub resources: u64,
    /// Number of prompts.
    pub prompts: u64,
    /// Number of tools that clients see.
    pub tools_on: u64,
    /// Estimated tokens of the listed tools.
    pub tokens: u64,
    /// Estimated tokens of all tools.
    pub tokens_all: u64,
    /// Calls since startup, by outcome.
    pub calls: CallCounts,
    /// Median time of calls in milliseconds.
    pub p50_ms: Option<f64>,
    /// Time in milliseconds that 95 % of calls stay below.
    pub p95_ms: Option<f64>,
}

/// Call that ended with an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LastError {
    /// Time of its end.
    pub at: Option<String>,
    /// Error, redacted.
    pub message: String,
}

/// Calls by outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CallCounts {
    /// Calls with a result.
    pub ok: u64,
    /// Calls whose tool reported an error.
    pub tool_error: u64,
    /// Calls that failed in another way.
    pub error: u64,
}

/// Findings about a server's items, as sentences.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerFindings {
    /// Items that are not listed, each with the reason.
    pub left_out: Vec<String>,
    /// Items whose exposed names differ from what their servers call them.
    pub names: Vec<String>,
    /// Rules that match nothing.
    pub unmatched_filters: Vec<String>,
    /// Schemas that model APIs refuse.
    pub schemas: Vec<String>,
    /// Items that are listed in another form.
    pub mended: Vec<String>,
}

/// Server as far as the rows of its tools show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ToolOwner {
    /// Name in the config.
    pub name: String,
    /// Title. `None`: the name is shown.
    pub title: Option<String>,
    /// Place of its entry in the config.
    pub source: EntrySource,
}

impl ToolOwner {
    /// Returns the title, or else the name.
    pub fn title(&self) -> &str {
        title_or_name(self.title.as_deref(), &self.name)
    }
}

fn title_or_name<'a>(title: Option<&'a str>, name: &'a str) -> &'a str {
    title.filter(|title| !title.is_empty()).unwrap_or(name)
}

/// Place of a server's entry in the config, and whether it can be edited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EntrySource {
    /// File with the entry.
    pub file: Option<String>,
    /// Line in the file.
    pub line: Option<usize>,
    /// Tag of the file's contents.
    pub etag: Option<String>,
    /// True if the API can edit the entry.
    pub editable: bool,
    /// Reason why it cannot.
    pub why_not: Option<String>,
    /// Environment variables that set parts of the entry.
    pub variables: Vec<String>,
}
