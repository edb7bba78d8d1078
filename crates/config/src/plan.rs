//! Plan: a validated config, from which `app` builds the gateway. Owns the settings of a run. Does
//! not know files, keys or spans. Invariant: each value has passed its checks.

use std::path::PathBuf;

use super::choices::DiscoveryMode;
use super::file::NameSettings;
use super::gateway_keys::{GatewayTimes, ReloadSettings, SearchSettings};
use super::keys::{AdminEdits, AdminLimits};
use super::limits::LimitSettings;
use moongate_access::auth::{AdminAccess, AuthSettings};
use moongate_access::policy::GlobList;
use moongate_gateway::{DisabledServer, SchemaStyle};
use moongate_listener::{ListenAddress, SocketSettings, TlsSettings, TrustedProxies};
use moongate_oauth::SecretSettings;
use moongate_session::store::StoreSettings;
use moongate_telemetry::CallLog;
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
    /// Changes of the config that the admin listener takes.
    pub admin_edits: AdminEdits,
    /// What the admin listener keeps for operators.
    pub admin_limits: AdminLimits,
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
    /// Proxies that are trusted to name the address of a person who logs in.
    pub trusted_proxies: TrustedProxies,
    /// Times of the gateway.
    pub times: GatewayTimes,
    /// Triggers of a reload.
    pub reload: ReloadSettings,
    /// Storage for state that outlives a restart.
    pub state: StoreSettings,
    /// Folder of the state, whatever the port is: logins at servers are kept there. `None` without
    /// such a folder, or if nothing may be kept.
    pub login_folder: Option<PathBuf>,
    /// Secrets behind people's logins, as far as the config has them.
    pub secrets: SecretSettings,
    /// Hosts that a login may reach at private addresses and without TLS.
    pub egress: Vec<String>,
    /// Form of tools' input schemas in lists.
    pub schema: SchemaStyle,
    /// Discovery of tools at the endpoint over everything.
    pub discovery: DiscoverySettings,
    /// Rules for exposed names.
    pub names: NameSettings,
    /// Enabled servers, sorted by name.
    pub servers: Vec<ServerSettings>,
    /// Disabled servers, sorted by name.
    pub disabled: Vec<DisabledServer>,
    /// Named subsets of servers and tools.
    pub views: Vec<ViewSettings>,
    /// Methods of authentication. Without any no credentials are needed (loopback only).
    pub auth: AuthSettings,
    /// Limits of everything that clients can make grow.
    pub limits: LimitSettings,
    /// Log settings.
    pub log: LogSettings,
}

impl Plan {
    /// Returns true if whoever reaches the admin listener may add programs, and others than the
    /// gateway's user reach it.
    pub fn lets_everybody_command(&self) -> bool {
        let has_keys = !self.admin_access.keys.is_empty();
        lets_everybody_command(
            self.admin_edits,
            has_keys,
            self.admin.as_ref(),
            &self.sockets,
        )
    }
}

/// Returns true if whoever reaches a listener of operators may add programs, and others than the
/// gateway's user reach it.
pub(super) fn lets_everybody_command(
    edits: AdminEdits,
    has_keys: bool,
    listener: Option<&ListenAddress>,
    sockets: &SocketSettings,
) -> bool {
    edits.allow_commands
        && !has_keys
        && !listener.is_none_or(|address| address.is_private(sockets.mode))
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
    /// Discovery of its tools.
    pub discovery: DiscoverySettings,
}

/// Discovery of the tools of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoverySettings {
    /// Whole lists, or search mode.
    pub mode: DiscoveryMode,
    /// Exposed names of tools that search mode lists.
    pub always: GlobList,
    /// Options of search mode.
    pub search: SearchSettings,
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
