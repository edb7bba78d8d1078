//! Tools that fit an operator's words: the answer of `/api/v1/search`.
//!
//! Owns the JSON fields. Does not rank. Invariant: the tools come in the order in which a model
//! finds them.

use serde::{Deserialize, Serialize};

/// Tools of an endpoint that match a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ToolSearch {
    /// Path of the endpoint.
    pub endpoint: String,
    /// Number of the endpoint's tools.
    pub total: usize,
    /// Tools that match, best first.
    pub tools: Vec<SearchHit>,
}

/// Tool that matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SearchHit {
    /// Name that clients see.
    pub name: String,
    /// Server of the tool.
    pub server: String,
    /// Line that says how to call it.
    pub signature: String,
    /// Start of its description, or nothing.
    pub description: String,
    /// Remarks, such as the state of a server that is not ready.
    pub notes: Vec<String>,
    /// Share of the best possible score.
    pub score: f64,
    /// Search words that it contains.
    pub matched_words: Vec<String>,
}
