//! Reports of actions on servers, calls, sessions and questions, and the message of probes.
//!
//! Owns the JSON fields. Does not act. Invariant: every report starts with its outcome, while
//! `HealthMessage` has only `message`.

use serde::{Deserialize, Serialize};

/// Report of a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RestartReport {
    /// New connection or process serves.
    Restarted {
        /// Server of the request.
        server: String,
        /// Process of the new one.
        pid: Option<u32>,
    },
    /// New connection or process did not come up.
    Failed {
        /// Server of the request.
        server: String,
        /// True if the old one still serves.
        kept: bool,
        /// Text for people.
        message: String,
    },
}

/// Report of a refresh of a server's lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RefreshReport {
    /// Outcome: `refreshed`, or `requested` if the lists come later.
    pub outcome: String,
    /// Server of the request.
    pub server: String,
    /// Number of its tools.
    pub tools: usize,
}

/// Report of an action on a call, a session or a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ActionReport {
    /// Outcome: `cancelled`, `ended` or `answered`.
    pub outcome: String,
    /// Id in the request.
    pub id: String,
}

/// Message for probes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct HealthMessage {
    pub message: String,
}
