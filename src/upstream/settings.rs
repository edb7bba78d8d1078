//! The settings of one server, as the config resolved them.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::link::proxy::ProxyChoice;
use crate::link::socket::SocketAddress;
use crate::link::trust::CaFile;
use crate::link::websocket::WebSocketPing;
use crate::policy::ItemRules;

/// One configured server. Equal settings mean that nothing needs to be done; see also
/// [`ServerSettings::same_connection`].
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// Its name in the config: letters, digits, `-` and `_`, no `__`.
    pub name: String,
    /// What stands before its items' names; empty for none.
    pub prefix: String,
    /// Shown instead of the title that the server gives itself.
    pub title: Option<String>,
    /// An image of it, shown to users: an `https:` or `data:` URL.
    pub icon: Option<String>,
    /// Shown to models instead of the server's own instructions.
    pub description: Option<String>,
    /// How to reach it.
    pub connect: ConnectTarget,
    /// A revision to speak, whatever a probe would say; its spelling is checked by `revision`.
    pub protocol: Option<String>,
    /// Whether each client meets it in the era that the client speaks, if the server speaks both and no revision is set.
    pub as_client: bool,
    /// Which tools exist and how they look.
    pub tools: ItemRules,
    /// Which resources and templates exist (patterns over URIs).
    pub resources: ItemRules,
    /// Which prompts exist.
    pub prompts: ItemRules,
    /// Who may share a connection.
    pub share: SharingMode,
    /// Longest time for a call, from sending it to its end.
    pub timeout: Duration,
    /// Longest time for a user to answer what the server asks; the call's own time stands still meanwhile.
    pub ask_timeout: Duration,
    /// Longest time to open a connection (TCP and TLS), and to wait for a server that is not connected yet.
    pub connect_timeout: Duration,
    /// Longest time for a child process to become ready.
    pub start_timeout: Duration,
    /// Longest time for listing everything of one kind.
    pub list_timeout: Duration,
    /// How often lists are taken again of which the server announces no changes; zero: never.
    pub relist: Duration,
    /// Largest message accepted from the server, in bytes.
    pub max_message: usize,
    /// When it is started.
    pub start: ServerStart,
    /// How long a server that is started on use is kept while nobody needs it.
    pub idle_stop: Duration,
    /// Connections for single clients at once.
    pub max_connections: usize,
    /// The pauses between attempts to connect.
    pub backoff: BackoffSettings,
    /// How often a call is sent in all, where it may be sent again.
    pub attempts: u32,
    /// When calls to a server that fails end at once.
    pub breaker: BreakerSettings,
    /// How it is found that a connection leads nowhere.
    pub ping: PingSettings,
    /// The same below the protocol, where it is a WebSocket.
    pub websocket_ping: WebSocketPing,
    /// Calls at once; more wait.
    pub max_concurrency: usize,
    /// Calls that may wait; more are refused.
    pub queue: usize,
    /// Bytes of what it said that may wait for clients.
    pub max_backlog: usize,
    /// Bytes of notifications that one call may have in a minute.
    pub max_notifications: usize,
    /// What is taken of its lists.
    pub lists: ListLimits,
    /// Resources that all clients together may subscribe to.
    pub max_subscriptions: usize,
}

/// What is taken of a server's lists; the rest is left out.
#[derive(Clone, Debug, PartialEq)]
pub struct ListLimits {
    /// Items of one list.
    pub items: usize,
    /// Pages of one list.
    pub pages: usize,
    /// Bytes of all definitions of one list.
    pub bytes: usize,
    /// Levels of one definition.
    pub depth: usize,
}

impl Default for ListLimits {
    fn default() -> Self {
        ListLimits { items: 10_000, pages: 1000, bytes: 16 * 1024 * 1024, depth: 100 }
    }
}

/// How to reach a server.
#[derive(Clone, Debug, PartialEq)]
pub enum ConnectTarget {
    /// A child process that speaks over its standard streams.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables added to the allow-listed ones of ours. Values may be secret.
        env: Vec<(String, String)>,
        /// Working directory.
        cwd: Option<PathBuf>,
    },
    /// Nothing: its entry in the config has problems, and it fails until the config is corrected.
    Misconfigured {
        /// What is wrong with the entry.
        reason: String,
    },
    /// A socket that carries newline-delimited messages.
    Socket(SocketAddress),
    /// HTTP, or what begins as HTTP.
    Http {
        /// The MCP endpoint.
        url: url::Url,
        /// The Unix socket through which it is reached, whatever host the URL names.
        socket: Option<PathBuf>,
        /// What is spoken there.
        transport: HttpTransport,
        /// Sent with every request. Values may be secret (and are marked sensitive).
        headers: Vec<(HeaderName, HeaderValue)>,
        /// Headers of the client's request that are passed on: the client's name for it, then the server's.
        forward_headers: Vec<(HeaderName, HeaderName)>,
        /// The network on the way.
        network: NetworkSettings,
    },
}

