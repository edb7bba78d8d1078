//! Cost of an endpoint's tools in every conversation: the answer of `/api/v1/context`.
//!
//! Owns the JSON fields. Does not estimate tokens. Invariant: `tools` and `tokens` describe the
//! full lists, `tools_listed` and `tokens_listed` the lists that clients get.

use serde::{Deserialize, Serialize};

/// Cost of an endpoint's tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EndpointCost {
    /// Path of the endpoint.
    pub endpoint: String,
    /// Way in which clients get the tools.
    pub discovery: DiscoveryMode,
    /// Number of the endpoint's tools.
    pub tools: usize,
    /// Estimated tokens of their definitions.
    pub tokens: u64,
    /// Number of tools in the list that clients get.
    pub tools_listed: usize,
    /// Estimated tokens of that list.
    pub tokens_listed: u64,
    /// Estimated tokens of the tools that were called since startup.
    pub tokens_called: u64,
    /// Servers, the most expensive first.
    pub servers: Vec<ServerCost>,
}

/// Way in which clients get the tools of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DiscoveryMode {
    /// Lists contain all tools.
    #[default]
    Full,
    /// Lists contain only the tools that find and call others.
    Search,
}

/// Cost of a server's tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerCost {
    /// Name in the config.
    pub name: String,
    /// Title. `None`: the name is shown.
    pub title: Option<String>,
    /// Estimated tokens of its listed tools.
    pub tokens: u64,
    /// Calls to them since startup.
    pub calls: u64,
    /// Listed tools, the most expensive first.
    pub tools: Vec<ToolCost>,
}

impl ServerCost {
    /// Returns the estimated tokens of the tools that were called since startup.
    pub fn called_tokens(&self) -> u64 {
        self.tools
            .iter()
            .filter(|tool| tool.calls > 0)
            .map(|tool| tool.tokens)
            .sum()
    }
}

/// Cost of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ToolCost {
    /// Name at the server.
    pub name: String,
    /// Name that clients see.
    pub exposed: Option<String>,
    /// Estimated tokens of its definition.
    pub tokens: u64,
    /// Calls since startup.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
}
