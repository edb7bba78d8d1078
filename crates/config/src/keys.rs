//! Keys of the config that decide who may connect.
//!
//! Owns their types and defaults, as `file` does for all other keys. Does not check values
//! (`resolve`). Invariant: no default here lets anybody in.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::broker_keys::OAuthLogin;
use moongate_units::RateSetting;

/// List of keys in the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyList {
    /// Keys of clients, `auth.keys`.
    Clients,
    /// Keys of operators, `admin.keys`.
    Operators,
}

impl KeyList {
    /// Returns the table that has the list.
    pub(super) fn table(self) -> &'static str {
        match self {
            KeyList::Clients => "auth",
            KeyList::Operators => "admin",
        }
    }
}

/// Who may connect.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Auth {
    /// API keys. Without any, Moongate asks for no credentials and can listen only on loopback
    /// addresses.
    pub(super) keys: Vec<Key>,
    /// `true`: clients need a key even if none is configured, so that nobody gets in.
    pub(super) required: bool,
    /// The company's login, with which people log in to the gateway in their browser.
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub(super) oauth: Option<OAuthLogin>,
    /// Your own issuers, whose access tokens open the gateway for people with a role.
    pub(super) jwt: Vec<JwtIssuer>,
    /// Roles of people who log in, and of keys.
    pub(super) roles: Vec<PeopleRole>,
}

impl Auth {
    /// Returns true if no method is written. Keys with mistakes count, since they have their own
    /// errors.
    pub(super) fn is_open(&self) -> bool {
        // All members are named, so that a new method cannot be forgotten here.
        let Auth {
            keys,
            required,
            oauth,
            jwt,
            roles: _,
        } = self;
        keys.is_empty() && !required && oauth.is_none() && jwt.is_empty()
    }
}

/// An API key: either `hash` or `key`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(extend("required" = ["name"])))]
pub(super) struct Key {
    /// The owner of the key, in logs.
    #[cfg_attr(test, schemars(length(min = 1, max = 64)))]
    pub(super) name: Option<String>,
    /// The SHA-256 of the key. `moongate key new NAME` prints it.
    #[cfg_attr(
        test,
        schemars(regex(pattern = "^(sha256:[0-9a-fA-F]{64}|.*\\$\\{.*)$"))
    )]
    pub(super) hash: Option<String>,
    /// The key itself, from a variable or a file: `${MOONGATE_KEY}`.
    pub(super) key: Option<String>,
    /// A role from `auth.roles`, whose views, tools and rate apply to the key.
    #[cfg_attr(test, schemars(length(min = 1, max = 64)))]
    pub(super) role: Option<String>,
    /// Views and servers that the key opens, each at its path and together at `/mcp`. Default:
    /// everything.
    pub(super) views: Option<Vec<String>>,
    /// Patterns over exposed tool names. `!` excludes. Default: all.
    pub(super) tools: Option<Vec<String>>,
    /// Requests per unit of time, instead of `limits.rate`. `0`: no limit.
    pub(super) rate: Option<RateSetting>,
    /// When the key expires: a date (UTC), or a time with its offset.
    pub(super) expires: Option<String>,
}

/// An issuer whose access tokens open the gateway.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct JwtIssuer {
    /// The issuer, exactly as tokens have it in `iss`.
    #[cfg_attr(test, schemars(example = &"https://login.example.com"))]
    pub(super) issuer: Option<String>,
    /// Audiences of tokens that open every endpoint. Default: the URL of the endpoint, such as
    /// `https://mcp.example.com/mcp`.
    pub(super) audience: Option<Vec<String>>,
    /// Algorithms that signatures may have: RS, PS 256, 384, 512, ES 256, 384, `EdDSA`.
    pub(super) algorithms: Vec<String>,
    /// The URL of the issuer's keys, `jwks_uri` in its metadata.
    #[cfg_attr(test, schemars(example = &"https://login.example.com/keys"))]
    pub(super) jwks_url: Option<String>,
    /// The scope that a token must have.
    pub(super) scope: String,
}

impl Default for JwtIssuer {
    fn default() -> Self {
        JwtIssuer {
            issuer: None,
            audience: None,
            algorithms: vec!["RS256".to_owned(), "ES256".to_owned()],
            jwks_url: None,
            scope: "mcp".to_owned(),
        }
    }
}

