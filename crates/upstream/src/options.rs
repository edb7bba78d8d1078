//! Options of one server that hold as the config has them.
//!
//! Owns their declarations: name, type, default, range and meaning, and which change on a live
//! connection. Does not read the config (`config`) or describe the ways to reach a server
//! (`settings`). Invariant: each key is declared here once. The schema, the checks, the reference
//! pages, the example file, the permissions of operators and the difference of a reload come from
//! the declaration.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::supervision_options::{
    BackoffSettings, BreakerSettings, PingSettings, RetrySettings, WebSocketPingSettings,
};
use moongate_model::{ServerStart, SharingMode};
use moongate_units::{DurationSetting, SizeSetting};

/// Options that change on a live connection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default)]
pub struct LiveOptions {
    /// The limit on connections for single clients. A new one closes the one that has been unused
    /// the longest.
    ///
    /// At the limit: the longest-unused connection for a single client closes. If all are in use,
    /// the call fails.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100_000)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_server_connections"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_connections: usize,
    /// How many times Moongate sends a call. It retries only what is safe to repeat.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub retry: RetrySettings,
    /// The longest time for a call.
    ///
    /// At the limit: the call fails. Moongate cancels it at the server.
    #[cfg_attr(feature = "schema",
        schemars(extend("x-metric" = ["mcp_client_operation_duration_seconds"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub timeout: DurationSetting,
    /// The longest time to connect, and for a call to wait for a connection.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub connect_timeout: DurationSetting,
    /// The longest time for a program to become ready.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub start_timeout: DurationSetting,
    /// The longest time to read one list.
    ///
    /// At the limit: the list stays as it was.
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_server_up"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub list_timeout: DurationSetting,
    /// How often Moongate rereads lists whose changes an unused server does not announce.
    /// `0s`: never. While clients use the server: every 10 s.
    #[cfg_attr(feature = "schema", schemars(extend("x-zero" = true)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub relist: DurationSetting,
    /// Concurrent calls. Further calls wait.
    ///
    /// At the limit: further calls wait. So do calls whose own connection is still opening.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_queue_depth"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_concurrency: usize,
    /// Calls that may wait. Further calls fail.
    ///
    /// At the limit: the call fails at once.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_queue_depth"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub queue: usize,
    /// Progress and log messages of one call, per minute.
    ///
    /// At the limit: for one call, within a minute, further notifications are dropped
    /// (`what="call_notification"`). The call goes on. A single larger notification still passes.
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_dropped_total"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_notifications: SizeSetting,
    /// Resources of the server that all clients together may subscribe to.
    ///
    /// At the limit: an error. The limit is for all clients together.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 10_000_000)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_subscriptions"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_subscriptions: usize,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions {
            max_connections: 256,
            retry: RetrySettings::default(),
            timeout: DurationSetting::seconds(60),
            connect_timeout: DurationSetting::seconds(10),
            start_timeout: DurationSetting::seconds(60),
            list_timeout: DurationSetting::seconds(30),
            relist: DurationSetting::minutes(5),
            max_concurrency: 64,
            queue: 256,
            max_notifications: SizeSetting::mib(4),
            max_subscriptions: 10_000,
        }
    }
}

/// Options that a connection keeps. Changing one connects the server again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default)]
pub struct ConnectionOptions {
    /// Clients that share a connection: all of them, one session, or one key.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub share: SharingMode,
    /// `"eager"`: with the gateway. `"lazy"`: when a call needs it.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub start: ServerStart,
    /// A lazy server stops after nobody has needed it for this long.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub idle_stop: DurationSetting,
    /// The pauses between attempts to connect.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub backoff: BackoffSettings,
    /// When calls to a failing server fail at once.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub breaker: BreakerSettings,
    /// Pings on silent connections: servers with sessions, and pipes.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub ping: PingSettings,
    /// Pings of WebSockets. They also keep proxies from closing the connection.
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "add")))]
    pub websocket_ping: WebSocketPingSettings,
    /// The largest message from the server.
    ///
    /// At the limit: the message is skipped. Its call fails.
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_garbage_total"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_message: SizeSetting,
    /// Messages of the server that clients have not read yet.
    ///
    /// At the limit: for each pipe, notifications are dropped and requests get an error. Answers
    /// always pass.
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_backlog_bytes"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_backlog: SizeSetting,
    /// Limits of the server's lists.
    #[serde(flatten)]
    pub lists: ListOptions,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        ConnectionOptions {
            share: SharingMode::Auto,
            start: ServerStart::Eager,
            idle_stop: DurationSetting::minutes(10),
            backoff: BackoffSettings::default(),
            breaker: BreakerSettings::default(),
            ping: PingSettings::default(),
            websocket_ping: WebSocketPingSettings::default(),
            max_message: SizeSetting::mib(16),
            max_backlog: SizeSetting::mib(32),
            lists: ListOptions::default(),
        }
    }
}

/// Limits of a server's lists. Items beyond them are left out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default)]
pub struct ListOptions {
    /// Items of one list. The rest is left out.
    ///
    /// At the limit: the rest of the list is left out (log).
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_catalog_items"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_items: usize,
    /// Pages of one list. The rest is left out.
    ///
    /// At the limit: the rest of the list is left out (log).
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_catalog_items"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_pages: usize,
    /// Size of one list. The rest is left out.
    ///
    /// At the limit: the rest of the list is left out (log).
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_catalog_bytes"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_list: SizeSetting,
    /// How deeply a definition may nest. Deeper ones are left out.
    ///
    /// At the limit: only that definition is left out (log, status).
    #[cfg_attr(feature = "schema", schemars(range(min = 8, max = 10_000)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-metric" = ["moongate_catalog_left_out"])))]
    #[cfg_attr(feature = "schema", schemars(extend("x-operator" = "set")))]
    pub max_depth: usize,
}

impl Default for ListOptions {
    fn default() -> Self {
        ListOptions {
            max_items: 10_000,
            max_pages: 1000,
            max_list: SizeSetting::mib(16),
            max_depth: 100,
        }
    }
}
