//! Options for the supervision of one server: pauses, retries, breaker and pings.
//!
//! Owns their declarations and defaults. Does not apply them. Invariant: an absent key of a table
//! has its own default, whatever else the table has.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use moongate_transport::websocket::WebSocketPing;
use moongate_units::DurationSetting;

/// The pauses between attempts to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Backoff"))]
#[serde(default)]
pub struct BackoffSettings {
    /// The first pause. Each failure doubles it.
    pub min: DurationSetting,
    /// The longest pause.
    pub max: DurationSetting,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        BackoffSettings {
            min: DurationSetting::millis(500),
            max: DurationSetting::seconds(30),
        }
    }
}

/// Which calls are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Retry"))]
#[serde(default)]
pub struct RetrySettings {
    /// Attempts for one call, 1 to 5. `1`: no retry.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 5)))]
    pub attempts: u32,
}

impl Default for RetrySettings {
    fn default() -> Self {
        RetrySettings { attempts: 2 }
    }
}

/// When calls to a server that keeps failing end at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Breaker"))]
#[serde(default)]
pub struct BreakerSettings {
    /// Transport failures in a row that open the breaker. `0`: never. Errors that the server
    /// returns do not count.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))]
    pub failures: u32,
    /// How long the breaker stays open. Then one call tries the server.
    pub open: DurationSetting,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        BreakerSettings {
            failures: 10,
            open: DurationSetting::seconds(10),
        }
    }
}

/// How Moongate detects that a silent connection is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Ping"))]
#[serde(default)]
pub struct PingSettings {
    /// The silence before a ping; with open calls, not before `timeout`. `0s`: no pings.
    #[cfg_attr(feature = "schema", schemars(extend("x-zero" = true)))]
    pub interval: DurationSetting,
    /// How long the server has to answer.
    pub timeout: DurationSetting,
    /// Unanswered pings in a row before Moongate reconnects.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
    pub misses: u32,
}

impl Default for PingSettings {
    fn default() -> Self {
        PingSettings {
            interval: DurationSetting::seconds(60),
            timeout: DurationSetting::seconds(10),
            misses: 3,
        }
    }
}

/// How Moongate detects a dead WebSocket, and keeps proxies from closing an idle one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "WebSocketPing"))]
#[serde(default)]
pub struct WebSocketPingSettings {
    /// The time between two pings. `0s`: no pings.
    #[cfg_attr(feature = "schema", schemars(extend("x-zero" = true)))]
    pub interval: DurationSetting,
    /// The silence after a ping before Moongate reconnects.
    pub timeout: DurationSetting,
}

impl Default for WebSocketPingSettings {
    fn default() -> Self {
        WebSocketPingSettings {
            interval: DurationSetting::seconds(20),
            timeout: DurationSetting::seconds(20),
        }
    }
}

impl From<WebSocketPingSettings> for WebSocketPing {
    fn from(settings: WebSocketPingSettings) -> Self {
        WebSocketPing {
            interval: settings.interval.0,
            timeout: settings.timeout.0,
        }
    }
}
