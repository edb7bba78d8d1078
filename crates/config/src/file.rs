//! Keys of the config file.
//!
//! Owns the one description of each key: its type, default and range. The JSON Schema, the check for unknown keys,
//! the environment and the built-in defaults come from it. Does not check values together (`resolve`). Invariant: a key
//! that is not here does not exist.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choices::{
    AddressOrSwitch, Calls, Discovery, LogFormat, OneOrMore, Schemas, ServerKind, Share, Start, StateKind, Transport,
};
use super::keys::{Admin, Auth};
use super::schema_types::{DurationText, RateText, SizeText};
use super::supervision::{Backoff, Breaker, Ping, Retry, WebSocketPing};

/// Moongate's configuration.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "Moongate configuration")]
pub(super) struct ConfigFile {
    /// The gateway's own endpoints.
    pub(super) gateway: Gateway,
    /// How the servers' names are exposed.
    pub(super) names: Names,
    /// Settings of every server that does not have its own.
    pub(super) defaults: Common,
    /// The servers behind the gateway, by name: letters, digits, `-` and `_`.
    pub(super) servers: BTreeMap<String, Server>,
    /// Named subsets of servers and tools, each with its own endpoint, `/mcp/NAME`.
    pub(super) views: BTreeMap<String, View>,
    /// Who may connect.
    pub(super) auth: Auth,
    /// Who may use the admin listener, `gateway.admin`.
    pub(super) admin: Admin,
    /// What clients can make grow.
    pub(super) limits: Limits,
    /// What the gateway tells about itself.
    pub(super) telemetry: Telemetry,
}

impl Default for ConfigFile {
    fn default() -> Self {
        ConfigFile {
            gateway: Gateway::default(),
            names: Names::default(),
            defaults: Common::built_in(),
            servers: BTreeMap::new(),
            views: BTreeMap::new(),
            auth: Auth::default(),
            admin: Admin::default(),
            limits: Limits::default(),
            telemetry: Telemetry::default(),
        }
    }
}

/// The gateway's own endpoints.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Gateway {
    /// Where clients connect: an address, `unix:PATH`, `tcp:ADDRESS` for clients that write a message a line, `systemd` for
    /// the sockets that systemd opened, `systemd:NAME` for those of that name, or a list of these.
    pub(super) listen: OneOrMore,
    /// Where metrics and health are served, as in `listen`; `false` switches that off.
    pub(super) admin: AddressOrSwitch,
    /// The mode of the files of Unix sockets, in octal.
    #[schemars(regex(pattern = "^([0-7]{3,4}|.*\\$\\{.*)$"))]
    pub(super) socket_mode: String,
    /// Whether another process may listen on the same addresses, to take over from this one.
    pub(super) reuse_port: bool,
    /// Certificate and key: clients connect to the addresses by https.
    pub(super) tls: Option<Tls>,
    /// The URL that clients see, if it is not the address above; its host is allowed in `Host`.
    pub(super) public_url: Option<String>,
    /// More hosts that requests may be addressed to: exact, or `*.domain`. Loopback names always are.
    pub(super) allowed_hosts: Vec<String>,
    /// Origins of web pages that may connect, such as `https://app.example.com`.
    pub(super) allowed_origins: Vec<String>,
    /// How long calls may go on after a stop was asked for.
    pub(super) drain: DurationText,
    /// After this much silence a waiting answer becomes a stream, and a stream gets a comment.
    pub(super) keep_alive: DurationText,
    /// The longest time for a user to answer what a server asks.
    pub(super) ask_timeout: DurationText,
    /// When the config is read again.
    pub(super) reload: Reload,
    /// Where lists, sessions and keys outlive a restart; default: in a file, if there can be one.
    pub(super) state: Option<StateKind>,
    /// The directory of that file; default: `$STATE_DIRECTORY`, `$XDG_STATE_HOME/moongate` or `~/.local/state/moongate`.
    pub(super) state_dir: Option<String>,
    /// How long a server's lists are kept for a restart that the server has not confirmed since.
    pub(super) catalog_age: DurationText,
    /// How tools' input schemas are listed.
    pub(super) schema: Schemas,
}

