//! Tables in a server's section for its supervision.
//!
//! Owns their form in the file. Does not know their defaults (`file`) or their meaning (`resolve`). Invariant: every
//! key is optional, and an absent key sets nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema_types::DurationText;

/// The pauses between attempts to connect.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Backoff {
    /// The first pause; each failure doubles it.
    pub(super) min: Option<DurationText>,
    /// The longest pause.
    pub(super) max: Option<DurationText>,
}

/// Which calls are sent again.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Retry {
    /// How often a call is sent in all; 1: never again. Only lists, reads, prompts, completions, tools that say that they
    /// only read or may be repeated, and what never reached the server.
    #[schemars(range(min = 1, max = 5))]
    pub(super) attempts: Option<u64>,
}

/// When calls to a server that keeps failing end at once.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Breaker {
    /// After so many transport faults in a row (not errors that the server answers); 0: never.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) failures: Option<u64>,
    /// For how long; then one call is sent to see.
    pub(super) open: Option<DurationText>,
}

/// How it is found that a connection leads nowhere on which nothing is heard.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Ping {
    /// How long nothing is heard before the server is asked, and with calls open not before `timeout`; `0s`: never.
    pub(super) interval: Option<DurationText>,
    /// How long an answer may take.
    pub(super) timeout: Option<DurationText>,
    /// So many unanswered pings in a row, and the server is connected anew.
    #[schemars(range(min = 1, max = 100))]
    pub(super) misses: Option<u64>,
}

/// How it is found that a WebSocket leads nowhere, and kept that those in between do not close it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct WebSocketPing {
    /// Between two pings; `0s`: never.
    pub(super) interval: Option<DurationText>,
    /// How long nothing may be heard after one, before the server is connected anew.
    pub(super) timeout: Option<DurationText>,
}
