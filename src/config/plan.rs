//! A validated config, part by part: what `app` builds the gateway from.

use std::time::Duration;

use crate::auth::{AdminAccess, KeySettings};
use crate::front::{ListenAddress, SocketSettings, TlsSettings};
use crate::gateway::SchemaStyle;
use crate::policy::{GlobList, RequestRate};
use crate::store::StoreSettings;
use crate::telemetry::{CallLog, MemoryLimit};
use crate::upstream::ServerSettings;

/// Everything that a run of the gateway needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where clients connect; at least one.
    pub listen: Vec<ListenAddress>,
    /// Where metrics and health are served; `None` if switched off.
    pub admin: Option<ListenAddress>,
    /// Who may use the admin listener.
    pub admin_access: AdminAccess,
    /// How the sockets are opened.
    pub sockets: SocketSettings,
    /// Certificate and key of the listeners that have an address.
    pub tls: Option<TlsSettings>,
    /// What clients see; its host is an allowed one.
    pub public_url: Option<url::Url>,
    /// More values of `Host` that are accepted: exact, or `*.domain`; any port.
    pub allowed_hosts: Vec<String>,
    /// Browser origins that are accepted.
    pub allowed_origins: Vec<String>,
    /// How long calls may go on after a stop was asked for.
    pub drain: Duration,
    /// After this much silence a waiting answer becomes a stream, and a stream gets a comment.
    pub keep_alive: Duration,
    /// Longest time for a user to answer what a server asks.
    pub ask_timeout: Duration,
    /// When the config is read again.
    pub reload: ReloadSettings,
    /// Where what outlives a restart is kept.
    pub state: StoreSettings,
    /// How long a server's lists are kept without being confirmed.
    pub catalog_age: Duration,
    /// How tools' input schemas are listed.
    pub schema: SchemaStyle,
    /// How names are exposed.
    pub names: NameSettings,
    /// The enabled servers, sorted by name.
    pub servers: Vec<ServerSettings>,
    /// Names of the servers that are switched off.
    pub disabled: Vec<String>,
    /// Named subsets.
    pub views: Vec<ViewSettings>,
    /// API keys. Empty: no credentials are asked for (loopback only).
    pub keys: Vec<KeySettings>,
    /// What clients can make grow.
    pub limits: PlanLimits,
    /// How to log.
    pub log: LogSettings,
}

/// When the config is read again.
#[derive(Clone, Debug, PartialEq)]
pub struct ReloadSettings {
    /// When one of its files changed.
    pub watch: bool,
    /// How often it is looked at them.
    pub interval: Duration,
    /// On SIGHUP.
    pub signal: bool,
}

/// How names are exposed.
#[derive(Clone, Debug, PartialEq)]
pub struct NameSettings {
    /// Between prefix and name.
    pub separator: String,
    /// Longest exposed name, in bytes.
    pub max_length: usize,
}

/// A named subset of servers and tools with its own path.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewSettings {
    /// The name in the path.
    pub name: String,
    /// Names of servers; `None`: all.
    pub servers: Option<Vec<String>>,
    /// Exposed names of tools.
    pub tools: GlobList,
    /// How tools' input schemas are listed, if not as everywhere.
    pub schema: Option<SchemaStyle>,
}

/// What clients can make grow.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanLimits {
    /// Requests of one principal in a time.
    pub rate: Option<RequestRate>,
    /// Calls of one key at once.
    pub calls_per_key: usize,
    /// Memory that the gateway may use, in bytes.
    pub memory: MemoryLimit,
    /// Sessions of legacy clients.
    pub sessions: usize,
    /// How long an unused session is kept.
    pub session_idle: Duration,
    /// Open event streams.
    pub streams: usize,
    /// Calls whose server waits while a stateless client is away to answer.
    pub parked: usize,
    /// How long a connection stays open for one stream of a client that comes back for the rest.
    pub stream_time: Duration,
    /// Events kept for one session whose client may come back, in bytes.
    pub replay: usize,
    /// The same for all sessions together.
    pub replay_total: usize,
    /// The same for one session, as a number.
    pub replay_events: usize,
    /// How long an answer waits for its client to come back.
    pub replay_time: Duration,
    /// Messages that wait for a session's own stream, in bytes.
    pub outbox: usize,
    /// The same for all sessions together.
    pub outbox_total: usize,
    /// Resources that one session or stream may subscribe to.
    pub subscriptions: usize,
    /// Connections at once, over all listeners.
    pub connections: usize,
    /// Connections to the admin listener at once.
    pub admin_connections: usize,
    /// Largest head of a request, in bytes.
    pub head: usize,
    /// Largest request body, in bytes.
    pub body: usize,
    /// Messages in one batch.
    pub batch: usize,
    /// Longest URI that is looked up, in bytes.
    pub uri: usize,
    /// Calls at once, over all clients.
    pub calls: usize,
    /// Longest time to read a request's head and body.
    pub read_timeout: Duration,
    /// Longest time that a client may take nothing of what is there for it.
    pub write_timeout: Duration,
}

/// How to log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// A filter such as `info` or `moongate=debug`.
    pub filter: String,
    /// One JSON object a line instead of text.
    pub json: bool,
    /// Calls that are recorded.
    pub calls: CallLog,
}