impl Default for Gateway {
    fn default() -> Self {
        Gateway {
            listen: OneOrMore::One("127.0.0.1:8080".to_owned()),
            admin: AddressOrSwitch::Address("127.0.0.1:9090".to_owned()),
            socket_mode: "0600".to_owned(),
            reuse_port: false,
            tls: None,
            public_url: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            drain: "30s".into(),
            keep_alive: "15s".into(),
            ask_timeout: "10m".into(),
            reload: Reload::default(),
            state: None,
            state_dir: None,
            catalog_age: "7d".into(),
            schema: Schemas::AsIs,
        }
    }
}

/// Certificate and key of the listener. The files are looked at again every ten seconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["cert", "key"]))]
pub(super) struct Tls {
    /// A file with the certificate and its chain, PEM.
    pub(super) cert: Option<String>,
    /// A file with its private key, PEM.
    pub(super) key: Option<String>,
    /// A file with the authorities of clients, PEM; with it, only clients with a certificate of theirs may connect.
    pub(super) client_ca: Option<String>,
}

/// When the config is read again.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Reload {
    /// When one of its files changed, those of `${file:…}` included.
    pub(super) watch: bool,
    /// How often it is looked whether one did.
    pub(super) interval: DurationText,
    /// On SIGHUP; `false`: SIGHUP ends the gateway.
    pub(super) signal: bool,
}

impl Default for Reload {
    fn default() -> Self {
        Reload { watch: true, interval: "1s".into(), signal: true }
    }
}

/// How the servers' names are exposed.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Names {
    /// Between a server's prefix and its own name: letters, digits, `-` and `_`.
    #[schemars(length(min = 1, max = 8))]
    pub(super) separator: String,
    /// The longest exposed name, in bytes; longer ones are cut with a stable hash at the end.
    #[schemars(range(min = 24, max = 128))]
    pub(super) max_length: u64,
}

impl Default for Names {
    fn default() -> Self {
        Names { separator: "__".to_owned(), max_length: 45 }
    }
}

/// One server: one of `url`, `command`, `tcp` and `unix`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Server {
    /// The server's MCP endpoint: Streamable HTTP or HTTP+SSE at `http://` and `https://`, WebSocket at `ws://` and `wss://`.
    pub(super) url: Option<String>,
    /// What is spoken at `url`.
    pub(super) transport: Option<Transport>,
    /// What the server is; clients' files often say so.
    #[serde(rename = "type")]
    pub(super) kind: Option<ServerKind>,
    /// Sent with every request to `url`; with the one that opens a WebSocket.
    pub(super) headers: Option<BTreeMap<String, String>>,
    /// Headers of the client's request that are passed on: the client's name for it = the server's.
    pub(super) forward_headers: Option<BTreeMap<String, String>>,
    /// The program to start; it speaks MCP over its standard streams.
    pub(super) command: Option<String>,
    /// The program's arguments.
    pub(super) args: Option<Vec<String>>,
    /// The program's environment, added to a small allow-list of the gateway's own.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// The program's working directory.
    pub(super) cwd: Option<String>,
    /// The host and port of a server that speaks MCP over TCP, a message a line: `ledger.internal:9000`.
    pub(super) tcp: Option<String>,
    /// The path of the Unix socket of a server that speaks MCP there, a message a line.
    pub(super) unix: Option<String>,
    /// Shown instead of the title that the server gives itself.
    pub(super) title: Option<String>,
    /// An image of the server, shown to users: an `https://` or `data:image/` URL.
    pub(super) icon: Option<String>,
    /// Shown to models instead of the server's own instructions.
    pub(super) description: Option<String>,
    #[serde(flatten)]
    pub(super) common: Common,
}

