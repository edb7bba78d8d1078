//! Plan: a validated config, from which `app` builds the gateway. Owns the settings of a run. Does not know files, keys
//! or places. Invariant: each value has passed its checks.

use std::time::Duration;

use moongate_access::auth::{AdminAccess, KeySettings};
use moongate_access::policy::{GlobList, RequestRate};
use moongate_gateway::SchemaStyle;
use moongate_server::{ListenAddress, SocketSettings, TlsSettings};
use moongate_session::store::StoreSettings;
use moongate_telemetry::{CallLog, MemoryLimit};
use moongate_upstream::ServerSettings;

/// Settings of one run of the gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Addresses for clients, at least one.
    pub listen: Vec<ListenAddress>,
    /// Address of metrics and health. `None` switches it off.
    pub admin: Option<ListenAddress>,
    /// Keys and rights of the admin listener.
    pub admin_access: AdminAccess,
    /// Options of the sockets.
    pub sockets: SocketSettings,
    /// Certificate and key of the listeners with an address.
    pub tls: Option<TlsSettings>,
    /// URL that clients see. Its host is allowed.
    pub public_url: Option<url::Url>,
    /// Further values of `Host` that are accepted: exact, or `*.domain`, with any port.
    pub allowed_hosts: Vec<String>,
    /// Browser origins that are accepted.
    pub allowed_origins: Vec<String>,
    /// Time for running calls after a stop.
    pub drain: Duration,
    /// Silence after which a waiting response becomes a stream, or a stream gets a comment.
    pub keep_alive: Duration,
    /// Time limit for a user's answer to an input request.
    pub ask_timeout: Duration,
    /// Triggers of a reload.
    pub reload: ReloadSettings,
    /// Storage for state that outlives a restart.
    pub state: StoreSettings,
    /// Age limit of cached lists that the server has not confirmed.
    pub catalog_age: Duration,
    /// Form of tools' input schemas in lists.
    pub schema: SchemaStyle,
    /// Rules for exposed names.
    pub names: NameSettings,
    /// Enabled servers, sorted by name.
    pub servers: Vec<ServerSettings>,
    /// Names of disabled servers.
    pub disabled: Vec<String>,
    /// Named subsets of servers and tools.
    pub views: Vec<ViewSettings>,
    /// API keys. Without keys no credentials are needed (loopback only).
    pub keys: Vec<KeySettings>,
    /// Limits of everything that clients can make grow.
    pub limits: PlanLimits,
    /// Log settings.
    pub log: LogSettings,
}

/// Triggers of a reload.
#[derive(Clone, Debug, PartialEq)]
pub struct ReloadSettings {
    /// True if a changed file triggers one.
    pub watch: bool,
    /// Interval between looks at the files.
    pub interval: Duration,
    /// True if SIGHUP triggers one.
    pub signal: bool,
}

/// Rules for exposed names.
#[derive(Clone, Debug, PartialEq)]
pub struct NameSettings {
    /// Text between prefix and name.
    pub separator: String,
    /// Limit of an exposed name in bytes.
    pub max_length: usize,
}

/// View: a named subset of servers and tools with its own path.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewSettings {
    /// Name in the path.
    pub name: String,
    /// Names of servers. `None` means all.
    pub servers: Option<Vec<String>>,
    /// Exposed names of tools.
    pub tools: GlobList,
    /// Form of tools' input schemas, if the view has its own.
    pub schema: Option<SchemaStyle>,
}

/// Limits of everything that clients can make grow.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanLimits {
    /// Request rate of one principal.
    pub rate: Option<RequestRate>,
    /// Concurrent calls of one key.
    pub calls_per_key: usize,
    /// Memory limit of the gateway in bytes.
    pub memory: MemoryLimit,
    /// Sessions of legacy clients.
    pub sessions: usize,
    /// Idle time after which a session ends.
    pub session_idle: Duration,
    /// Open event streams.
    pub streams: usize,
    /// Parked calls: their server waits for a stateless client that comes back with input responses.
    pub parked: usize,
    /// Time limit of a connection for one stream, for clients that resume the rest.
    pub stream_time: Duration,
    /// Bytes of resumable events in one session.
    pub replay: usize,
    /// Bytes of resumable events in all sessions together.
    pub replay_total: usize,
    /// Number of resumable events in one session.
    pub replay_events: usize,
    /// Time that a response waits for its client to resume.
    pub replay_time: Duration,
    /// Bytes of messages that wait for a session's GET stream.
    pub outbox: usize,
    /// Bytes of such messages in all sessions together.
    pub outbox_total: usize,
    /// Subscribed resources of one session or stream.
    pub subscriptions: usize,
    /// Concurrent connections over all listeners.
    pub connections: usize,
    /// Concurrent connections to the admin listener.
    pub admin_connections: usize,
    /// Limit of a request's head in bytes.
    pub head: usize,
    /// Limit of a request's body in bytes.
    pub body: usize,
    /// Messages in one batch.
    pub batch: usize,
    /// Limit of a looked-up URI in bytes.
    pub uri: usize,
    /// Concurrent calls over all clients.
    pub calls: usize,
    /// Time limit for a request's head and body.
    pub read_timeout: Duration,
    /// Time limit for a client that reads nothing of its response.
    pub write_timeout: Duration,
}

/// Log settings.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// Filter such as `info` or `moongate=debug`.
    pub filter: String,
    /// True for one JSON object a line instead of text.
    pub json: bool,
    /// Calls that are recorded.
    pub calls: CallLog,
}
