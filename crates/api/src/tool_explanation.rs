//! Answer to the question whether a principal may call a tool: `/api/v1/explain`.
//!
//! Owns the JSON fields. Does not decide. Invariant: the rules come in the order in which a call
//! meets them.

use serde::{Deserialize, Serialize};

/// Explanation of a decision. The rules may carry more than the gateway knows about them, such as
/// their locations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ToolExplanation"))]
pub struct ToolExplanation<Rule = ExplainedRule> {
    /// True if a call would reach the server.
    pub callable: bool,
    /// Name of the principal.
    pub principal: String,
    /// Tool, as it was asked for.
    pub tool: String,
    /// Path of the endpoint.
    pub endpoint: String,
    /// Server of the tool, if the name shows it.
    pub server: Option<String>,
    /// State of the server.
    pub state: Option<String>,
    /// Server's own name of the tool.
    pub local_name: Option<String>,
    /// True if the server's list has the tool. `None`: the list has not been fetched yet.
    pub listed: Option<bool>,
    /// Rules in the order in which they decide.
    pub rules: Vec<Rule>,
    /// Other endpoints where the principal may call it.
    pub other_endpoints: Vec<String>,
}

impl<Rule> ToolExplanation<Rule> {
    /// Gives each rule another form.
    pub fn map_rules<Other>(self, map: impl FnMut(Rule) -> Other) -> ToolExplanation<Other> {
        let ToolExplanation {
            callable,
            principal,
            tool,
            endpoint,
            server,
            state,
            local_name,
            listed,
            ..
        } = self;
        ToolExplanation {
            callable,
            principal,
            tool,
            endpoint,
            server,
            state,
            local_name,
            listed,
            rules: self.rules.into_iter().map(map).collect(),
            other_endpoints: self.other_endpoints,
        }
    }
}

/// Rule that takes part in a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ExplainedRule {
    /// Path of its key in the config. Items of `auth.keys` are identified by their names. Empty: no
    /// key decides.
    pub key: Vec<String>,
    /// Value of the key: patterns or names.
    pub value: Vec<String>,
    /// True if the rule allows the call.
    pub allows: bool,
    /// True for the first rule that refuses.
    pub decides: bool,
    /// Reason in words.
    pub reason: String,
    /// Name that the patterns are compared with. Empty for other rules.
    pub name: String,
}

/// Rule with its place in the config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PlacedRule {
    /// Rule itself.
    #[serde(flatten)]
    pub rule: ExplainedRule,
    /// File with its key.
    pub file: Option<String>,
    /// Line in the file.
    pub line: Option<usize>,
}
