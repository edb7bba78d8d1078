//! Sessions, and clients without one: the answer of `/api/v1/sessions`.
//!
//! Owns the JSON fields. Does not end sessions. Invariant: the ids are the gateway's own, never a
//! session's secret.

use serde::{Deserialize, Serialize};

use crate::call_row::ClientName;

/// Clients with a session, and those whose revision has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SessionList {
    /// Number of all sessions, including those that are not listed.
    pub total: i64,
    /// Sessions in use, newest first.
    pub sessions: Vec<SessionRow>,
    /// Clients without a session, the latest caller first.
    pub stateless: Vec<StatelessClient>,
}

/// Session of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SessionRow {
    /// Short id, which no client can use.
    pub id: String,
    /// Client, as it identifies itself.
    pub client: ClientName,
    /// Principal of the client.
    pub principal: String,
    /// Path of the endpoint.
    pub endpoint: String,
    /// Revision of the client.
    pub revision: String,
    /// True if all messages to the client share one stream.
    pub one_stream: bool,
    /// Time of its start.
    pub since: Option<String>,
    /// Seconds since then.
    pub since_seconds: Option<i64>,
    /// Seconds since its last use.
    pub idle_seconds: u64,
    /// Number of open calls.
    pub calls: u64,
    /// Number of open streams, apart from those of calls.
    pub streams: u64,
    /// Number of resources that it is subscribed to.
    pub subscriptions: u64,
}

/// Client of the recent calls whose revision has no sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StatelessClient {
    /// Client, as it identifies itself.
    pub client: ClientName,
    /// Principal of the client.
    pub principal: String,
    /// Path of the endpoint.
    pub endpoint: String,
    /// Revision of the client.
    pub revision: String,
    /// Number of open calls.
    pub calls: u64,
    /// Number of recent calls.
    pub recent_calls: u64,
    /// Seconds since its last call started.
    pub idle_seconds: u64,
}
