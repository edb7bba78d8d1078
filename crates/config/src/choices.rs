//! Values that keys of a config file choose from.
//!
//! Owns their written forms, as `file` owns the keys. Does not check them together (`resolve`).
//! Invariant: a word that is not here is an error.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use moongate_gateway::SchemaStyle;

/// One value, or a list of them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// An address, or `false`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(untagged)]
pub(super) enum AddressOrSwitch {
    Address(String),
    Switch(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum StateKind {
    /// In a file; the gateway does not start without it.
    Embedded,
    /// Nowhere: a restart forgets everything.
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum Transport {
    /// Streamable HTTP, or HTTP+SSE if the server has only that.
    Auto,
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE.
    Sse,
    /// WebSocket.
    Ws,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum ServerKind {
    Stdio,
    Http,
    Sse,
    Ws,
}

impl ServerKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            ServerKind::Stdio => "stdio",
            ServerKind::Http => "http",
            ServerKind::Sse => "sse",
            ServerKind::Ws => "ws",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum LoginKind {
    /// A login in the browser, with `moongate login`.
    OAuth,
    /// A program that prints a token.
    Command,
    /// A client that gets tokens for itself, without a person.
    #[serde(rename = "client_credentials")]
    ClientCredentials,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum LoginProvider {
    /// Microsoft Entra.
    Entra,
    /// Google Workspace.
    Google,
    /// GitHub.
    GitHub,
}

impl LoginProvider {
    pub(super) fn name(self) -> &'static str {
        match self {
            LoginProvider::Entra => "entra",
            LoginProvider::Google => "google",
            LoginProvider::GitHub => "github",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum ClientKind {
    /// Clients whose id is the address of their metadata document.
    Cimd,
    /// Clients that register themselves.
    Dcr,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Schemas {
    /// As the servers define them.
    AsIs,
    /// Without `oneOf`, `anyOf` and `allOf` at the top, which model APIs refuse; the same arguments
    /// are valid.
    Compatible,
}

impl Schemas {
    pub(super) fn style(self) -> SchemaStyle {
        match self {
            Schemas::AsIs => SchemaStyle::AsIs,
            Schemas::Compatible => SchemaStyle::Compatible,
        }
    }
}

/// How clients find the tools of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DiscoveryMode {
    /// Lists have all tools.
    #[default]
    Full,
    /// Lists have tools that find and call all others.
    Search,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum Calls {
    /// None.
    Off,
    /// Calls that fail, or whose tool reports an error.
    Errors,
    /// All.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum LogFormat {
    Text,
    Json,
}
