//! Settings of one server, as the config resolved them. Owns the defaults and which settings can
//! change on a live connection. Does not read the config (`config`). Invariant: equal settings mean
//! that a reload leaves the server alone.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use moongate_access::policy::ItemRules;
use moongate_model::{ServerStart, SharingMode};
use moongate_protocol::Era;
use moongate_transport::metadata_address::MetadataAccess;
use moongate_transport::proxy::ProxyChoice;
use moongate_transport::socket::SocketAddress;
use moongate_transport::trust::CaFile;
use moongate_transport::websocket::WebSocketPing;

/// Settings of one configured server. Equal settings mean that nothing needs to be done. See also
/// [`ServerSettings::same_connection`].
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// Name in the config: letters, digits, `-` and `_`, no `__`.
    pub name: String,
    /// Prefix of the names of its items. Empty for none.
    pub prefix: String,
    /// Title that replaces the server's own.
    pub title: Option<String>,
    /// Icon for users: an `https:` or `data:` URL.
    pub icon: Option<String>,
    /// Instructions for models that replace the server's own.
    pub description: Option<String>,
    /// Target of the connection.
    pub connect: ConnectTarget,
    /// Right to be where clouds keep credentials.
    pub metadata: MetadataAccess,
    /// Revision to speak without a probe. Its name is checked by `protocol`.
    pub protocol: Option<String>,
    /// True if each client meets the server in its own era, if the server speaks both and no
    /// revision is set.
    pub as_client: bool,
    /// True if the server is another gateway, which knows names that its lists from memory do not
    /// have yet.
    pub is_gateway: bool,
    /// Era to try first where none is known. A server that refuses it is opened in the other one.
    pub first_era: Option<Era>,
    /// Rules for tools: which exist and how they look.
    pub tools: ItemRules,
    /// Rules for resources and templates (patterns over URIs).
    pub resources: ItemRules,
    /// Rules for prompts.
    pub prompts: ItemRules,
    /// Mode of sharing connections between clients.
    pub share: SharingMode,
    /// Longest time of a call, from sending it to its end.
    pub timeout: Duration,
    /// Longest time for a user to answer an input request. The call's own time stands still
    /// meanwhile.
    pub input_timeout: Duration,
    /// Longest time to open a connection (TCP and TLS), and to wait for a server that is not
    /// connected yet.
    pub connect_timeout: Duration,
    /// Longest time for a child process to become ready.
    pub start_timeout: Duration,
    /// Longest time to list everything of one kind.
    pub list_timeout: Duration,
    /// Interval between fetches of lists whose changes the server does not announce. Zero: never.
    pub relist: Duration,
    /// Largest message accepted from the server, in bytes.
    pub max_message: usize,
    /// Start with the gateway, or on use.
    pub start: ServerStart,
    /// Idle time after which a lazy server is stopped.
    pub idle_stop: Duration,
    /// Limit of dedicated connections.
    pub max_connections: usize,
    /// Delays between attempts to connect.
    pub backoff: BackoffSettings,
    /// Limit of attempts of one call, the first included.
    pub attempts: u32,
    /// Thresholds of the circuit breaker.
    pub breaker: BreakerSettings,
    /// Pings that find dead connections.
    pub ping: PingSettings,
    /// Pings below the protocol, for WebSocket.
    pub websocket_ping: WebSocketPing,
    /// Limit of concurrent calls. More wait in the queue.
    pub max_concurrency: usize,
    /// Limit of calls in the queue. More are refused.
    pub queue: usize,
    /// Limit of received bytes that wait for clients.
    pub max_backlog: usize,
    /// Limit of notifications of one call in a minute, in bytes.
    pub max_notifications: usize,
    /// Limits of the lists.
    pub lists: ListLimits,
    /// Limit of resources that all clients together may subscribe to.
    pub max_subscriptions: usize,
}

/// Limits of a server's lists. Items beyond them are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct ListLimits {
    /// Limit of items in one list.
    pub items: usize,
    /// Limit of pages of one list.
    pub pages: usize,
    /// Limit of all definitions of one list, in bytes.
    pub bytes: usize,
    /// Limit of nesting in one definition.
    pub depth: usize,
}

impl Default for ListLimits {
    fn default() -> Self {
        ListLimits {
            items: 10_000,
            pages: 1000,
            bytes: 16 * 1024 * 1024,
            depth: 100,
        }
    }
}

