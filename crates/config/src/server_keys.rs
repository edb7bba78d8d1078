//! Keys of servers, and of the defaults for all of them.
//!
//! Owns their declarations, and how a server's own keys hide the defaults. Does not know the tables
//! for supervision (`supervision`). Invariant: each key falls back on its own.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::choices::{ServerKind, Share, Start, Transport};
use super::schema_types::{DurationSetting, SizeSetting};
use super::supervision::{Backoff, Breaker, Ping, Retry, WebSocketPing};

/// One server: one of `url`, `command`, `tcp` and `unix`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Server {
    /// The MCP endpoint: `http://`, `https://`, `ws://` or `wss://`.
    pub(super) url: Option<String>,
    /// Protocol at `url`. `"auto"`: Streamable HTTP, or HTTP+SSE where there is only that.
    pub(super) transport: Option<Transport>,
    /// Kind of the server, as files of clients say it. Not needed.
    #[serde(rename = "type")]
    pub(super) kind: Option<ServerKind>,
    /// Headers of every request to `url`; for a WebSocket, of the opening request.
    pub(super) headers: Option<BTreeMap<String, String>>,
    /// Headers of the client's request that Moongate passes on: the client's name = the server's
    /// name.
    pub(super) forward_headers: Option<BTreeMap<String, String>>,
    /// The program to start. It speaks MCP over stdin and stdout.
    pub(super) command: Option<String>,
    /// The program's arguments.
    pub(super) args: Option<Vec<String>>,
    /// Variables for the program. It also gets a small part of Moongate's environment.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// The program's working directory.
    pub(super) cwd: Option<String>,
    /// Host and port of a server on TCP: `ledger.internal:9000`, `[::1]:9000`.
    pub(super) tcp: Option<String>,
    /// `true`: the server may be at the address of a cloud's metadata service, which gives
    /// credentials to whoever asks.
    pub(super) allow_metadata: Option<bool>,
    /// The absolute path of a server's Unix socket.
    pub(super) unix: Option<String>,
    /// Users see it instead of the server's own title.
    pub(super) title: Option<String>,
    /// An image for users: an `https://` or `data:image/` URL.
    pub(super) icon: Option<String>,
    /// Models see it instead of the server's own instructions.
    pub(super) description: Option<String>,
    #[serde(flatten)]
    pub(super) options: ServerOptions,
}