/// Settings that every server has.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Common {
    /// Whether the server is used at all.
    pub(super) enabled: Option<bool>,
    /// Stands before the names of the server's items, then the separator; default: the server's name; `""`: nothing.
    pub(super) prefix: Option<String>,
    /// Which of the server's tools exist, and how they look. Patterns are over the server's own names.
    pub(super) tools: Option<Items>,
    /// Which resources and templates exist. Patterns are over URIs.
    pub(super) resources: Option<Items>,
    /// Which prompts exist.
    pub(super) prompts: Option<Items>,
    /// Who shares a connection to the server.
    pub(super) share: Option<Share>,
    /// When the server is started.
    pub(super) start: Option<Start>,
    /// How long a server with `start = "lazy"` runs on while nobody needs it.
    pub(super) idle_stop: Option<DurationText>,
    /// Connections for single clients at once (`share`); for a new one, the one that was unused longest is closed.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) max_connections: Option<u64>,
    /// The pauses between attempts to connect.
    pub(super) backoff: Option<Backoff>,
    /// Which calls are sent again after a failure: only those that may safely be.
    pub(super) retry: Option<Retry>,
    /// When calls to a server that keeps failing end at once.
    pub(super) breaker: Option<Breaker>,
    /// How it is found that a connection leads nowhere on which nothing is heard (servers with sessions, and pipes).
    pub(super) ping: Option<Ping>,
    /// Pings of WebSockets, below the protocol (`ws://`, `wss://`).
    pub(super) websocket_ping: Option<WebSocketPing>,
    /// The longest time for a call.
    pub(super) timeout: Option<DurationText>,
    /// The longest time to open a connection, and for a call to wait for a server that is on its way.
    pub(super) connect_timeout: Option<DurationText>,
    /// The longest time for a program to become ready.
    pub(super) start_timeout: Option<DurationText>,
    /// The longest time to list everything of one kind.
    pub(super) list_timeout: Option<DurationText>,
    /// How often lists are taken again of which the server announces no changes; `0s`: never.
    pub(super) relist: Option<DurationText>,
    /// The proxy on the way to a `url`, `http://[USER:PASSWORD@]HOST:PORT`; `none`: none, whatever the environment says.
    pub(super) proxy: Option<String>,
    /// A PEM file with authorities of servers' certificates that are trusted beside the system's; relative to this file.
    pub(super) ca: Option<String>,
    /// The largest message accepted from the server.
    pub(super) max_message: Option<SizeText>,
    /// Calls at once; more wait.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_concurrency: Option<u64>,
    /// Calls that may wait; more are refused.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) queue: Option<u64>,
    /// What the server said that waits for clients, in bytes; beyond it, notifications are dropped and requests refused.
    pub(super) max_backlog: Option<SizeText>,
    /// Notifications of one call, in bytes a minute (progress, log messages); beyond it, they are dropped.
    pub(super) max_notifications: Option<SizeText>,
    /// Items of one of the server's lists; the rest is left out.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_items: Option<u64>,
    /// Pages of one of the server's lists; the rest is left out.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_pages: Option<u64>,
    /// The definitions of one of the server's lists, in bytes; the rest is left out.
    pub(super) max_list: Option<SizeText>,
    /// How deep a definition may nest; deeper ones are left out.
    #[schemars(range(min = 8, max = 10_000))]
    pub(super) max_depth: Option<u64>,
    /// Resources of the server that all clients together may subscribe to.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub(super) max_subscriptions: Option<u64>,
    /// `auto` for the era of each client, `newest` for one era, or the protocol revision to speak (a date).
    pub(super) protocol: Option<String>,
}

impl Common {
    /// Built-in defaults of the settings that every server has.
    pub(super) fn built_in() -> Self {
        let everything = || Some(Items { allow: Some(vec!["*".to_owned()]), ..Items::default() });
        Common {
            enabled: Some(true),
            // None stands for the server's name.
            prefix: None,
            tools: everything(),
            resources: everything(),
            prompts: everything(),
            share: Some(Share::Auto),
            start: Some(Start::Eager),
            idle_stop: Some("10m".into()),
            max_connections: Some(256),
            backoff: Some(Backoff { min: Some("500ms".into()), max: Some("30s".into()) }),
            retry: Some(Retry { attempts: Some(2) }),
            breaker: Some(Breaker { failures: Some(10), open: Some("10s".into()) }),
            ping: Some(Ping { interval: Some("60s".into()), timeout: Some("10s".into()), misses: Some(3) }),
            websocket_ping: Some(WebSocketPing { interval: Some("20s".into()), timeout: Some("20s".into()) }),
            timeout: Some("60s".into()),
            connect_timeout: Some("10s".into()),
            start_timeout: Some("60s".into()),
            list_timeout: Some("30s".into()),
            relist: Some("5m".into()),
            // None stands for the proxies of the environment.
            proxy: None,
            ca: None,
            max_message: Some("16MiB".into()),
            max_concurrency: Some(64),
            queue: Some(256),
            max_backlog: Some("32MiB".into()),
            max_notifications: Some("4MiB".into()),
            max_items: Some(10_000),
            max_pages: Some(1000),
            max_list: Some("16MiB".into()),
            max_depth: Some(100),
            max_subscriptions: Some(10_000),
            protocol: Some("auto".to_owned()),
        }
    }
}

