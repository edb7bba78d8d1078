//! Events of `/api/v1/events` that have no type elsewhere in the API.
//!
//! Owns the JSON fields. Does not look for changes. Invariant: the snapshot contains everything
//! that later events update.

use serde::{Deserialize, Serialize};

use crate::call_row::CallRow;
use crate::config_view::ConfigState;
use crate::server_status::GatewayStatus;
use crate::session_row::SessionRow;

/// Event `snapshot`, which a watcher receives first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct FeedSnapshot {
    #[serde(flatten)]
    pub status: GatewayStatus,
    pub calls: Vec<CallRow>,
    pub sessions: Vec<SessionRow>,
    pub config: ConfigState,
}

/// Event `sessions`: all sessions, after some started or ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct SessionsEvent {
    pub sessions: Vec<SessionRow>,
}

/// Event `server` for a server that was removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct RemovedServer {
    pub name: String,
    pub removed: bool,
}

/// Event `calls`: more calls than can be reported one by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CallFlood {
    /// Number of calls that started.
    pub started: u64,
}
