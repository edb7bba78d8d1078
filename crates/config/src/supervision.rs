//! Tables in a server's section for its supervision.
//!
//! Owns their form in the file. Does not know their defaults (`server_keys`) or their meaning
//! (`resolve`). Invariant: every key is optional, and an absent key sets nothing.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema_types::DurationSetting;

/// The pauses between attempts to connect.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Backoff {
    /// The first pause. Each failure doubles it.
    pub(super) min: Option<DurationSetting>,
    /// The longest pause.
    pub(super) max: Option<DurationSetting>,
}

/// Which calls are sent again.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Retry {
    /// Attempts for one call, 1 to 5. `1`: no retry.
    #[cfg_attr(test, schemars(range(min = 1, max = 5)))]
    pub(super) attempts: Option<u32>,
}

/// When calls to a server that keeps failing end at once.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Breaker {
    /// Transport failures in a row that open the breaker. `0`: never. Errors that the server
    /// answers do not count.
    #[cfg_attr(test, schemars(range(min = 0, max = 1_000_000)))]
    pub(super) failures: Option<u32>,
    /// The time that it stays open. Then one call tries the server.
    pub(super) open: Option<DurationSetting>,
}

/// How it is found that a connection leads nowhere on which nothing is heard.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Ping {
    /// The silence before a ping; with open calls not before `timeout`. `0s`: no pings.
    #[cfg_attr(test, schemars(extend("x-zero" = true)))]
    pub(super) interval: Option<DurationSetting>,
    /// The time that the server has to answer.
    pub(super) timeout: Option<DurationSetting>,
    /// Unanswered pings in a row before Moongate connects again.
    #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
    pub(super) misses: Option<u32>,
}

/// How it is found that a WebSocket leads nowhere, and kept that those in between do not close it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct WebSocketPing {
    /// The time between two pings. `0s`: no pings.
    #[cfg_attr(test, schemars(extend("x-zero" = true)))]
    pub(super) interval: Option<DurationSetting>,
    /// The silence after a ping before Moongate connects again.
    pub(super) timeout: Option<DurationSetting>,
}
