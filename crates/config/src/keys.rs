//! Keys of the config that decide who may connect.
//!
//! Owns their types and defaults, as `file` does for all others. Does not check values (`resolve`). Invariant: no
//! default here lets anybody in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema_types::RateText;

/// Who may connect.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Auth {
    /// API keys. With none, no credentials are asked for, and only loopback addresses can be listened on.
    pub(super) keys: Vec<Key>,
}

/// An API key: either `hash` or `key`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub(super) struct Key {
    /// Whose it is, in logs.
    #[schemars(length(min = 1, max = 64))]
    pub(super) name: Option<String>,
    /// The key's SHA-256, as `moongate key new NAME` prints it.
    #[schemars(regex(pattern = "^(sha256:[0-9a-fA-F]{64}|.*\\$\\{.*)$"))]
    pub(super) hash: Option<String>,
    /// The key itself; from a variable or a file, such as `${MOONGATE_KEY}`.
    pub(super) key: Option<String>,
    /// The views and servers it opens, each at its own path and together at `/mcp`; default: everything.
    pub(super) views: Option<Vec<String>>,
    /// Patterns over exposed names of tools, `!` in front excludes; default: all.
    pub(super) tools: Option<Vec<String>>,
    /// Requests in a time, such as `100/min`, instead of `limits.rate`; `0`: any number.
    pub(super) rate: Option<RateText>,
    /// From when on it is refused: a date (UTC), or a timestamp with an offset.
    pub(super) expires: Option<String>,
}

/// Who may use the admin listener.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Admin {
    /// Keys of operators. Without any, no key is asked for on loopback and Unix sockets; beyond, only probes and metrics
    /// are answered.
    pub(super) keys: Vec<AdminKey>,
    /// Who may read `/metrics`.
    pub(super) metrics: Option<MetricsReaders>,
}

/// A key of an operator: either `hash` or `key`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub(super) struct AdminKey {
    /// Whose it is.
    #[schemars(length(min = 1, max = 64))]
    pub(super) name: Option<String>,
    /// The key's SHA-256, as `moongate key new NAME --admin` prints it.
    #[schemars(regex(pattern = "^(sha256:[0-9a-fA-F]{64}|.*\\$\\{.*)$"))]
    pub(super) hash: Option<String>,
    /// The key itself; from a variable or a file, such as `${file:/run/secrets/admin_key}`.
    pub(super) key: Option<String>,
    /// What it allows; default: `view`.
    pub(super) role: Option<AdminRole>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum AdminRole {
    /// To read the status.
    View,
    /// Also to reload the config and restart servers.
    Operate,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum MetricsReaders {
    /// Everybody who reaches the listener.
    Open,
    /// Whoever has a key of `admin.keys`.
    Key,
}