/// A role of people who log in, and of keys. Somebody with several may use what any of them allows.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(extend("required" = ["name"])))]
pub(super) struct PeopleRole {
    /// The role, in logs and metrics.
    #[cfg_attr(test, schemars(length(min = 1, max = 64)))]
    pub(super) name: Option<String>,
    /// People who have the role. All keys must match. A role used by keys needs none.
    #[serde(rename = "match")]
    pub(super) people: PeopleMatch,
    /// Views and servers that the role opens, each at its path and together at `/mcp`. Default:
    /// everything.
    pub(super) views: Option<Vec<String>>,
    /// Patterns over exposed tool names. `!` excludes. Default: all.
    pub(super) tools: Option<Vec<String>>,
    /// Requests of each person per unit of time, instead of `limits.rate`. `0`: no limit.
    pub(super) rate: Option<RateSetting>,
}

/// People who have a role. All keys must match, each by any of its values.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct PeopleMatch {
    /// The `issuer` of one of `auth.jwt`. Default: the company's login, `auth.oauth`.
    #[cfg_attr(test, schemars(example = &"https://login.example.com"))]
    pub(super) issuer: Option<String>,
    /// Groups, in the claim `groups`.
    pub(super) groups: Option<Vec<String>>,
    /// App roles, in the claim `roles`.
    pub(super) app_roles: Option<Vec<String>>,
    /// For GitHub: organisations.
    pub(super) orgs: Option<Vec<String>>,
    /// For GitHub: teams, such as `example/platform`.
    pub(super) teams: Option<Vec<String>>,
    /// Email addresses that the issuer has verified: `ann@example.com`, `*@example.com`.
    pub(super) email: Option<Vec<String>>,
    /// Other claims, each with its values. A name with dots may be a path.
    pub(super) claim: BTreeMap<String, Vec<String>>,
    /// `true`: everybody with a token from the issuer.
    pub(super) anyone: bool,
}

/// Who may use the admin listener.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct Admin {
    /// Operator keys. Without any, loopback and Unix sockets need no key, and other addresses
    /// answer only probes and metrics.
    pub(super) keys: Vec<AdminKey>,
    /// Readers of `/metrics`: everybody who can reach the listener, or keys only. Default:
    /// `"open"`.
    #[cfg_attr(test, schemars(example = &"key"))]
    pub(super) metrics: Option<MetricsReaders>,
    #[serde(flatten)]
    pub(super) edits: AdminEdits,
    #[serde(flatten)]
    pub(super) limits: AdminLimits,
}

/// Changes of the config that the admin listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct AdminEdits {
    /// `false`: the page and the API change no files. Commands still do.
    pub edit: bool,
    /// `true`: the page and the API may add servers that start programs, or that refer to files.
    pub allow_commands: bool,
}

impl Default for AdminEdits {
    fn default() -> Self {
        AdminEdits {
            edit: true,
            allow_commands: false,
        }
    }
}

/// What the admin listener keeps for operators.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct AdminLimits {
    /// How many recent calls are kept: names and sizes, never arguments or results. `0`: none.
    #[cfg_attr(test, schemars(range(min = 0, max = 10_000)))]
    #[cfg_attr(test, schemars(extend("x-reload" = "restart")))]
    pub recent_calls: usize,
    /// Concurrent event streams, for pages and programs that watch.
    #[cfg_attr(test, schemars(range(min = 1, max = 1000)))]
    #[cfg_attr(test,
        schemars(extend("x-reload" = "restart", "x-metric" = ["moongate_admin_streams"])))]
    pub streams: usize,
}

impl Default for AdminLimits {
    fn default() -> Self {
        AdminLimits {
            recent_calls: 200,
            streams: 16,
        }
    }
}

/// An operator key: either `hash` or `key`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(extend("required" = ["name"])))]
pub(super) struct AdminKey {
    /// The owner of the key.
    #[cfg_attr(test, schemars(length(min = 1, max = 64)))]
    pub(super) name: Option<String>,
    /// The SHA-256 of the key. `moongate key new NAME --admin` prints it.
    #[cfg_attr(
        test,
        schemars(regex(pattern = "^(sha256:[0-9a-fA-F]{64}|.*\\$\\{.*)$"))
    )]
    pub(super) hash: Option<String>,
    /// The key itself, from a variable or a file: `${file:/run/secrets/admin_key}`.
    pub(super) key: Option<String>,
    /// `"view"` (default): read. `"operate"`: also try tools, end calls and sessions, reload,
    /// restart servers, and edit the config: its servers, tools and keys.
    pub(super) role: Option<AdminRole>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum AdminRole {
    /// To read.
    View,
    /// Also to call tools, end calls and sessions, reload, restart servers, and edit servers and
    /// keys in the config.
    Operate,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum MetricsReaders {
    /// Everybody who can reach the listener.
    Open,
    /// Everybody who has a key of `admin.keys`.
    Key,
}
