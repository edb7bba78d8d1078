//! Flows as a script has them.
//!
//! Owns their steps and input requests. Does not run them (`scenario`). Invariant: a member that no
//! flow knows is an error.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Flow of a tool or a prompt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedFlow {
    /// True if a modern caller gets a sealed `requestState` with its input requests. Without it
    /// only its responses count.
    pub state: bool,
    /// Steps, in order. A modern retry continues after the last input request that was answered in
    /// full.
    pub steps: Vec<FlowStep>,
    /// Result. In its texts, `{arguments.NAME}` and `{answers.KEY.…}` stand for what they name.
    pub result: Value,
}

impl Default for ScriptedFlow {
    fn default() -> Self {
        Self {
            state: true,
            steps: Vec::new(),
            result: json!({"content": []}),
        }
    }
}

/// Step of a flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowStep {
    /// Sends these input requests together, by key.
    Ask(BTreeMap<String, FlowRequest>),
    /// Reports progress: done, then total.
    Progress(u64, u64),
    /// Sends a log message at this level.
    Log(String, Value),
    /// Waits this many milliseconds.
    WaitMs(u64),
    /// Adds an entry to a list (`tools` or `prompts`), and notifies the listeners.
    Change(String),
}

/// Input request for the caller.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowRequest {
    /// Method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: String,
    /// Params of the request.
    #[serde(default)]
    pub params: Value,
    /// Policy for a caller that did not declare the capability.
    #[serde(default)]
    pub unable: UndeclaredPolicy,
    /// Takes the request back after so many milliseconds without an answer (legacy). The flow goes
    /// on without it.
    #[serde(default)]
    pub withdraw_ms: Option<u64>,
    /// Continues at once, whenever the answer comes (legacy).
    #[serde(default)]
    pub later: bool,
}

/// Policy for an input request whose capability the caller did not declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UndeclaredPolicy {
    /// Fails the call.
    #[default]
    Fail,
    /// Skips the request. A refusal of it does not fail the call.
    Skip,
    /// Sends the request anyway to a legacy client, as a rude server would. A modern call fails.
    Ask,
    /// The same, and continues if the request is refused.
    Insist,
}
