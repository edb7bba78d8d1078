//! Calls that operators make: the bodies and events of `/api/v1/try`.
//!
//! Owns the JSON fields. Does not call tools. Invariant: results stay JSON text, so no reader
//! rounds their numbers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Body of `POST /api/v1/try`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TryRequest {
    /// Name of the server.
    pub server: String,
    /// Name of the tool, as the server has it.
    pub tool: String,
    /// Arguments of the call.
    pub arguments: Option<Value>,
}

/// Body of `POST /api/v1/try/{id}/answer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TryReply {
    /// Id of the question.
    pub ask: String,
    /// Answer: `accept`, `decline` or `cancel`.
    pub action: String,
    /// Data that the person entered, for `accept`.
    pub content: Option<Value>,
}

/// Event `started`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct TryStarted {
    pub id: String,
}

/// Event `ask`: a server waits for an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TryQuestion {
    /// Id of the question.
    pub ask: String,
    /// Kind: `form` or `url`.
    pub kind: String,
    /// Params of the server's request.
    pub params: Value,
}

/// Event `log` of the gateway itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct TryNotice {
    pub level: String,
    pub logger: String,
    pub data: String,
}

/// Event `done`: the end of the call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TryDone {
    /// Id of the call.
    pub id: String,
    /// Time in milliseconds that it took.
    pub ms: f64,
    /// Part of that time in the gateway.
    pub own_ms: Option<f64>,
    /// Size of the result in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Outcome: `ok`, `tool_error`, `cancelled` or `error`.
    pub outcome: String,
    /// Result as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Reason why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
