//! Recent calls: the answer of `/api/v1/calls`, and `ClientName`, which rows of sessions share.
//!
//! Owns the JSON fields. Does not record calls. Invariant: names and sizes only, never an argument
//! or a result.

use moongate_model::CallState;
use serde::{Deserialize, Serialize};

/// Recent calls, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct CallList {
    pub calls: Vec<CallRow>,
}

/// Recent call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CallRow {
    /// Id, such as `c-7`.
    pub id: String,
    /// Time of its arrival.
    pub at: Option<String>,
    /// State now.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub state: CallState,
    /// Time in milliseconds that it took, or has taken so far.
    pub ms: f64,
    /// Part of that time in the gateway. `None` while it runs.
    pub own_ms: Option<f64>,
    /// Part of that time in the server's queue and waiting for a connection. `None` while it runs,
    /// and for a call that nobody waited for to the end.
    pub wait_ms: Option<f64>,
    /// Attempts after the first one. `None` while it runs.
    pub retries: Option<u32>,
    /// Server of the call. Empty if it reached none.
    pub server: String,
    /// Method of the protocol.
    pub method: String,
    /// Tool or prompt, as clients see it. Empty if there is none.
    pub name: String,
    /// Principal of the client.
    pub principal: String,
    /// Client, as it identifies itself.
    pub client: ClientName,
    /// Path of the endpoint.
    pub endpoint: String,
    /// Revision of the client.
    pub from: String,
    /// Revision of the server, if the call got that far.
    pub to: Option<String>,
    /// Size of the params in bytes.
    pub bytes_in: u64,
    /// Size of the result in bytes. `None` while it runs.
    pub bytes_out: Option<u64>,
    /// Failure of the call.
    pub error: Option<CallError>,
}

/// Name and version that a client reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct ClientName {
    pub name: Option<String>,
    pub version: Option<String>,
}

/// Failure of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CallError {
    /// Kind, as in metrics.
    #[serde(rename = "type")]
    pub kind: String,
    /// Text, redacted.
    pub message: String,
}