/// Settings that every server has.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct ServerOptions {
    /// `false` switches the server off.
    pub(super) enabled: Option<bool>,
    /// Stands before the names of the server's items. Default: the server's name. `""`: no prefix.
    #[cfg_attr(test, schemars(example = &"gh"))]
    pub(super) prefix: Option<String>,
    /// Which tools exist, and how they look. Patterns match the server's own names.
    pub(super) tools: Option<ItemFilters>,
    /// Which resources and templates exist. Patterns match URIs.
    pub(super) resources: Option<ItemFilters>,
    /// Which prompts exist, and how they look.
    pub(super) prompts: Option<ItemFilters>,
    /// Clients that share a connection: all of them, one session, or one key.
    pub(super) share: Option<Share>,
    /// `"eager"`: with the gateway. `"lazy"`: when a call needs it.
    pub(super) start: Option<Start>,
    /// A lazy server stops after this time without need.
    pub(super) idle_stop: Option<DurationSetting>,
    /// The limit on connections for single clients. A new one closes the one that is unused for
    /// longest.
    ///
    /// At the limit: the connection for a single client that is unused for longest closes. If all
    /// are in use, the call fails.
    #[cfg_attr(test, schemars(range(min = 1, max = 100_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_server_connections"])))]
    pub(super) max_connections: Option<usize>,
    /// The pauses between attempts to connect.
    pub(super) backoff: Option<Backoff>,
    /// How often Moongate sends a call. It retries only what is safe to repeat.
    pub(super) retry: Option<Retry>,
    /// When calls to a failing server fail at once.
    pub(super) breaker: Option<Breaker>,
    /// Pings on silent connections: servers with sessions, and pipes.
    pub(super) ping: Option<Ping>,
    /// Pings of WebSockets. They also keep proxies from closing the connection.
    pub(super) websocket_ping: Option<WebSocketPing>,
    /// The longest time for a call.
    ///
    /// At the limit: the call fails. Moongate cancels it at the server.
    #[cfg_attr(test, schemars(extend("x-metric" = ["mcp_client_operation_duration_seconds"])))]
    pub(super) timeout: Option<DurationSetting>,
    /// The longest time to connect, and for a call to wait for a connection.
    pub(super) connect_timeout: Option<DurationSetting>,
    /// The longest time for a program to become ready.
    pub(super) start_timeout: Option<DurationSetting>,
    /// The longest time to read one list.
    ///
    /// At the limit: the list stays as it was.
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_server_up"])))]
    pub(super) list_timeout: Option<DurationSetting>,
    /// How often Moongate reads lists whose changes the server does not announce, while nobody uses
    /// it. `0s`: never. While clients use the server: every 10 s.
    #[cfg_attr(test, schemars(extend("x-zero" = true)))]
    pub(super) relist: Option<DurationSetting>,
    /// The proxy on the way to a `url`. `"none"`: no proxy. Default: the environment's.
    #[cfg_attr(test, schemars(example = &"http://proxy.example.com:3128"))]
    pub(super) proxy: Option<String>,
    /// A PEM file of authorities, trusted beside the system's. A relative path starts at the config
    /// file.
    #[cfg_attr(test, schemars(example = &"company-ca.pem"))]
    pub(super) ca: Option<String>,
    /// The largest message from the server.
    ///
    /// At the limit: the message is skipped. Its call fails.
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_garbage_total"])))]
    pub(super) max_message: Option<SizeSetting>,
    /// Calls at once. More calls wait.
    ///
    /// At the limit: more calls wait. So do calls whose own connection is opening.
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_queue_depth"])))]
    pub(super) max_concurrency: Option<usize>,
    /// Calls that may wait. More calls fail.
    ///
    /// At the limit: the call fails at once.
    #[cfg_attr(test, schemars(range(min = 0, max = 1_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_queue_depth"])))]
    pub(super) queue: Option<usize>,
    /// Messages of the server that clients have not read yet.
    ///
    /// At the limit: for each pipe: notifications are dropped, and requests get an error. Answers
    /// always pass.
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_backlog_bytes"])))]
    pub(super) max_backlog: Option<SizeSetting>,
    /// Progress and log messages of one call, in a minute.
    ///
    /// At the limit: for one call, in a minute: more notifications are dropped
    /// (`what="call_notification"`). The call goes on. One larger notification passes alone.
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_dropped_total"])))]
    pub(super) max_notifications: Option<SizeSetting>,
    /// Items of one list. The rest is left out.
    ///
    /// At the limit: the rest of the list is left out (log).
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_catalog_items"])))]
    pub(super) max_items: Option<usize>,
    /// Pages of one list. The rest is left out.
    ///
    /// At the limit: the rest of the list is left out (log).
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_catalog_items"])))]
    pub(super) max_pages: Option<usize>,
    /// Size of one list. The rest is left out.
    ///
    /// At the limit: the rest of the list is left out (log).
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_catalog_bytes"])))]
    pub(super) max_list: Option<SizeSetting>,
    /// How deep a definition may nest. Deeper ones are left out.
    ///
    /// At the limit: the definition is left out, the others stay (log, status).
    #[cfg_attr(test, schemars(range(min = 8, max = 10_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_catalog_left_out"])))]
    pub(super) max_depth: Option<usize>,
    /// Resources of the server that all clients together may subscribe to.
    ///
    /// At the limit: an error. The limit is for all clients together.
    #[cfg_attr(test, schemars(range(min = 0, max = 10_000_000)))]
    #[cfg_attr(test, schemars(extend("x-metric" = ["moongate_subscriptions"])))]
    pub(super) max_subscriptions: Option<usize>,
    /// `"auto"`: the era of each client. `"newest"`: one era for all. A date: that revision.
    pub(super) protocol: Option<String>,
}

impl ServerOptions {
    /// Returns these settings with those of `base` for absent ones, key by key, also in tables.
    pub(super) fn with_defaults(&self, base: &ServerOptions) -> ServerOptions {
        // Both are written by serde, so what it reads is their common form.
        let written = |options: &ServerOptions| serde_json::to_value(options).unwrap_or_default();
        serde_json::from_value(overlay(written(base), written(self), 2)).unwrap_or_default()
    }