/// Target of a connection.
#[derive(Clone, Debug, PartialEq)]
pub enum ConnectTarget {
    /// Child process that speaks over its standard streams.
    Stdio {
        /// Program.
        command: String,
        /// Arguments.
        args: Vec<String>,
        /// Variables added to the inherited ones on the allow list. Values may be secret.
        env: Vec<(String, String)>,
        /// Working directory.
        cwd: Option<PathBuf>,
    },
    /// Entry in the config that cannot be used. It fails until the config is corrected.
    Misconfigured {
        /// Problem of the entry.
        reason: String,
    },
    /// Socket that carries newline-delimited messages.
    Socket(SocketAddress),
    /// HTTP, or a protocol that begins as HTTP.
    Http {
        /// MCP endpoint.
        url: url::Url,
        /// Unix socket that replaces the host of the URL.
        socket: Option<PathBuf>,
        /// Protocol at the URL.
        transport: HttpTransport,
        /// Headers of every request. Values may be secret (and are marked sensitive).
        headers: Vec<(HeaderName, HeaderValue)>,
        /// Headers to forward from the client's request: the client's name, then the server's.
        forward_headers: Vec<(HeaderName, HeaderName)>,
        /// Proxy and trust on the path.
        network: NetworkSettings,
    },
}

/// Network between the gateway and a server with a URL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkSettings {
    /// Proxy.
    pub proxy: ProxyChoice,
    /// Certificate authorities trusted in addition to the system's.
    pub ca: Option<CaFile>,
}

/// Protocol at a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpTransport {
    /// Streamable HTTP, with HTTP+SSE as the fallback.
    #[default]
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE.
    Sse,
    /// WebSocket.
    WebSocket,
}

impl HttpTransport {
    /// Returns true if the URL's scheme must be `ws` or `wss`.
    pub fn is_websocket(self) -> bool {
        match self {
            HttpTransport::WebSocket => true,
            HttpTransport::Auto | HttpTransport::Streamable | HttpTransport::Sse => false,
        }
    }
}

/// Delays between attempts to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// First delay, doubled with each failure.
    pub min: Duration,
    /// Longest delay.
    pub max: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        BackoffSettings {
            min: Duration::from_millis(500),
            max: Duration::from_secs(30),
        }
    }
}

/// Thresholds of the circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Transport failures in a row that open the breaker. Zero: never.
    pub failures: u32,
    /// Time that the breaker stays open, until one probe call is let through.
    pub open: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        BreakerSettings {
            failures: 10,
            open: Duration::from_secs(10),
        }
    }
}

/// Pings that find dead connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// Silence before a ping. With calls open, no ping is sent before one of them had its full
    /// time. Zero: never.
    pub interval: Duration,
    /// Longest time for an answer to a ping.
    pub timeout: Duration,
    /// Unanswered pings in a row after which the server is connected again.
    pub misses: u32,
}

impl Default for PingSettings {
    fn default() -> Self {
        PingSettings {
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            misses: 3,
        }
    }
}

impl ServerSettings {
    /// Returns true if these settings can replace `other` on its live connection. Such settings
    /// concern the look of items, times and sizes. Any setting not named here needs another
    /// connection.
    pub fn same_connection(&self, other: &ServerSettings) -> bool {
        other.with_live_settings(self) == *self
    }

    /// Returns these settings, with those of `other` that can change on a live connection.
    pub(crate) fn with_live_settings(&self, other: &ServerSettings) -> ServerSettings {
        let ServerSettings {
            prefix,
            title,
            icon,
            description,
            tools,
            resources,
            prompts,
            ..
        } = other.clone();
        ServerSettings {
            prefix,
            title,
            icon,
            description,
            tools,
            resources,
            prompts,
            timeout: other.timeout,
            input_timeout: other.input_timeout,
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

    /// Creates the settings of a server with all defaults.
    pub fn new(name: impl Into<String>, connect: ConnectTarget) -> Self {
        let name = name.into();
        ServerSettings {
            prefix: name.clone(),
            name,
            title: None,
            icon: None,
            description: None,
            connect,
            metadata: MetadataAccess::Refused,
            protocol: None,
            as_client: true,
            is_gateway: false,
            first_era: None,
            tools: ItemRules::allow_all(),
            resources: ItemRules::allow_all(),
            prompts: ItemRules::allow_all(),
            share: SharingMode::Auto,
            timeout: Duration::from_secs(60),
            input_timeout: Duration::from_secs(600),
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
