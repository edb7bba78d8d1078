//! Keys of the config file.
//!
//! Owns the top of the declarations: one for each key, with its type, default, range and meaning.
//! The schema, the check for unknown keys, the environment, the built-in defaults, the reference
//! pages and the reload difference come from them. Does not check values together (`resolve`).
//! Invariant: a key that is not declared does not exist.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choices::{Calls, DiscoveryMode, LogFormat, Schemas};
use super::gateway_keys::{Gateway, SearchSettings};
use super::keys::{Admin, Auth};
use super::limits::LimitSettings;
use super::server_keys::{Server, ServerOptions};

/// Moongate's configuration.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(title = "Moongate configuration"))]
pub(super) struct ConfigFile {
    /// The gateway's own endpoints.
    pub(super) gateway: Gateway,
    /// How the servers' names are exposed.
    pub(super) names: NameSettings,
    /// Settings for every server that does not set its own.
    pub(super) defaults: ServerOptions,
    /// The servers behind the gateway, by name: letters, digits, `-` and `_`.
    pub(super) servers: BTreeMap<String, Server>,
    /// Named subsets of servers and tools, each with its own endpoint, `/mcp/NAME`.
    pub(super) views: BTreeMap<String, View>,
    /// Who may connect.
    pub(super) auth: Auth,
    /// Who may use the admin listener, `gateway.admin`.
    pub(super) admin: Admin,
    /// Private hosts that logins may reach.
    pub(super) egress: EgressRules,
    /// What clients can make grow.
    pub(super) limits: LimitSettings,
    /// What the gateway reports about itself.
    pub(super) telemetry: Telemetry,
}

/// How the servers' names are exposed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(rename = "Names"))]
pub struct NameSettings {
    /// The text between prefix and name: letters, digits, `-`, `_`.
    #[cfg_attr(test, schemars(length(min = 1, max = 8)))]
    pub separator: String,
    /// The longest exposed name, in bytes. Longer names are cut and get a stable hash.
    #[cfg_attr(test, schemars(range(min = 24, max = 128)))]
    pub max_length: usize,
}

impl Default for NameSettings {
    fn default() -> Self {
        NameSettings {
            separator: "__".to_owned(),
            max_length: 45,
        }
    }
}

/// A named subset of servers and tools.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct View {
    /// Server names. Default: all.
    pub(super) servers: Option<Vec<String>>,
    /// Patterns over exposed tool names. `!` excludes. Default: all.
    pub(super) tools: Option<Vec<String>>,
    /// How clients find tools: `"full"` lists all, `"search"` lists a few tools that find and call
    /// the others. Default: `"full"`.
    pub(super) discovery: Option<DiscoveryMode>,
    /// Tools that search mode still lists: patterns over exposed names. `!` excludes. Default:
    /// none.
    pub(super) always: Option<Vec<String>>,
    /// Options of search mode.
    pub(super) search: SearchSettings,
    /// Like `gateway.schema`, for this view. Default: `gateway.schema`.
    pub(super) schema: Option<Schemas>,
}

/// Private hosts that logins may reach.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct EgressRules {
    /// Hosts that logins may reach at a private address, or without TLS: `auth.internal`. Any port
    /// is allowed.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub(super) allow: Vec<String>,
}

/// What the gateway reports about itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Telemetry {
    /// A level (`error`, `warn`, `info`, `debug`, `trace`), or a list such as
    /// `info,moongate=debug`.
    pub(super) log: String,
    /// The format of a log line.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub(super) log_format: LogFormat,
    /// Calls that have a line in the log: none, those that fail, or all. The line never holds
    /// values.
    pub(super) calls: Calls,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry {
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            calls: Calls::Errors,
        }
    }
}