    /// Built-in defaults of the settings that every server has.
    pub(super) fn built_in() -> Self {
        let everything = || {
            Some(ItemFilters {
                allow: Some(vec!["*".to_owned()]),
                ..ItemFilters::default()
            })
        };
        ServerOptions {
            enabled: Some(true),
            // None stands for the server's name.
            prefix: None,
            tools: everything(),
            resources: everything(),
            prompts: everything(),
            share: Some(Share::Auto),
            start: Some(Start::Eager),
            idle_stop: Some(DurationSetting::minutes(10)),
            max_connections: Some(256),
            backoff: Some(Backoff {
                min: Some(DurationSetting::millis(500)),
                max: Some(DurationSetting::seconds(30)),
            }),
            retry: Some(Retry { attempts: Some(2) }),
            breaker: Some(Breaker {
                failures: Some(10),
                open: Some(DurationSetting::seconds(10)),
            }),
            ping: Some(Ping {
                interval: Some(DurationSetting::seconds(60)),
                timeout: Some(DurationSetting::seconds(10)),
                misses: Some(3),
            }),
            websocket_ping: Some(WebSocketPing {
                interval: Some(DurationSetting::seconds(20)),
                timeout: Some(DurationSetting::seconds(20)),
            }),
            timeout: Some(DurationSetting::seconds(60)),
            connect_timeout: Some(DurationSetting::seconds(10)),
            start_timeout: Some(DurationSetting::seconds(60)),
            list_timeout: Some(DurationSetting::seconds(30)),
            relist: Some(DurationSetting::minutes(5)),
            // None stands for the proxies of the environment.
            proxy: None,
            ca: None,
            max_message: Some(SizeSetting::mib(16)),
            max_concurrency: Some(64),
            queue: Some(256),
            max_backlog: Some(SizeSetting::mib(32)),
            max_notifications: Some(SizeSetting::mib(4)),
            max_items: Some(10_000),
            max_pages: Some(1000),
            max_list: Some(SizeSetting::mib(16)),
            max_depth: Some(100),
            max_subscriptions: Some(10_000),
            protocol: Some("auto".to_owned()),
        }
    }
}

/// Puts the tables of `own` over those of `base`, to this depth. Deeper tables and all other values
/// are replaced.
fn overlay(base: Value, own: Value, depth: u8) -> Value {
    match (base, own) {
        (base, Value::Null) => base,
        (Value::Object(mut base), Value::Object(own)) if depth > 0 => {
            for (key, value) in own {
                let below = base.remove(&key).unwrap_or_default();
                base.insert(key, overlay(below, value, depth - 1));
            }
            Value::Object(base)
        }
        (_, own) => own,
    }
}

/// Which items exist, and how they look.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct ItemFilters {
    /// Only these exist. `*` matches any characters, `?` one, `[ab]` a set, `{a,b}` alternatives.
    pub(super) allow: Option<Vec<String>>,
    /// These do not exist.
    pub(super) deny: Option<Vec<String>>,
    /// No list shows these, but clients can call them.
    pub(super) hide: Option<Vec<String>>,
    /// The server's name = the exposed name. For tools and prompts.
    pub(super) rename: Option<BTreeMap<String, String>>,
    /// The server's name = the description that clients see. For tools and prompts.
    pub(super) describe: Option<BTreeMap<String, String>>,
}

impl ItemFilters {
    /// Lists of patterns, with their keys.
    pub(super) fn patterns(&self) -> [(&'static str, Option<&Vec<String>>); 3] {
        [
            ("allow", self.allow.as_ref()),
            ("deny", self.deny.as_ref()),
            ("hide", self.hide.as_ref()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options(value: Value) -> ServerOptions {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_key_of_a_server_hides_that_default_alone() {
        let all = options(json!({ "ping": { "misses": 5 }, "queue": 7 }))
            .with_defaults(&ServerOptions::built_in());
        let ping = all.ping.unwrap();
        assert_eq!(
            (ping.misses, ping.interval, ping.timeout),
            (
                Some(5),
                Some(DurationSetting::seconds(60)),
                Some(DurationSetting::seconds(10))
            )
        );
        assert_eq!((all.queue, all.max_items), (Some(7), Some(10_000)));
    }

    #[test]
    fn lists_and_names_are_replaced_as_a_whole() {
        let base = options(
            json!({ "tools": { "deny": ["a", "b"], "rename": { "x": "y" }, "hide": ["c"] } }),
        );
        let all = options(json!({ "tools": { "deny": ["d"], "rename": { "z": "w" } } }))
            .with_defaults(&base);
        let tools = serde_json::to_value(all.tools).unwrap();
        assert_eq!(
            (&tools["deny"], &tools["rename"]),
            (&json!(["d"]), &json!({ "z": "w" }))
        );
        assert_eq!(tools["hide"], json!(["c"]));
    }
}