/// Which items exist, and how they look.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Items {
    /// Only these exist: `*` matches any characters, `?` one, `[ab]` a set, `{a,b}` alternatives.
    pub(super) allow: Option<Vec<String>>,
    /// These do not exist.
    pub(super) deny: Option<Vec<String>>,
    /// These are not listed, but can be called.
    pub(super) hide: Option<Vec<String>>,
    /// The server's name for it = the name that is exposed instead.
    pub(super) rename: Option<BTreeMap<String, String>>,
    /// The server's name for it = the description that is shown instead.
    pub(super) describe: Option<BTreeMap<String, String>>,
}

/// A named subset of servers and tools.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct View {
    /// Names of servers; default: all.
    pub(super) servers: Option<Vec<String>>,
    /// Patterns over exposed names of tools, `!` in front excludes; default: all.
    pub(super) tools: Option<Vec<String>>,
    /// What clients find.
    pub(super) discovery: Option<Discovery>,
    /// How tools' input schemas are listed here; default: as `gateway.schema` says.
    pub(super) schema: Option<Schemas>,
}

/// What clients can make grow.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Limits {
    /// Requests of one key in a time, such as `100/min`; `0`: any number. Without keys, of all clients together.
    pub(super) rate: RateText,
    /// Calls of one key at once.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) calls_per_key: u64,
    /// The memory that the gateway may use: nothing new is taken above 90 %; default: what its container may; `0`: any.
    pub(super) memory: Option<SizeText>,
    /// Sessions of legacy clients.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) sessions: u64,
    /// How long an unused session is kept.
    pub(super) session_idle: DurationText,
    /// Open event streams.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) streams: u64,
    /// Calls whose server waits while a stateless client is away to answer; the oldest is cancelled for a new one.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub(super) parked: u64,
    /// How long a connection stays open for one stream; then a client that knows how to come back for the rest is let go.
    pub(super) stream_time: DurationText,
    /// What is kept of a session's event streams for a client that lost its connection and comes back.
    pub(super) replay: SizeText,
    /// The same for all sessions together.
    pub(super) replay_total: SizeText,
    /// Events that are kept for one session.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) replay_events: u64,
    /// How long an answer waits for its client to come back.
    pub(super) replay_time: DurationText,
    /// Messages that wait for a session's own stream, in bytes; the oldest makes room.
    pub(super) outbox: SizeText,
    /// The same for all sessions together.
    pub(super) outbox_total: SizeText,
    /// Resources that one session or stream may subscribe to.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) subscriptions: u64,
    /// Connections at once, over all listeners.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) connections: u64,
    /// Connections to the admin listener at once, beside those.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) admin_connections: u64,
    /// The largest head of a request: its line and all its headers.
    pub(super) head: SizeText,
    /// The largest request body.
    pub(super) body: SizeText,
    /// Messages in one batch.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) batch: u64,
    /// The longest URI that is looked up; a longer one must be listed by its server.
    pub(super) uri: SizeText,
    /// Calls at once, over all clients.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) calls: u64,
    /// The longest time to read a request.
    pub(super) read_timeout: DurationText,
    /// The longest time that a client may take nothing of what is there for it.
    pub(super) write_timeout: DurationText,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // Zero is no limit: a good rate depends on the clients.
            rate: RateText("0".to_owned()),
            calls_per_key: 1024,
            // None stands for the limit of the container, if there is one.
            memory: None,
            sessions: 10_000,
            session_idle: "30m".into(),
            streams: 10_000,
            parked: 1000,
            stream_time: "1h".into(),
            replay: "1MiB".into(),
            replay_total: "64MiB".into(),
            replay_events: 1000,
            replay_time: "1m".into(),
            outbox: "1MiB".into(),
            outbox_total: "64MiB".into(),
            subscriptions: 1000,
            // Enough for the limits of streams and calls, if each has a connection of its own.
            connections: 16_384,
            admin_connections: 256,
            head: "64KiB".into(),
            body: "4MiB".into(),
            batch: 100,
            uri: "8KiB".into(),
            calls: 4096,
            read_timeout: "30s".into(),
            write_timeout: "60s".into(),
        }
    }
}

