//! Tools, resources and prompts of a server (the answer of `/api/v1/servers/{name}/items`), and
//! lists of tools over several servers (`ServerTools`, `FoundTools`).
//!
//! Owns the JSON fields. Does not decide what is exposed. Invariant: schemas and annotations are as
//! the server wrote them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::server_status::ToolOwner;

/// Items of one server, by kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct ServerItems {
    pub server: String,
    pub tools: Vec<ServerItem>,
    pub resources: Vec<ServerItem>,
    pub templates: Vec<ServerItem>,
    pub prompts: Vec<ServerItem>,
}

/// Item that a server offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerItem {
    /// Server of the item.
    pub server: String,
    /// Name or URI at the server.
    pub name: String,
    /// Name or URI that clients see. `None` if they see none.
    pub exposed: Option<String>,
    /// Name that a tool would get if it were exposed.
    pub expected: Option<String>,
    /// Title for people.
    pub title: Option<String>,
    /// Description for models.
    pub description: Option<String>,
    /// State by the rules of the config.
    pub state: ItemState,
    /// Reason why the item is left out.
    pub reason: Option<String>,
    /// Estimated tokens of its definition.
    pub tokens: u64,
    /// Claims of the server.
    pub annotations: Option<Value>,
    /// Calls since startup.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Time in milliseconds that 95 % of calls stay below.
    pub p95_ms: Option<f64>,
    /// Schema of a tool's arguments.
    pub input_schema: Option<Value>,
    /// Schema of a tool's results.
    pub output_schema: Option<Value>,
    /// Arguments of a prompt.
    pub arguments: Option<Value>,
    /// Rule that keeps the item off or out of lists.
    pub rule: Option<ItemRule>,
}

impl ServerItem {
    /// Returns what the server says the tool does.
    pub fn hints(&self) -> ToolHints {
        ToolHints {
            read_only: self.hint("readOnlyHint"),
            destructive: self.hint("destructiveHint"),
            idempotent: self.hint("idempotentHint"),
            open_world: self.hint("openWorldHint"),
        }
    }

    fn hint(&self, member: &str) -> Option<bool> {
        self.annotations.as_ref()?.get(member)?.as_bool()
    }

    /// Returns true if a pattern switches the item off, which no single switch may change.
    pub fn is_locked(&self) -> bool {
        self.rule
            .as_ref()
            .is_some_and(|rule| rule.list == RuleList::Deny && !rule.exact)
    }
}

/// Tools of one server, as an endpoint exposes them.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct ServerTools {
    pub owner: ToolOwner,
    pub tools: Vec<ServerItem>,
}

/// Tools that match a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundTools {
    /// Listed tools, best first, each with its server.
    pub listed: Vec<(ToolOwner, ServerItem)>,
    /// Number of listed tools that match.
    pub total: usize,
    /// Tools whose texts match, but that no client sees.
    pub unlisted: Vec<(ToolOwner, ServerItem)>,
}

/// Claims of a server about a tool. `None`: it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ToolHints {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

/// State of an item by the rules of the config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// Clients see it.
    On,
    /// Clients can call it, but no list contains it.
    Hidden,
    /// A rule switches it off.
    #[default]
    Off,
    /// Item that cannot be exposed.
    LeftOut,
}

/// Rule that decides about an item, with its place in the config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ItemRule {
    /// List with the pattern.
    pub list: RuleList,
    /// Pattern that decides. `None`: no pattern of `allow` names the item.
    pub pattern: Option<String>,
    /// True if the pattern is this item's name.
    pub exact: bool,
    /// File with the pattern.
    pub file: Option<String>,
    /// Line in the file.
    pub line: Option<usize>,
}

/// List of patterns in the config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum RuleList {
    #[default]
    Allow,
    Deny,
    Hide,
}

impl RuleList {
    /// Returns the key of the list.
    pub fn name(self) -> &'static str {
        match self {
            RuleList::Allow => "allow",
            RuleList::Deny => "deny",
            RuleList::Hide => "hide",
        }
    }
}
