//! Logins at servers: their part of a status, and the bodies that start and end them.
//!
//! Owns the JSON fields. Does not log in. Invariant: none of these contains a token, and only the
//! address that a person opens contains a login's `state`.

use serde::{Deserialize, Serialize};

/// Login at a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LoginView {
    /// State of the login.
    pub state: LoginPhase,
    /// Time at which its token expires, if known.
    pub expires: Option<String>,
    /// True if the gateway renews it.
    pub renews: bool,
    /// Reason why it cannot be read, renewed or written to disk.
    pub problem: Option<String>,
}

/// State of a login at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoginPhase {
    /// There is a login.
    SignedIn,
    /// There is none.
    #[default]
    SignedOut,
    /// There was one, but it can no longer be renewed.
    Ended,
}

/// Body of `POST /api/v1/servers/{name}/login`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LoginRequest {
    /// True once a person has agreed to a login that is not on the server's domain.
    pub confirmed: bool,
    /// Host of the login that they agreed to, as in the first answer. Another host must be
    /// confirmed again.
    pub host: Option<String>,
}

/// Start of a login at a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LoginStart {
    /// Address to open in a browser, within ten minutes. `None` if the login must be confirmed
    /// first.
    pub url: Option<String>,
    /// Host of the login.
    pub host: String,
    /// Host of the server, which gets the access that the login grants.
    pub server_host: String,
    /// True if the login is on a different domain from the server, or from the previous login.
    /// Nothing was written: ask a person, then send the request again with `confirmed`.
    pub must_confirm: bool,
}

/// Report of a logout at a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum LogoutReport {
    /// Login is revoked and forgotten.
    Revoked {
        /// Server of the request.
        server: String,
    },
    /// Login is forgotten, but was not revoked.
    Forgotten {
        /// Server of the request.
        server: String,
        /// Text for people.
        message: String,
    },
    /// There was no login.
    NotSignedIn {
        /// Server of the request.
        server: String,
    },
}
