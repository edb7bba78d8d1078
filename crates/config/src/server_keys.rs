//! Keys of servers, and of the defaults for all of them.
//!
//! Owns the declarations of those that are resolved, and how a server's own keys hide the defaults.
//! Does not declare the options that hold as they are written (`moongate_upstream`). Invariant: each
//! key falls back on its own. `x-operator` says what an operator of the admin API may do with a key
//! (`edit/guarded_settings.rs`).

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::choices::{LoginKind, ServerKind, Transport};
use moongate_units::DurationSetting;
use moongate_upstream::{ConnectionOptions, LiveOptions};

/// One server: one of `url`, `command`, `tcp` and `unix`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Server {
    /// The MCP endpoint: `http://`, `https://`, `ws://` or `wss://`.
    #[cfg_attr(test, schemars(extend("x-operator" = "target")))]
    pub(super) url: Option<String>,
    /// Protocol at `url`. `"auto"`: Streamable HTTP, or HTTP+SSE if the server has only that.
    #[cfg_attr(test, schemars(extend("x-operator" = "target")))]
    pub(super) transport: Option<Transport>,
    /// Kind of server, as in client config files. Not needed.
    #[cfg_attr(test, schemars(extend("x-operator" = "target")))]
    #[serde(rename = "type")]
    pub(super) kind: Option<ServerKind>,
    /// Headers of every request to `url`; for a WebSocket, of the opening request.
    #[cfg_attr(test, schemars(extend("x-operator" = "target")))]
    pub(super) headers: Option<BTreeMap<String, String>>,
    /// Headers that Moongate passes on from the client's request: the client's name = the server's
    /// name.
    #[cfg_attr(test, schemars(extend("x-operator" = "power")))]
    pub(super) forward_headers: Option<BTreeMap<String, String>>,
    /// How Moongate gets the credential for `url`. Not needed where `moongate login NAME` is
    /// enough.
    #[cfg_attr(test, schemars(extend("x-operator" = "power")))]
    pub(super) auth: Option<ServerLogin>,
    /// The program to start. It speaks MCP over stdin and stdout.
    #[cfg_attr(test, schemars(extend("x-operator" = "power")))]
    pub(super) command: Option<String>,
    /// The program's arguments.
    #[cfg_attr(test, schemars(extend("x-operator" = "power")))]
    pub(super) args: Option<Vec<String>>,
    /// Variables for the program. It also gets a small part of Moongate's environment.
    #[cfg_attr(test, schemars(extend("x-operator" = "power")))]
    pub(super) env: Option<BTreeMap<String, String>>,
    /// The program's working directory.
    #[cfg_attr(test, schemars(extend("x-operator" = "power")))]
    pub(super) cwd: Option<String>,
    /// Host and port of a server on TCP: `ledger.internal:9000`, `[::1]:9000`.
    #[cfg_attr(test, schemars(extend("x-operator" = "target")))]
    pub(super) tcp: Option<String>,
    /// `true`: the server may be at the address of a cloud metadata service, which gives
    /// credentials to anyone who asks.
    #[cfg_attr(test, schemars(extend("x-operator" = "power")))]
    pub(super) allow_metadata: Option<bool>,
    /// The absolute path of a server's Unix socket.
    #[cfg_attr(test, schemars(extend("x-operator" = "power")))]
    pub(super) unix: Option<String>,
    /// The title that users see instead of the server's own.
    #[cfg_attr(test, schemars(extend("x-operator" = "set")))]
    pub(super) title: Option<String>,
    /// An image for users: an `https://` or `data:image/` URL.
    #[cfg_attr(test, schemars(extend("x-operator" = "set")))]
    pub(super) icon: Option<String>,
    /// The text that models see instead of the server's own instructions.
    #[cfg_attr(test, schemars(extend("x-operator" = "set")))]
    pub(super) description: Option<String>,
    #[serde(flatten)]
    pub(super) options: ServerOptions,
}

/// How Moongate gets the credential for a server.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct ServerLogin {
    /// `"oauth"`: a login, with `moongate login NAME`. `"command"`: a program prints a token.
    /// `"client_credentials"`: Moongate gets tokens for itself, without a person.
    #[serde(rename = "type")]
    pub(super) kind: LoginKind,
    /// A client that you registered at the authorization server. Default: Moongate registers
    /// itself.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) client_id: Option<String>,
    /// The client's secret, from a variable or a file: `${GITHUB_CLIENT_SECRET}`.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) client_secret: Option<String>,
    /// The `https://` URL of a client metadata document, which is then the client's id.
    pub(super) client_id_url: Option<String>,
    /// With `type = "client_credentials"`, instead of the secret: the client's private key in PEM,
    /// `${file:/run/secrets/key.pem}`. It signs an assertion for each request.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) private_key: Option<String>,
    /// The name of that key at the authorization server, if it has several.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) key_id: Option<String>,
    /// The audience of the assertions. Default: the token endpoint. Some authorization servers
    /// demand their issuer.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) audience: Option<String>,
    /// The authorization server that the client is for, whatever the server names. Default: that of
    /// the first login. `type = "client_credentials"` needs it.
    pub(super) issuer: Option<String>,
    /// The scopes to ask for. Default: those that the server names.
    pub(super) scopes: Option<Vec<String>>,
    /// `false`: logins leave out `resource`, which some authorization servers refuse.
    pub(super) resource: bool,
    /// More parameters for the login page: `{ access_type = "offline" }`.
    pub(super) params: BTreeMap<String, String>,
    /// With `type = "command"`: the program to run. It prints a token, and nothing else.
    pub(super) command: Option<String>,
    /// That program's arguments.
    pub(super) args: Vec<String>,
    /// Variables for that program, besides the usual ones.
    pub(super) env: BTreeMap<String, String>,
    /// How long its token is used before the program runs again. After a 401, it runs at once.
    pub(super) ttl: DurationSetting,
}

