//! Choices that the config has for a server's connections.
//!
//! Owns their names. Does not apply them. Invariant: the config, the API and the gateway name them
//! alike.

use serde::{Deserialize, Serialize};

/// Mode of sharing connections between clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharingMode {
    /// Shared connection for all clients. Clients get dedicated ones in the server's other era, and
    /// where a server that sends input requests could mix them up.
    #[default]
    Auto,
    /// Separate connection for each client session (legacy clients). Clients without one share.
    Session,
    /// Separate connection for each principal.
    Principal,
}

/// Time of a server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerStart {
    /// Starts with the gateway.
    #[default]
    Eager,
    /// Starts on use.
    Lazy,
}