/// What the gateway tells about itself.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct Telemetry {
    /// What is logged: a level (`error`, `warn`, `info`, `debug`, `trace`), or a list such as `info,moongate=debug`.
    pub(super) log: String,
    /// How a line of the log looks.
    pub(super) log_format: LogFormat,
    /// Calls that are recorded, one line each with names, sizes and times, never values.
    pub(super) calls: Calls,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry { log: "info".to_owned(), log_format: LogFormat::Text, calls: Calls::Errors }
    }
}

/// Keys and values of Moongate's design that this version does not have. Each has its path (`*` for any name or index),
/// the value if only that one is missing, and a fix.
pub(super) const UNAVAILABLE: &[(&str, Option<&str>, &str)] = &[
    ("gateway.state", Some("redis"), "use \"embedded\"; sessions are not shared between gateways"),
    ("gateway.discovery", None, "remove it; every endpoint lists all its tools"),
    ("gateway.search", None, "remove it; every endpoint lists all its tools"),
    ("gateway.workers", None, "remove it; there is a worker for each core"),
    ("servers.*.auth", None, "remove it; send a fixed credential with `headers`"),
    ("servers.*.oauth", None, "remove it; send a fixed credential with `headers`"),
    ("servers.*.headersHelper", None, "remove it; send a fixed credential with `headers`"),
    ("servers.*.pin", None, "remove it"),
    ("servers.*.pin_new", None, "remove it"),
    ("servers.*.inspect", None, "remove it"),
    ("servers.*.place", None, "remove it; every gateway connects by itself"),
    ("servers.*.sandbox", None, "start the server through a sandbox, as its `command`"),
    ("servers.*.rate", None, "use `max_concurrency`, or `rate` of a key"),
    ("servers.*.tools.ask", None, "use `tools.deny` for tools that nobody may call"),
    ("servers.*.tools.ask_remember", None, "remove it"),
    ("servers.*.tools.when_hint", None, "use `tools.allow` and `tools.deny`"),
    ("servers.*.resources.ask", None, "use `resources.deny` for those that nobody may read"),
    ("servers.*.prompts.ask", None, "use `prompts.deny` for those that nobody may get"),
    ("views.*.discovery", Some("search"), "remove it; a view lists all its tools"),
    ("views.*.search", None, "remove it; a view lists all its tools"),
    ("views.*.always", None, "remove it; a view lists all its tools"),
    ("views.*.ask", None, "leave the tools out of `tools`"),
    ("views.*.when_hint", None, "leave the tools out of `tools`"),
    ("auth.roles", None, "use `[[auth.keys]]`, each with its `views` and `tools`"),
    ("auth.keys.*.roles", None, "write `views` and `tools` of each key"),
    ("auth.jwt", None, "use `[[auth.keys]]`"),
    ("auth.oauth", None, "use `[[auth.keys]]`"),
    ("telemetry.otlp", None, "remove it; metrics are served on `gateway.admin`"),
    ("admin.edit", None, "remove it; nothing here changes the config's files"),
    ("admin.allow_commands", None, "remove it; nothing here changes the config's files"),
    ("admin.recent_calls", None, "remove it"),
    ("admin.streams", None, "remove it"),
    ("admin.registry", None, "remove it"),
    ("admin.trusted_proxies", None, "remove it; through a proxy, send a key of `admin.keys`"),
    ("telemetry.sample", None, "remove it; there are no traces"),
    ("limits.principals", None, "remove it; everybody has a key of the config"),
    ("search", None, "remove it; every endpoint lists all its tools"),
    ("audit", None, "remove it; what is refused and what fails is in the log"),
    ("cluster", None, "remove it; a gateway shares nothing with others"),
    ("egress", None, "remove it; only what the config names is connected to"),
];