/// The network between the gateway and a server with a URL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkSettings {
    /// The proxy.
    pub proxy: ProxyChoice,
    /// Authorities of servers' certificates, trusted beside the system's.
    pub ca: Option<CaFile>,
}

/// What is spoken at a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpTransport {
    /// Streamable HTTP, or HTTP+SSE where the server turns out not to have it.
    #[default]
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE.
    Sse,
    /// WebSocket.
    WebSocket,
}

/// Who may share a connection to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharingMode {
    /// One connection for all clients.
    #[default]
    Auto,
    /// A connection for each client session (legacy clients); clients without one share.
    Session,
    /// A connection for each principal.
    Principal,
}

/// When a server is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerStart {
    /// With the gateway.
    #[default]
    Eager,
    /// When somebody needs it.
    Lazy,
}

/// The pauses between attempts to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// The first one, doubled with each failure.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        BackoffSettings { min: Duration::from_millis(500), max: Duration::from_secs(30) }
    }
}

/// When calls to a server that fails end at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// After so many transport faults in a row; 0: never.
    pub failures: u32,
    /// For how long, until one call is let through to see.
    pub open: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        BreakerSettings { failures: 10, open: Duration::from_secs(10) }
    }
}

/// How it is found that a connection leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// How long nothing is heard before the server is asked, and with calls open not before one of them had its time;
    /// zero: never.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// So many unanswered in a row, and the server is connected anew.
    pub misses: u32,
}

impl Default for PingSettings {
    fn default() -> Self {
        PingSettings { interval: Duration::from_secs(60), timeout: Duration::from_secs(10), misses: 3 }
    }
}

impl ServerSettings {
    /// Whether these settings can take the place of `other` on the connection that was opened with those: what differs
    /// is how the server's items look, and how long or how much. Whatever is not named here needs another connection.
    pub fn same_connection(&self, other: &ServerSettings) -> bool {
        other.with_tunable(self) == *self
    }

    /// These settings, with those of `other` that can change on a connection.
    pub(super) fn with_tunable(&self, other: &ServerSettings) -> ServerSettings {
        let ServerSettings { prefix, title, icon, description, tools, resources, prompts, .. } = other.clone();
        ServerSettings {
            prefix,
            title,
            icon,
            description,
            tools,
            resources,
            prompts,
            timeout: other.timeout,
            ask_timeout: other.ask_timeout,
            connect_timeout: other.connect_timeout,
            start_timeout: other.start_timeout,
            list_timeout: other.list_timeout,
            relist: other.relist,
            max_concurrency: other.max_concurrency,
            queue: other.queue,
            max_subscriptions: other.max_subscriptions,
            max_notifications: other.max_notifications,
            max_connections: other.max_connections,
            attempts: other.attempts,
            ..self.clone()
        }
    }

    /// A server with everything at its default.
    pub fn new(name: impl Into<String>, connect: ConnectTarget) -> Self {
        let name = name.into();
        ServerSettings {
            prefix: name.clone(),
            name,
            title: None,
            icon: None,
            description: None,
            connect,
            protocol: None,
            as_client: true,
            tools: ItemRules::allow_all(),
            resources: ItemRules::allow_all(),
            prompts: ItemRules::allow_all(),
            share: SharingMode::Auto,
            timeout: Duration::from_secs(60),
            ask_timeout: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(10),
            start_timeout: Duration::from_secs(60),
            list_timeout: Duration::from_secs(30),
            relist: Duration::from_secs(300),
            max_message: 16 * 1024 * 1024,
            start: ServerStart::Eager,
            idle_stop: Duration::from_secs(600),
            max_connections: 256,
            backoff: BackoffSettings::default(),
            attempts: 2,
            breaker: BreakerSettings::default(),
            ping: PingSettings::default(),
            websocket_ping: WebSocketPing::default(),
            max_concurrency: 64,
            queue: 256,
            max_backlog: 32 * 1024 * 1024,
            max_notifications: 4 * 1024 * 1024,
            lists: ListLimits::default(),
            max_subscriptions: 10_000,
        }
    }
}
