//! Limits of everything that clients can make grow.
//!
//! Owns each limit: its type, default and range. Does not enforce any. Invariant: every limit is
//! here, and the plan has them in this form.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use moongate_telemetry::MemoryLimit;
use moongate_units::{DurationSetting, RateSetting, SizeSetting};

/// What clients can make grow.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(rename = "Limits"))]
pub struct LimitSettings {
    /// Requests of one key per unit of time: `100/min`, `10/s`. `0`: no limit. Without keys, all
    /// clients share it.
    ///
    /// At the limit: status 429 until the rate allows more. A burst may use the whole allowance at
    /// once. A key's own `rate` replaces it. Without keys, all clients share the rate.
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_refused_total"])))]
    pub rate: RateSetting,
    /// Concurrent calls of one key.
    ///
    /// At the limit: status 429. Without keys, only `calls` applies.
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_inflight"])))]
    pub calls_per_key: usize,
    /// The gateway's memory. Default: three quarters of the container's limit, or else a quarter of
    /// the machine's. `0`: no limit.
    ///
    /// At the limit: each message above 16 KiB reserves its bytes here before it is stored, and
    /// each key and each server gets at most half of what is free. If there is no room, the one
    /// that holds the most loses its oldest parked call, or the answer that has been unread the
    /// longest. If that is not enough: status 503, or an error for the call. Above 90 % of resident
    /// memory, new requests also get status 503. Small messages, cancellations and DELETE pass.
    /// Default: three quarters of the container's limit, or else a quarter of the machine's memory.
    /// `"0"`: no limit.
    #[cfg_attr(test,
        schemars(extend("x-zero" = true, "x-reload" = "restart",
            "x-metric" = ["moongate_memory_limit_bytes", "moongate_memory_reserved_bytes",
                "process_resident_memory_bytes"])))]
    #[cfg_attr(test, schemars(example = &"512MiB"))]
    pub memory: Option<SizeSetting>,
    /// Sessions of legacy clients.
    ///
    /// At the limit: the session of the same key that has been unused the longest makes room, or
    /// else one of the key that has the most. If all are in use: status 503.
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_sessions"])))]
    pub sessions: usize,
    /// An unused session ends after this time.
    ///
    /// At the limit: an unused session ends. After a minute without use, it goes to sleep and keeps
    /// at most 1 KiB.
    #[cfg_attr(test,
        schemars(extend("x-metric" = ["moongate_sessions", "moongate_sessions_asleep"])))]
    pub session_idle: DurationSetting,
    /// Open event streams.
    ///
    /// At the limit: status 503. A call still gets its answer, but not as a stream.
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_streams"])))]
    pub streams: usize,
    /// Calls whose server waits for a modern client's answer.
    ///
    /// At the limit: the oldest call of the key with the most such calls is cancelled.
    #[cfg_attr(test, schemars(range(min = 0, max = 10_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_parked"])))]
    pub parked: usize,
    /// How long a connection stays open for one stream.
    ///
    /// At the limit: the stream ends if the client's revision allows it to resume.
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_streams"])))]
    pub stream_time: DurationSetting,
    /// Events of one session that Moongate keeps for a client that reconnects.
    ///
    /// At the limit: the session's oldest event is dropped. An error replaces a lost answer.
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_replay_bytes"])))]
    pub replay: SizeSetting,
    /// Kept events of all sessions together. Part of `memory`, and at most an eighth of it.
    ///
    /// At the limit: the session's oldest event is dropped. The sessions of one key hold at most
    /// eight times the bytes that are still free.
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_replay_bytes"])))]
    pub replay_total: SizeSetting,
    /// Number of kept events of one session.
    ///
    /// At the limit: the session's oldest event is dropped.
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000)))]
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_replay_dropped_total"])))]
    pub replay_events: usize,
    /// How long an answer waits for its client to reconnect.
    ///
    /// At the limit: the events are dropped.
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_replay_bytes"])))]
    pub replay_time: DurationSetting,
    /// Messages that wait for the stream of one session.
    ///
    /// At the limit: the oldest message for the session's stream is dropped. The same happens
    /// beyond 256 messages.
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_outbox_bytes"])))]
    pub outbox: SizeSetting,
    /// Waiting messages of all sessions together. Part of `memory`, and at most an eighth of it.
    ///
    /// At the limit: the session's oldest message is dropped. The sessions of one key hold at most
    /// eight times the bytes that are still free.
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_outbox_bytes"])))]
    pub outbox_total: SizeSetting,
    /// Resources that one session or stream may subscribe to.
    ///
    /// At the limit: an error. The limit is for one session or stream.
    #[cfg_attr(test, schemars(range(min = 0, max = 1_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_subscriptions"])))]
    pub subscriptions: usize,
    /// People whom Moongate knows at once. Keys don't count.
    ///
    /// At the limit: the person without anything open whose last request is the oldest makes room.
    /// If all have something open: status 503.
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_refused_total"])))]
    pub principals: usize,
    /// Connections to all client listeners together.
    ///
    /// At the limit: the connection that has gone the longest without an admitted request makes
    /// room (see below).
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000_000)))]
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_connections"])))]
    pub connections: usize,
    /// Connections to the admin listener.
    ///
    /// At the limit: the same, for the admin listener. Probes have 16 separate places.
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000_000)))]
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_admin_connections"])))]
    pub admin_connections: usize,
    /// The largest request head: its line and headers.
    ///
    /// At the limit: status 431, and the connection closes. A head has at most 100 headers.
    /// Whitespace around values does not count.
    // hyper panics with a smaller buffer (`max_buf_size`).
    #[cfg_attr(test,
        schemars(extend("x-least" = "8KiB", "x-reload" = "restart",
            "x-metric" = ["moongate_refused_total"])))]
    pub head: SizeSetting,
    /// The largest request body.
    ///
    /// At the limit: status 413. The same applies once its chunks exceed four times this size plus
    /// 64 KiB.
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_refused_total"])))]
    pub body: SizeSetting,
    /// Messages in one batch.
    ///
    /// At the limit: status 400 for the whole batch.
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_refused_total"])))]
    pub batch: usize,
    /// The longest URI that Moongate looks up. A longer one must be in a list.
    ///
    /// At the limit: a longer URI reaches only the server that lists it, or the one server of an
    /// endpoint. Otherwise the error is -32602. Longer links in results pass unchanged.
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_dropped_total"])))]
    pub uri: SizeSetting,
    /// Concurrent calls of all clients.
    ///
    /// At the limit: status 503.
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_inflight"])))]
    pub calls: usize,
    /// The longest time to read a request.
    ///
    /// At the limit: status 400 for an incomplete body, and the connection closes. So does a silent
    /// connection. Over HTTP/2, a connection without an admitted request closes, even if it answers
    /// pings.
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_refused_total"])))]
    pub read_timeout: DurationSetting,
    /// The longest time that a client may leave its messages unread.
    ///
    /// At the limit: a client that reads nothing for this time loses its connection, and its calls
    /// end. Over HTTP/2, it loses only that answer.
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_dropped_total"])))]
    pub write_timeout: DurationSetting,
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings {
            // Zero means no limit, because a good rate depends on the clients.
            rate: RateSetting(None),
            calls_per_key: 1024,
            // None stands for the limit of the container, if there is one.
            memory: None,
            sessions: 10_000,
            session_idle: DurationSetting::minutes(30),
            streams: 10_000,
            parked: 1000,
            stream_time: DurationSetting::minutes(60),
            replay: SizeSetting::mib(1),
            replay_total: SizeSetting::mib(64),
            replay_events: 1000,
            replay_time: DurationSetting::minutes(1),
            outbox: SizeSetting::mib(1),
            outbox_total: SizeSetting::mib(64),
            subscriptions: 1000,
            principals: 10_000,
            // Enough for the limits of streams and calls, if each has a connection of its own.
            connections: 16_384,
            admin_connections: 256,
            head: SizeSetting::kib(64),
            body: SizeSetting::mib(4),
            batch: 100,
            uri: SizeSetting::kib(8),
            calls: 4096,
            read_timeout: DurationSetting::seconds(30),
            write_timeout: DurationSetting::seconds(60),
        }
    }
}

impl LimitSettings {
    /// Limit of memory. Zero means none.
    pub fn memory_limit(&self) -> MemoryLimit {
        match self.memory {
            None => MemoryLimit::System,
            Some(SizeSetting(0)) => MemoryLimit::None,
            Some(SizeSetting(bytes)) => MemoryLimit::Bytes(bytes),
        }
    }
}
