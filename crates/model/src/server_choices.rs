//! Choices that the config has for a server's connections.
//!
//! Owns their names. Does not apply them. Invariant: the config, the API and the gateway name them
//! alike.

use serde::{Deserialize, Serialize};

/// Mode of sharing connections between clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Share"))]
#[serde(rename_all = "lowercase")]
pub enum SharingMode {
    /// All clients.
    // They get dedicated connections in the server's other era, and where a server that sends input
    // requests could mix them up.
    #[default]
    Auto,
    /// Each client session has its own connection.
    // Only legacy clients have sessions. The others share.
    Session,
    /// Each principal has its own connection.
    Principal,
}

/// Time of a server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Start"))]
#[serde(rename_all = "lowercase")]
pub enum ServerStart {
    /// With the gateway.
    #[default]
    Eager,
    /// When a call needs it.
    Lazy,
}
