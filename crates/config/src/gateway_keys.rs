//! Keys of the `gateway` table.
//!
//! Owns their declarations. Does not check values together (`resolve`). Invariant: a plan has times
//! and triggers of reloads in this form.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choices::{AddressOrSwitch, DiscoveryMode, OneOrMore, Schemas, StateKind};
use moongate_units::DurationSetting;

/// The gateway's own endpoints.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Gateway {
    /// Where clients connect: an address, `unix:PATH`, `systemd`, `systemd:NAME`, `tcp:ADDRESS` for
    /// clients that write one message per line, or a list of these.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub(super) listen: OneOrMore,
    /// The address of the admin listener. `false` switches it off.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub(super) admin: AddressOrSwitch,
    /// The mode of Unix socket files, in octal.
    #[cfg_attr(test, schemars(regex(pattern = "^(0?[0-7]{3}|.*\\$\\{.*)$")))]
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub(super) socket_mode: String,
    /// Lets a second process listen on the same port so that it can take over.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub(super) reuse_port: bool,
    /// Certificate and key. Clients then connect over HTTPS.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub(super) tls: Option<Tls>,
    /// The URL that clients see. Its host is allowed in `Host`.
    #[cfg_attr(test, schemars(example = &"https://mcp.example.com"))]
    pub(super) public_url: Option<String>,
    /// More hosts that requests may name: `mcp.example.com`, `*.example.com`. Loopback names are
    /// always allowed.
    pub(super) allowed_hosts: Vec<String>,
    /// Web pages that may connect: `https://app.example.com`.
    pub(super) allowed_origins: Vec<String>,
    /// Proxies whose `X-Forwarded-For` is trusted: addresses, blocks such as `10.0.0.0/8`, or
    /// `unix`. It affects only the limits of logins.
    pub(super) trusted_proxies: Vec<String>,
    #[serde(flatten)]
    pub(super) times: GatewayTimes,
    /// When Moongate reloads the config.
    pub(super) reload: ReloadSettings,
    /// Where lists, sessions and keys are kept for a restart. Default: in a file, if there can be
    /// one.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    #[cfg_attr(test, schemars(example = &"embedded"))]
    pub(super) state: Option<StateKind>,
    /// The directory of that file. Default: `$STATE_DIRECTORY`, `$XDG_STATE_HOME/moongate` or
    /// `~/.local/state/moongate`.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    #[cfg_attr(test, schemars(example = &"/var/lib/moongate"))]
    pub(super) state_dir: Option<String>,
    /// The secret behind people's logins, 32 bytes or more: `${file:/run/secrets/moongate}`.
    /// Default: a file next to the state.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    #[cfg_attr(test, schemars(example = &"${file:/run/secrets/moongate}"))]
    pub(super) secret: Option<String>,
    /// Earlier secrets. Logins from their time continue.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub(super) secret_before: Vec<String>,
    /// A file with variables for references, one `NAME=value` per line. The process's variables
    /// take precedence.
    #[cfg_attr(test, schemars(example = &"moongate.env"))]
    pub(super) env_file: Option<String>,
    /// How lists show input schemas. `"compatible"`: without `oneOf`, `anyOf`, `allOf` at the top.
    pub(super) schema: Schemas,
    /// How clients of `/mcp` find tools: `"full"` lists all, `"search"` lists a few tools that find
    /// and call the others.
    pub(super) discovery: DiscoveryMode,
    /// Tools that search mode still lists: patterns over exposed names. `!` excludes.
    pub(super) always: Vec<String>,
    /// Options of search mode.
    pub(super) search: SearchSettings,
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
            trusted_proxies: Vec::new(),
            times: GatewayTimes::default(),
            reload: ReloadSettings::default(),
            state: None,
            state_dir: None,
            secret: None,
            secret_before: Vec::new(),
            env_file: None,
            schema: Schemas::AsIs,
            discovery: DiscoveryMode::Full,
            always: Vec::new(),
            search: SearchSettings::default(),
        }
    }
}

/// Times of the gateway.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct GatewayTimes {
    /// How long calls may continue after a stop.
    #[cfg_attr(test, schemars(extend("x-zero" = true, "x-reload" = "restart")))]
    pub drain: DurationSetting,
    /// After this much silence, an answer becomes a stream and a stream gets a comment.
    pub keep_alive: DurationSetting,
    /// How long a user has to answer a server's request.
    #[serde(rename = "ask_timeout")]
    pub input_timeout: DurationSetting,
    /// The age at which a server's unconfirmed lists are no longer used after a restart.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub catalog_age: DurationSetting,
}

impl Default for GatewayTimes {
    fn default() -> Self {
        GatewayTimes {
            drain: DurationSetting::seconds(30),
            keep_alive: DurationSetting::seconds(15),
            input_timeout: DurationSetting::minutes(10),
            catalog_age: DurationSetting::minutes(7 * 24 * 60),
        }
    }
}

/// Certificate and key of the listener. The files are checked every ten seconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(extend("required" = ["cert", "key"])))]
pub(super) struct Tls {
    /// A PEM file with the certificate and its chain.
    #[cfg_attr(test, schemars(example = &"cert.pem"))]
    pub(super) cert: Option<String>,
    /// A PEM file with the private key.
    #[cfg_attr(test, schemars(example = &"key.pem"))]
    pub(super) key: Option<String>,
    /// A PEM file with authorities. Only clients with a certificate from one of them may connect.
    #[cfg_attr(test, schemars(example = &"ca.pem"))]
    pub(super) client_ca: Option<String>,
}

/// Options of search mode.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(rename = "Search"))]
pub struct SearchSettings {
    /// Tools that find resources and prompts, if there are any.
    pub resources: bool,
    /// A second tool for calls, to tools that declare themselves read-only. Clients can approve it
    /// permanently.
    pub split_calls: bool,
}

impl Default for SearchSettings {
    fn default() -> Self {
        SearchSettings {
            resources: true,
            split_calls: false,
        }
    }
}

/// When the config is reloaded.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(rename = "Reload"))]
pub struct ReloadSettings {
    /// Reload when a config file changes, including `${file:…}`.
    pub watch: bool,
    /// How often Moongate checks for changes.
    pub interval: DurationSetting,
    /// Reload on SIGHUP. With `false`, SIGHUP ends the gateway.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub signal: bool,
}

impl Default for ReloadSettings {
    fn default() -> Self {
        ReloadSettings {
            watch: true,
            interval: DurationSetting::seconds(1),
            signal: true,
        }
    }
}