impl Default for ServerLogin {
    fn default() -> Self {
        ServerLogin {
            kind: LoginKind::OAuth,
            client_id: None,
            client_secret: None,
            client_id_url: None,
            private_key: None,
            key_id: None,
            audience: None,
            issuer: None,
            scopes: None,
            resource: true,
            params: BTreeMap::new(),
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            ttl: DurationSetting::minutes(10),
        }
    }
}

/// Settings that every server has. Those of `LiveOptions` and `ConnectionOptions` hold as they are
/// written; the others are resolved.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct ServerOptions {
    /// `false` switches the server off.
    #[cfg_attr(test, schemars(extend("x-operator" = "add")))]
    pub(super) enabled: bool,
    /// The prefix of the server's item names. Default: the server's name. `""`: no prefix.
    #[cfg_attr(test, schemars(example = &"gh", extend("x-operator" = "set")))]
    pub(super) prefix: Option<String>,
    /// Which tools exist, and how clients see them. Patterns match the server's own names.
    #[cfg_attr(test, schemars(extend("x-operator" = "add")))]
    pub(super) tools: ItemFilters,
    /// Which resources and templates exist. Patterns match URIs.
    #[cfg_attr(test, schemars(extend("x-operator" = "add")))]
    pub(super) resources: ItemFilters,
    /// Which prompts exist, and how clients see them.
    #[cfg_attr(test, schemars(extend("x-operator" = "add")))]
    pub(super) prompts: ItemFilters,
    #[serde(flatten)]
    pub(super) live: LiveOptions,
    #[serde(flatten)]
    pub(super) connection: ConnectionOptions,
    /// The proxy for a `url`. `"none"`: no proxy. Default: the environment's.
    #[cfg_attr(test, schemars(
        example = &"http://proxy.example.com:3128",
        extend("x-operator" = "target")
    ))]
    pub(super) proxy: Option<String>,
    /// A PEM file of authorities to trust in addition to the system's. A relative path starts at
    /// the config file.
    #[cfg_attr(test, schemars(example = &"company-ca.pem", extend("x-operator" = "power")))]
    pub(super) ca: Option<String>,
    /// `"auto"`: the era of each client. `"newest"`: one era for all. A date: that revision.
    #[cfg_attr(test, schemars(extend("x-operator" = "set")))]
    pub(super) protocol: String,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            enabled: true,
            prefix: None,
            tools: ItemFilters::everything(),
            resources: ItemFilters::everything(),
            prompts: ItemFilters::everything(),
            live: LiveOptions::default(),
            connection: ConnectionOptions::default(),
            proxy: None,
            ca: None,
            protocol: "auto".to_owned(),
        }
    }
}

/// Puts the defaults under each server's own settings, key by key, also in tables. A server's list
/// or map replaces the default's.
pub(super) fn layer_defaults(file: &mut Value) {
    let defaults = file.get("defaults").cloned().unwrap_or_default();
    let servers = file.get_mut("servers").and_then(Value::as_object_mut);
    for server in servers.into_iter().flat_map(Map::values_mut) {
        *server = overlay(defaults.clone(), server.take(), 2);
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

/// Which items exist, and how clients see them.
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
    /// Filters that let every item exist.
    fn everything() -> Self {
        ItemFilters {
            allow: Some(vec!["*".to_owned()]),
            ..ItemFilters::default()
        }
    }

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
    use moongate_units::DurationSetting;
    use serde_json::json;

    use super::*;

    /// Options of server `a` in a file with these defaults.
    fn options(defaults: Value, own: Value) -> ServerOptions {
        let mut file = json!({ "defaults": defaults, "servers": { "a": own } });
        layer_defaults(&mut file);
        serde_json::from_value(file["servers"]["a"].take()).unwrap()
    }

    #[test]
    fn a_key_of_a_server_hides_that_default_alone() {
        let defaults = json!({ "ping": { "timeout": "7s" }, "max_pages": 5 });
        let all = options(defaults, json!({ "ping": { "misses": 5 }, "queue": 7 }));
        let ping = all.connection.ping;
        assert_eq!(ping.misses, 5);
        assert_eq!(ping.timeout, DurationSetting::seconds(7));
        assert_eq!(ping.interval, DurationSetting::seconds(60));
        assert_eq!(all.live.queue, 7);
        assert_eq!(all.connection.lists.max_pages, 5);
        assert_eq!(all.connection.lists.max_items, 10_000);
    }

    #[test]
    fn lists_and_names_are_replaced_as_a_whole() {
        let base = json!({ "deny": ["a", "b"], "rename": { "x": "y" }, "hide": ["c"] });
        let own = json!({ "deny": ["d"], "rename": { "z": "w" } });
        let all = options(json!({ "tools": base }), json!({ "tools": own }));
        let tools = serde_json::to_value(all.tools).unwrap();
        assert_eq!(tools["deny"], json!(["d"]));
        assert_eq!(tools["rename"], json!({ "z": "w" }));
        assert_eq!(tools["hide"], json!(["c"]));
    }
}
